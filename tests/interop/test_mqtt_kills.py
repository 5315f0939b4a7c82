"""Kill -9 of the broker and of clients at any moment: QoS 1 loses nothing, QoS 2 comes exactly once, sessions resume.

In the first test clients die often: what one has on disk is in memory here, and the broker sees its end in the middle of a
packet.  In the second one they are processes that are killed as the broker is.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.interop.brokers import KernelProcess
from tests.interop.until import until
from tests.plugins.engines.mqtt.lasting_client import (
    FILTERS,
    LastingClient,
    enough,
    messages,
    read_notes,
)
from tests.seeds import many

BROKER = """
[engines.broker]
kind = "broker"
data_dir = "{options}"
[[engines.broker.listeners]]
protocol = "mqtt"
address = "127.0.0.1:{port}"
"""
MESSAGES = 5000


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", many(1, 1))
def test_nothing_is_lost_and_qos_2_comes_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with KernelProcess(tmp_path, str(tmp_path / "data"), topology=BROKER) as broker:
        port = broker.broker.port
        subscriber = LastingClient(port, "subscriber", FILTERS)
        publisher = LastingClient(port, "publisher")
        while not subscriber.is_subscribed:
            subscriber.go_on(1.0)
        sent = messages(0, MESSAGES)
        publisher.publish(sent)
        wanted = {payload for _, payload, _ in sent}
        over = threading.Event()

        def is_complete() -> bool:
            return publisher.is_done and wanted <= {payload for _, payload, _ in list(subscriber.got)}

        def run(client: LastingClient, deaths: random.Random) -> None:
            while not over.is_set():
                client.go_on(0.05)
                if deaths.random() < 0.02:
                    client.die()

        threads = [
            threading.Thread(target=run, args=(client, random.Random(f"{seed} {number}")))
            for number, client in enumerate((subscriber, publisher))
        ]
        for thread in threads:
            thread.start()
        try:
            kills = 0
            while not is_complete() and kills < 8:
                over.wait(chance.uniform(0.03, 0.4))
                broker.kill()
                broker.start()
                kills += 1
            until(is_complete)
        finally:
            over.set()
            for thread in threads:
                thread.join()
            subscriber.close()
            publisher.close()
    assert kills, "the broker was not killed in the middle of it"
    assert min(subscriber.connections, publisher.connections) > kills + 1, "the clients were not killed"
    once = [payload for _, payload, qos in subscriber.got if qos == 2]
    assert once == [payload for _, payload, qos in sent if qos == 2]
    assert {payload for _, payload, qos in subscriber.got if qos == 1} == {
        payload for _, payload, qos in sent if qos == 1
    }


class _ClientProcess:
    """A client, and the file that it notes its steps in."""

    def __init__(self, port: int, folder: Path, role: str) -> None:
        self.file = folder / f"{role}.notes"
        self._command = [
            *(sys.executable, "-m", "tests.plugins.engines.mqtt.lasting_client"),
            *(str(port), role, str(self.file), role),
        ]
        self.start()

    def start(self) -> None:
        before = self.count("connected")
        self.process = subprocess.Popen(self._command)
        until(lambda: self.count("connected") > before or self.process.poll() is not None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def count(self, what: str) -> int:
        return self.file.read_bytes().count(b'["%s"' % what.encode()) if self.file.exists() else 0

    def got(self, qos: int) -> list[str]:
        return [note[3] for note in read_notes(self.file) if note[0] == "got" and note[4] == qos]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", many(1, 1))
def test_processes_of_clients_are_killed_as_well(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with KernelProcess(tmp_path, str(tmp_path / "data"), topology=BROKER) as broker:
        subscriber = _ClientProcess(broker.broker.port, tmp_path, "subscribe")
        until(lambda: subscriber.count("subscribed"))
        publisher = _ClientProcess(broker.broker.port, tmp_path, "publish")
        try:
            victims = [broker, subscriber, publisher] * 2
            chance.shuffle(victims)
            for victim in victims:
                # All are at work.
                more = subscriber.count("got") + chance.randrange(1, 200)
                until(lambda: subscriber.count("got") >= more)  # noqa: B023 - called at once
                victim.kill()
                victim.start()
            enough(publisher.file).touch()
            assert publisher.process.wait(60) == 0
            sent = messages(0, publisher.count("sent"))
            until(lambda: len(set(subscriber.got(1))) + len(subscriber.got(2)) >= len(sent), every=0.2)
        finally:
            subscriber.kill()
            publisher.kill()
    assert subscriber.got(2) == [payload.decode() for _, payload, qos in sent if qos == 2]
    assert set(subscriber.got(1)) == {payload.decode() for _, payload, qos in sent if qos == 1}
