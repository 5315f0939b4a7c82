"""Round trips through a broker: a bare client publishes a message to a queue and consumes it.

The client has its own processor, and our broker another; RabbitMQ, which has a thread for each processor, may
use all.  Ours runs with ``spin`` (kernel/threads/options.py), as in roundtrip_poll; its result without is
printed too.
"""

from __future__ import annotations

import os
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.amqp.bare import BareClient
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child, percentiles, time_calls
from benchmarks.scenario import Figures, Row, Scenario, Side
from plugins.protocols.amqp091.methods import queue

SIZE = 100
COUNT = 10_000
SPIN = 60e-6
SPINNING, DEFAULT, THEIRS = "kernel, a poll thread that spins", "kernel, as it is by default", "RabbitMQ"


def ask(link: Connection, address: str, count: int) -> None:
    """Say how many nanoseconds each round trip took."""
    client = BareClient(address)
    name = f"roundtrip-{os.getpid()}"
    client.call(queue.Declare(queue=name, auto_delete=True), queue.DeclareOk)
    client.consume(name)
    question = client.encoded([b"x" * SIZE], name)
    send, receive = client.socket.sendall, client.count

    def there_and_back() -> None:
        send(question)
        receive()  # one delivery is one segment

    link.send(time_calls(there_and_back, count))
    link.recv()


def _measure(start: StartBroker, scale: float) -> Figures:
    with start() as broker, Child(ask, broker.address, int(COUNT * scale), cpu=0) as asking:
        return percentiles(asking.hear())


def _row(figure: str) -> Row:
    return Row(
        name=f"amqp_roundtrip_{figure}",
        what=f"round trip through the broker, {SIZE} B, bare client, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 0.5",
        ours=SPINNING,
        peers=(THEIRS,),
        also=(DEFAULT,),
    )


def _row_by_default(figure: str, bar: str) -> Row:
    return Row(
        name=f"latency_amqp_{figure}",
        what=f"the same with our default settings, {figure}",
        figure=figure,
        unit="µs",
        bar=bar,
        ours=DEFAULT,
        peers=(THEIRS,),
    )


SCENARIO = Scenario(
    name="amqp_roundtrip",
    sides=(
        Side(SPINNING, partial(_measure, partial(our_broker, SPIN, -1))),
        Side(THEIRS, partial(_measure, shared(rabbitmq))),
        Side(DEFAULT, partial(_measure, partial(our_broker, None, -1))),
    ),
    rows=(_row("p50"), _row("p99"), _row_by_default("p50", "<= 0.5"), _row_by_default("p99", "<= 1.0")),
)
