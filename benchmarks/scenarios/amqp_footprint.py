"""How soon a broker accepts connections, and its memory: idle, a connection, a queue, an idle consumer."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.amqp.bare import CHANNEL, BareClient
from benchmarks.amqp.brokers import Broker
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child, allow_descriptors
from benchmarks.scenario import Figures, Row, Scenario, Side
from plugins.protocols.amqp091.methods import basic, queue
from tests.interop.brokers import KernelProcess

OURS, THEIRS, AIM = "kernel run", "RabbitMQ", "the aim: 0.5 s"
CONNECTIONS, QUEUES, CONSUMERS = 300, 3000, 3000
_WHAT = {
    "connections": f"memory of an idle connection with a channel, among {CONNECTIONS:,}",
    "queues": f"memory of an empty queue, among {QUEUES:,}",
    "consumers": f"memory of an idle consumer, among {CONSUMERS:,} of one channel",
}


def connections(link: Connection, address: str) -> None:
    """Hold connections with a channel each."""
    _hold(link, CONNECTIONS, [BareClient(address) for _ in range(CONNECTIONS)])


def queues(link: Connection, address: str) -> None:
    """Hold queues."""
    client = BareClient(address)
    for at in range(QUEUES):
        client.connection.send_method(CHANNEL, queue.Declare(queue=f"idle-{at}", exclusive=True, nowait=True))
    client.call(queue.Declare(queue="idle-0", exclusive=True), queue.DeclareOk)
    _hold(link, QUEUES, client)


def consumers(link: Connection, address: str) -> None:
    """Hold consumers of one queue."""
    client = BareClient(address)
    client.call(queue.Declare(queue="watched", exclusive=True), queue.DeclareOk)
    for at in range(CONSUMERS):
        consume = basic.Consume(queue="watched", consumer_tag=f"consumer-{at}", nowait=True)
        client.connection.send_method(CHANNEL, consume)
    client.call(queue.Declare(queue="watched", exclusive=True), queue.DeclareOk)
    _hold(link, CONSUMERS, client)


def _hold(link: Connection, count: int, held: object) -> None:
    link.send(count)
    link.recv()
    del held


def _ours(scale: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        start = time.perf_counter()
        with KernelProcess(Path(folder)) as process:
            seconds = time.perf_counter() - start
            return {"seconds": seconds, **_memory(Broker(OURS, process.broker.address, process.pid))}


def _theirs(scale: float) -> Figures:
    node = rabbitmq()
    return {**_memory(node), "seconds": node.start_seconds, "idle": node.idle}


def _memory(broker: Broker) -> Figures:
    """Bytes, by what takes them."""
    allow_descriptors(CONNECTIONS)
    BareClient(broker.address).socket.close()  # whatever the first one brings along
    figures: Figures = {"idle": broker.resident()}
    with ExitStack() as held:
        for role in (connections, queues, consumers):
            before = broker.resident()
            child = held.enter_context(Child(role, broker.address))
            count = child.hear()
            figures[role.__name__] = max(broker.resident() - before, 0) / count
    return figures


def _row(
    name: str, what: str, figure: str, unit: str, bar: str, *peers: str, also: tuple[str, ...] = ()
) -> Row:
    return Row(
        name=f"amqp_{name}", what=what, figure=figure, unit=unit, bar=bar, ours=OURS, peers=peers, also=also
    )


SCENARIO = Scenario(
    name="amqp_footprint",
    sides=(
        Side(OURS, _ours),
        Side(THEIRS, _theirs),
        Side(AIM, lambda scale: {"seconds": 0.5}),
    ),
    rows=(
        _row(
            "cold_start",
            "from the start of the process until it accepts",
            "seconds",
            "s",
            "<= 1.0",
            AIM,
            also=(THEIRS,),
        ),
        _row("memory_idle", "memory of the process, idle", "idle", "B", "<= 1.0", THEIRS),
        *(_row(f"memory_{figure}", what, figure, "B", "<= 1.0", THEIRS) for figure, what in _WHAT.items()),
    ),
)
