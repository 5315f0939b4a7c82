"""Latency of paced messages through a broker that carries a bulk stream on another connection at the same time."""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import paced
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child, percentiles
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 20_000
"""Paced messages: at p999 twenty of them count.  With fewer, one stall of the client itself, of which a virtual
machine has some, would decide."""
BULK = 10_000
"""Messages a second of the bulk stream: about what RabbitMQ carries beside the fastest paced one."""
_RATES = (1_000, 10_000)
_FIGURES = ("p50", "p99", "p999")


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
        since_due, since_written = pace.hear()
        bulk.say("end")
        carried = bulk.hear()
    written = {f"written_{name}": value for name, value in percentiles(since_written).items()}
    return {**percentiles(since_due), **written, "bulk": carried}


def _measure_alone(rate: int, scale: float) -> Figures:
    with Child(paced.wait_alone, float(rate), int(COUNT * scale)) as waiting:
        return percentiles(waiting.hear())


def _side(broker: str, rate: int) -> str:
    return f"{broker}, {rate:,}/s"


def _row(rate: int, figure: str, words: str = "") -> Row:
    return Row(
        name=f"latency_paced_{rate}_{figure}",
        what=f"{rate:,} msg/s of 100 B paced beside {BULK:,}/s in blocks, publisher to consumer{words}, "
        f"{figure.rpartition('_')[2]}",
        figure=figure,
        unit="µs",
        bar="<= 1.0",
        ours=_side("kernel", rate),
        peers=(_side("RabbitMQ", rate),),
        also=() if words else (_side("a client that only waits, without a broker", rate),),
    )


def _sides(rate: int) -> list[Side]:
    brokers = (("kernel", our_broker), ("RabbitMQ", shared(rabbitmq)))
    sides = [Side(_side(name, rate), partial(_measure, start, rate)) for name, start in brokers]
    return [
        *sides,
        Side(_side("a client that only waits, without a broker", rate), partial(_measure_alone, rate)),
    ]


def _rows(rate: int) -> list[Row]:
    return [
        *(_row(rate, figure) for figure in _FIGURES),
        _row(rate, "written_p999", ", since it was written"),
    ]


SCENARIO = Scenario(
    name="amqp_paced",
    sides=tuple(side for rate in _RATES for side in _sides(rate)),
    rows=tuple(row for rate in _RATES for row in _rows(rate)),
)
