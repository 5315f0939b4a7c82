"""Federated brokers with data directories: whichever is killed, whenever, what was promised upstream arrives downstream."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.ports import free_port
from tests.seeds import many
from tests.system.conftest import FAST
from tests.system.stages import TIMEOUT, KernelRun, Stage, kill_at_random, stages, until

__all__ = ["stages"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WINDOW = 200
"""Messages on their way over each link, at the most."""

TWICE = 5 * WINDOW
"""What may come twice for a kill: what was on its way over a link, and what a broker had not yet written down as acknowledged."""

TOTAL, KILLS = 20_000, 8

BROKER = """
[engines.broker]
kind = "amqp"
address = "127.0.0.1:{port}"
data_dir = "{folder}/{name}"
cluster_name = "{name}"
exchanges = [{{ name = "feed", type = "topic" }}]
"""

DOWNSTREAM = (
    BROKER
    + """
queues = [{{ name = "all" }}]
bindings = [{{ exchange = "feed", queue = "all", key = "#" }}]

[engines.link]
kind = "federation"
broker = "broker"
addresses = ["127.0.0.1:{upstream}"]
exchanges = ["feed"]
prefetch = {window}
reconnect = {{ first = 0.02, most = 0.2 }}

[[routes]]
from = "link"
to = "broker"
confirm = true
"""
)


def _waiting(port: int, name: str) -> int:
    """How many messages are in a queue; none as long as there is nobody to ask."""
    try:
        with RawClient(port) as client:
            return client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk).message_count
    except (OSError, AssertionError, IndexError):
        return 0


def _publish_until_one_arrives(upstream: int, downstream: int) -> None:
    """Only then the link has bound what is wanted."""
    with RawClient(upstream) as client:

        def has_arrived() -> bool:
            client.publish(b"-1", "k", "feed")
            return _waiting(downstream, "all") > 0

        until(has_arrived)


@pytest.mark.parametrize("seed", many(1, 1))
def test_nothing_is_lost(
    kernel_factory: KernelFactory, stages: list[Stage], tmp_path: Path, seed: int
) -> None:
    ports = {"up": free_port(), "down": free_port()}
    up = KernelRun(tmp_path, "up", BROKER.format(name="up", port=ports["up"], folder=tmp_path))
    options = {"name": "down", "port": ports["down"], "upstream": ports["up"], "window": WINDOW}
    down = KernelRun(tmp_path, "down", DOWNSTREAM.format(folder=tmp_path, **options))
    stages += [up, down]
    for stage in stages:
        stage.start()
    _publish_until_one_arrives(ports["up"], ports["down"])
    publisher = {
        "addresses": [f"127.0.0.1:{ports['up']}"],
        "reconnect": FAST,
        "exchange": "feed",
        "persistent": True,
        "in_flight": WINDOW,
    }
    kernel = kernel_factory(
        EnginePlan(name="broker", kind="amqp-client", options=publisher),
        EnginePlan(name="app", kind="native"),
        RoutePlan(source="app", targets=("broker",), confirm=True, marks=WaterMarks(high=500)),
    )
    promised = [0]

    def publish() -> None:
        app = kernel.open("app")
        for first in range(0, TOTAL, 500):
            app.send_many([b"%d" % number for number in range(first, first + 500)], timeout=TIMEOUT)
            app.wait_confirmed(TIMEOUT)
            promised[0] = first + 500

    publishing = threading.Thread(target=publish)
    publishing.start()
    kill_at_random([up, down], seed, KILLS, TOTAL - 1000, lambda: promised[0])
    publishing.join()
    got: Counter[int] = Counter()
    with RawClient(ports["down"]) as client:
        client.send(basic.Consume(queue="all", no_ack=True))
        while not got.keys() >= set(range(TOTAL)):
            got.update(int(bytes(body)) for body in client.wait_for(Delivered).batch.bodies)
    del got[-1]
    assert sum(got.values()) - TOTAL <= KILLS * TWICE
