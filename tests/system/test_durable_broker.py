"""SIGKILL of a real broker in mid-flow: what was confirmed is there, message by message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PERSISTENT = pika.BasicProperties(delivery_mode=2)

pytestmark = pytest.mark.peer("pika")


class DurableProcess:
    """``kernel run examples/durable_broker.toml``, which can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        self._environment = {**os.environ, "AMQP_PORT": str(self.port), "DATA_DIR": str(data)}
        self._process: subprocess.Popen[str] | None = None
        self.said: list[str] = []

    def start(self) -> None:
        command = [sys.executable, "-W", "error", "-m", "kernel", "run", "examples/durable_broker.toml"]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        self._process = process
        self.said = []
        while " ready " not in (line := process.stdout.readline()):
            assert line, f"the broker ended: {self.said}"
            self.said.append(line)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=60)
            self._process = None

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DurableProcess]:
    process = DurableProcess(tmp_path / "data")
    process.start()
    yield process
    process.end(signal.SIGKILL)


class Publisher(threading.Thread):
    """Publishes numbers with confirms until the broker is gone; knows which were confirmed."""

    def __init__(self, broker: DurableProcess, number: int, enough: int = 100, **headers: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.confirmed = 0
        self._enough = enough
        self._headers = headers
        self.enough = threading.Event()
        self._number = number
        self._connection = broker.connect()

    def run(self) -> None:
        try:
            channel = self._connection.channel()
            channel.confirm_delivery()
            while True:
                self.sent += 1
                body = b"%d:%d" % (self._number, self.sent)
                channel.basic_publish("", "q", body, self._properties())
                self.confirmed = self.sent
                if self.confirmed == self._enough:
                    self.enough.set()
        except (pika.exceptions.AMQPError, OSError):
            self.enough.set()

    def _properties(self) -> pika.BasicProperties:
        if not self._headers:
            return PERSISTENT
        return pika.BasicProperties(delivery_mode=2, headers={**self._headers, "x-publishing-id": self.sent})


class Acknowledger(threading.Thread):
    """Consumes and acknowledges until the broker is gone; knows what it was handed."""

    def __init__(self, broker: DurableProcess) -> None:
        super().__init__(daemon=True)
        self.got: list[bytes] = []
        self._connection = broker.connect()

    def run(self) -> None:
        try:
            channel = self._connection.channel()
            channel.basic_qos(prefetch_count=20)
            channel.basic_consume("slow", self._on_message)
            channel.start_consuming()
        except (pika.exceptions.AMQPError, OSError):
            return

    def _on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.got.append(body)
        channel.basic_ack(method.delivery_tag)


def drained(broker: DurableProcess, queue: str) -> list[bytes]:
    connection = broker.connect()
    channel = connection.channel()
    bodies: list[bytes] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(got[2])
    connection.close()
    return bodies


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_every_confirmed_message_is_there_after_a_kill(broker: DurableProcess, kills: int) -> None:
    connection = broker.connect()
    channel = connection.channel()
    for name in ("q", "slow"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(300):
        channel.basic_publish("", "slow", b"%d" % number, PERSISTENT)
    connection.close()
    promised: Counter[bytes] = Counter()
    sent: set[bytes] = set()
    handed: set[bytes] = set()
    for kill in range(kills):
        publishers = [Publisher(broker, kill * 10 + number) for number in range(3)]
        consumer = Acknowledger(broker)
        for thread in (*publishers, consumer):
            thread.start()
        for publisher in publishers:
            assert publisher.enough.wait(60)
        broker.end(signal.SIGKILL)
        for thread in (*publishers, consumer):
            thread.join(60)
            assert not thread.is_alive()
        for publisher in publishers:
            number = publisher._number
            promised.update(b"%d:%d" % (number, at) for at in range(1, publisher.confirmed + 1))
            sent |= {b"%d:%d" % (number, at) for at in range(1, publisher.sent + 1)}
        handed |= set(consumer.got)
        broker.start()
        assert not [line for line in broker.said if "damaged" in line or "lost" in line]
    found = Counter(drained(broker, "q"))
    assert promised <= found
    assert set(found) <= sent
    assert max(found.values()) == 1
    # What was not acknowledged is there; what was handed out may be.
    left = drained(broker, "slow")
    assert {b"%d" % number for number in range(300)} - handed <= set(left)
    assert len(left) == len(set(left))


def test_publishers_that_begin_again_after_each_kill_double_nothing(broker: DurableProcess) -> None:
    connection = broker.connect()
    connection.channel().queue_declare("q", durable=True)
    connection.close()
    sent, confirmed = [0, 0], [0, 0]
    for kill in range(2):
        # They know nothing of what was confirmed before, and send everything again.
        publishers = [
            Publisher(broker, number, 100 * (kill + 1), **{"x-publisher": f"p{number}"})
            for number in range(2)
        ]
        for publisher in publishers:
            publisher.start()
        for publisher in publishers:
            assert publisher.enough.wait(60)
        broker.end(signal.SIGKILL)
        for number, publisher in enumerate(publishers):
            publisher.join(60)
            sent[number] = max(sent[number], publisher.sent)
            confirmed[number] = max(confirmed[number], publisher.confirmed)
        broker.start()
    found = [body.split(b":") for body in drained(broker, "q")]
    for number in range(2):
        numbers = [int(text) for name, text in found if int(name) == number]
        assert numbers == list(range(1, len(numbers) + 1)), "in order, each once"
        assert confirmed[number] <= len(numbers) <= sent[number]


def test_a_clean_end_keeps_everything(broker: DurableProcess) -> None:
    connection = broker.connect()
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for number in range(100):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    assert channel.queue_declare("q", passive=True).method.message_count == 100
    connection.close()
    broker.end(signal.SIGTERM)
    broker.start()
    assert drained(broker, "q") == [b"%d" % number for number in range(100)]
