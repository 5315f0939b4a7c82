"""One queue with 1, 10, 100 and 1,000 consumers, each of which works on one message at a time."""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import workers
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child, allow_descriptors
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 20_000
_SIZES = (1, 10, 100, 1000)


def _measure(start: StartBroker, consumers: int, scale: float) -> Figures:
    allow_descriptors(consumers)
    count = int(COUNT * scale)
    with start() as broker, Child(workers.drain, broker.address, consumers, count) as client:
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        rate = client.hear()
        return {"rate": rate, "cost": (broker.processor_seconds() - before) / count * 1e6}


def _side(broker: str, consumers: int) -> str:
    return f"{broker}, {consumers:,} consumer{'s' if consumers > 1 else ''}"


def _row(consumers: int) -> Row:
    return Row(
        name=f"amqp_consumers_{consumers}",
        what=f"one queue, 100 B, prefetch 1, each message acknowledged, {consumers:,} connections",
        figure="rate",
        unit="msg/s",
        bar=">= 2.0",
        ours=_side("kernel", consumers),
        peers=(_side("RabbitMQ", consumers),),
    )


SCENARIO = Scenario(
    name="amqp_consumers",
    sides=tuple(
        Side(_side(name, number), partial(_measure, start, number))
        for number in _SIZES
        for name, start in (("kernel", our_broker), ("RabbitMQ", shared(rabbitmq)))
    ),
    rows=tuple(map(_row, _SIZES)),
)
