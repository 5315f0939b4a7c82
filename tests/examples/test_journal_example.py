"""examples/journal.toml: AMQP publishers with confirmations, a broker that is killed, and the journal that is left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from plugins.protocols.journal_format.reader import JournalReader
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "journal.toml"


class Broker:
    """The example as a process of its own, that may be killed and started again."""

    def __init__(self, journal: Path) -> None:
        self.port = free_port()
        self._environment = {**os.environ, "AMQP_PORT": str(self.port), "JOURNAL_DIR": str(journal)}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "kernel", "run", str(EXAMPLE)]
        self._process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        said: list[str] = []
        while " ready " not in (line := self._process.stdout.readline()):
            said.append(line)
            assert line, "".join(said)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=200)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(tmp_path / "journal")
    yield started
    started.kill()


def connect(port: int) -> Any:
    import pika

    return pika.BlockingConnection(pika.ConnectionParameters(port=port))


@pytest.mark.peer("pika")
def test_what_is_published_to_the_feed_is_kept_with_all_that_amqp_says(
    broker: Broker, tmp_path: Path
) -> None:
    import pika

    with connect(broker.port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="text/plain", headers={"n": 1, "deep": {"list": ["a", None]}}, priority=3, delivery_mode=2,
            message_id="m-1",
        )  # fmt: skip
        channel.basic_publish("feed", "weather.wien", b"sunny", properties)
        channel.basic_publish("amq.topic", "weather.wien", b"of another exchange")
    (batch,) = JournalReader(tmp_path / "journal").record_batches()
    (row,) = batch.to_pylist()
    assert (row["exchange"], row["key"], row["body"]) == ("feed", "weather.wien", b"sunny")
    assert (row["engine"], row["content_type"], row["priority"]) == ("broker", "text/plain", 3)
    assert row["headers"] == '{"n":1,"deep":{"list":["a",null]}}'
    assert '"message_id":"m-1"' in row["properties"]


@pytest.mark.slow
@pytest.mark.peer("pika")
def test_whatever_was_confirmed_outlives_a_killed_broker(broker: Broker, tmp_path: Path) -> None:
    import pika

    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    confirmed: list[bytes] = []
    number = 0
    for killed in range(1, 5):
        timer = threading.Timer(chance.uniform(0.0, 0.6), broker.kill)
        try:
            with connect(broker.port) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while True:
                    number += 1
                    channel.basic_publish("feed", f"k.{number % 3}", b"%d" % number)  # returns when confirmed
                    confirmed.append(b"%d" % number)
                    if len(confirmed) > 6 * killed and timer.ident is None:
                        timer.start()
        except (pika.exceptions.AMQPError, OSError):
            pass
        timer.join()
        broker.start()
    broker.stop()
    kept: list[bytes] = []
    for batch in JournalReader(tmp_path / "journal").record_batches(columns=["body"]):
        kept += batch.column(0).to_pylist()
    assert len(confirmed) > 20
    assert set(confirmed) <= set(kept), f"seed {seed}"
    assert kept == sorted(set(kept), key=int), f"seed {seed}: each once, in order"


def kernel(*arguments: object) -> None:
    command = [sys.executable, "-W", "error", "-m", "kernel", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.peer("pika")
def test_an_amqp_consumer_has_the_feed_again_from_an_offset(broker: Broker, tmp_path: Path) -> None:
    import pika

    journal = tmp_path / "journal"
    with connect(broker.port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(10):
            properties = pika.BasicProperties(
                headers={"n": number}, delivery_mode=2, message_id=f"m-{number}"
            )
            channel.basic_publish("feed", f"k.{number}", b"%d" % number, properties)
        channel.exchange_declare("replay", "topic")
        channel.queue_declare("mine")
        channel.queue_bind("mine", "replay", "#")
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
        kernel("journal", "replay", journal, url, "--into", "replay", "--from", 6, "--speed", 0)
        again = [channel.basic_get("mine", auto_ack=True) for _ in range(4)]
        assert channel.basic_get("mine") == (None, None, None)
    assert [(method.exchange, method.routing_key, body) for method, _, body in again] == [
        ("replay", f"k.{number}", b"%d" % number) for number in range(6, 10)
    ]
    assert [(had.headers, had.delivery_mode, had.message_id) for _, had, _ in again] == [
        ({"n": number}, 2, f"m-{number}") for number in range(6, 10)
    ]
    assert JournalReader(journal).bounds().end == 10, "what is played back is not kept once more"


@pytest.mark.peer("pika")
def test_a_standing_replay_goes_on_with_what_comes(broker: Broker, tmp_path: Path) -> None:
    from kernel import EnginePlan, Kernel, Plan, RoutePlan

    reading = {"path": str(tmp_path / "journal"), "speed": 0, "follow": True, "consumer": "analysis"}
    writing = {"addresses": [f"127.0.0.1:{broker.port}"], "exchange": "replay"}
    plan = Plan(
        engines=(
            EnginePlan(name="from-the-start", kind="journal-replay", options=reading),
            EnginePlan(name="again", kind="amqp-client", options=writing),
        ),
        routes=(RoutePlan(source="from-the-start", targets=("again",), confirm=True),),
    )
    with connect(broker.port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("replay", "topic")
        channel.queue_declare("mine")
        channel.queue_bind("mine", "replay", "#")
        again = channel.consume("mine", auto_ack=True, inactivity_timeout=200)
        number = 0
        for _ in range(2):  # the second replay goes on where the first was confirmed
            with Kernel(plan):
                for _ in range(3):
                    channel.basic_publish("feed", f"k.{number}", b"%d" % number)
                    method, _, body = next(again)
                    assert method is not None
                    assert (method.routing_key, body) == (f"k.{number}", b"%d" % number)
                    number += 1
