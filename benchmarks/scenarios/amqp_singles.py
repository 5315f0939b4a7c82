"""One message at a time through a broker: a request, a confirm, basic.get, a dead letter.

And a stream of messages that a consumer rejects one by one, as a client library's callback does.
"""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import singles
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child, percentiles
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNT = 4000
STREAM = 20_000
PREFETCH = 100
_WHAT = {
    "rpc": ("a request over direct reply-to and its answer", "<= 0.667"),
    "confirm": ("a message published and confirmed", "<= 0.667"),
    "get": ("basic.get without acknowledgement", "<= 0.667"),
    "dead_letter": ("a message rejected, and received as dead letter", "<= 0.5"),
}


def _measure(start: StartBroker, kind: str, scale: float) -> Figures:
    count = int(COUNT * scale)
    with start() as broker, Child(singles.one_by_one, broker.address, kind, count) as client:
        before = broker.processor_seconds()
        figures = percentiles(client.hear())
        return {**figures, "cost": (broker.processor_seconds() - before) / count * 1e6}


def _measure_stream(start: StartBroker, scale: float) -> Figures:
    count = int(STREAM * scale)
    with start() as broker, Child(singles.reject_stream, broker.address, PREFETCH, count) as client:
        before = broker.processor_seconds()
        rate = client.hear()
        return {"rate": rate, "cost": (broker.processor_seconds() - before) / count * 1e6}


def _side(broker: str, kind: str) -> str:
    return f"{broker}, {kind.replace('_', ' ')}"


def _row(kind: str) -> Row:
    what, bar = _WHAT[kind]
    return Row(
        name=f"amqp_single_{kind}",
        what=f"{what}, one by one, 100 B, bare client, default settings, p50",
        figure="p50",
        unit="µs",
        bar=bar,
        ours=_side("kernel", kind),
        peers=(_side("RabbitMQ", kind),),
    )


_STREAM_ROW = Row(
    name="amqp_dead_letters",
    what=f"messages rejected one by one, prefetch {PREFETCH}, received as dead letters, 100 B, bare client",
    figure="rate",
    unit="msg/s",
    bar=">= 2.0",
    ours=_side("kernel", "rejects"),
    peers=(_side("RabbitMQ", "rejects"),),
)
_BROKERS: dict[str, StartBroker] = {"kernel": our_broker, "RabbitMQ": shared(rabbitmq)}

SCENARIO = Scenario(
    name="amqp_singles",
    sides=(
        *(
            Side(_side(name, kind), partial(_measure, start, kind))
            for kind in singles.KINDS
            for name, start in _BROKERS.items()
        ),
        *(Side(_side(name, "rejects"), partial(_measure_stream, start)) for name, start in _BROKERS.items()),
    ),
    rows=(*map(_row, singles.KINDS), _STREAM_ROW),
)
