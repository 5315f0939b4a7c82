"""One load on 1, 10, 100 and 1,000 connections, each with a queue that it publishes to and consumes from."""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import flood
from benchmarks.amqp.brokers import our_broker
from benchmarks.processes import Child, allow_descriptors
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 10_000_000
AGAIN = ", once more"


def _measure(connections: int, scale: float) -> Figures:
    allow_descriptors(connections)
    count = int(COUNT * scale)
    with our_broker() as broker, Child(flood.many_connections, broker.address, connections, count) as client:
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        rate = client.hear()
        return {"rate": rate, "cost": (broker.processor_seconds() - before) / count * 1e6}


def _side(connections: int) -> str:
    return f"{connections:,} connection{'s' if connections > 1 else ''}"


def _row(connections: int) -> Row:
    return Row(
        name=f"amqp_connections_{connections}",
        what=f"transient, {flood.BLOCK} messages at a time, shared by {_side(connections)}",
        figure="rate",
        unit="msg/s",
        bar=">= 0.8",
        ours=_side(connections),
        peers=(_side(1) + AGAIN * (connections == 1),),
    )


_SIZES = (1, 10, 100, 1000)

SCENARIO = Scenario(
    name="amqp_connections",
    sides=(
        *(Side(_side(number), partial(_measure, number)) for number in _SIZES),
        Side(_side(1) + AGAIN, partial(_measure, 1)),
    ),
    rows=tuple(map(_row, _SIZES)),
)
