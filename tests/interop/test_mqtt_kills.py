"""Kill -9 of the broker and of clients at any moment: QoS 1 loses nothing, QoS 2 comes exactly once, sessions resume.

What a client that is killed has on disk is in memory here: of a client the broker sees its end in the middle of a packet, and
that it comes back with what it knows.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.interop.brokers import KernelProcess
from tests.interop.until import until
from tests.plugins.engines.mqtt.lasting_client import LastingClient
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
        subscriber = LastingClient(port, "subscriber", [("once/#", 2), ("least/#", 1)])
        publisher = LastingClient(port, "publisher")
        while not subscriber.is_subscribed:
            subscriber.go_on(1.0)
        messages = [
            ("once/a", b"%d" % number, 2) if number % 3 else ("least/a", b"%d" % number, 1)
            for number in range(MESSAGES)
        ]
        publisher.publish(messages)
        wanted = {payload for _, payload, _ in messages}
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
    assert once == [payload for _, payload, qos in messages if qos == 2]
    assert {payload for _, payload, qos in subscriber.got if qos == 1} == {
        payload for _, payload, qos in messages if qos == 1
    }
