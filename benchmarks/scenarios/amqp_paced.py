"""Latency of paced messages through a broker that carries a bulk stream on another connection at the same time."""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import paced
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 20_000
"""Paced messages: at p999 twenty of them count.  With fewer, one stall of the client itself, of which a virtual
machine has some, would decide."""
BULK = 10_000
"""Messages a second of the bulk stream: about what RabbitMQ carries beside the fastest paced one."""
_RATES = (1_000, 10_000)


def _measure(start: StartBroker, rate: int, scale: float) -> Figures:
    with (
        start() as broker,
        Child(paced.bulk, broker.address, float(BULK)) as bulk,
        Child(paced.pace, broker.address, float(rate), int(COUNT * scale)) as pace,
    ):
        bulk.hear()
        pace.hear()
        bulk.say("go")
        pace.say("go")
        taken = sorted(pace.hear())
        bulk.say("end")
        carried = bulk.hear()
    parts = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {name: taken[int(len(taken) * part)] / 1000 for name, part in parts.items()} | {"bulk": carried}


def _side(broker: str, rate: int) -> str:
    return f"{broker}, {rate:,}/s"


def _row(rate: int, figure: str) -> Row:
    return Row(
        name=f"latency_paced_{rate}_{figure}",
        what=f"{rate:,} msg/s of 100 B paced beside {BULK:,}/s in blocks, publisher to consumer, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 1.0",
        ours=_side("kernel", rate),
        peers=(_side("RabbitMQ", rate),),
    )


SCENARIO = Scenario(
    name="amqp_paced",
    sides=tuple(
        Side(_side(name, rate), partial(_measure, start, rate))
        for rate in _RATES
        for name, start in (("kernel", our_broker), ("RabbitMQ", shared(rabbitmq)))
    ),
    rows=tuple(_row(rate, figure) for rate in _RATES for figure in ("p50", "p99", "p999")),
)
