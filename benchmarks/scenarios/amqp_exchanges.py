"""A broker's processor time for a delivery: to one, ten, a hundred queues; among ten and 10,000 bindings."""

from __future__ import annotations

import time
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.amqp import flood
from benchmarks.amqp.brokers import our_broker
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side
from kernel.contracts.message import Envelope
from plugins.engines.broker.broker import Broker

DELIVERIES = 1_500_000
TOPIC_DELIVERIES = 300_000
TURN = 100
"""Messages in one block to the fan-out."""
KEYS = 500
"""Keys in one block to the topic exchange, under which one message each is published."""
LOOK_UPS = 10_000
AGAIN = ", once more"


def fan_out(queues: int) -> flood.Exchange:
    """Every queue gets every message."""
    bindings = tuple((f"queue-{at:03}", "") for at in range(queues))
    return flood.Exchange("fanout", bindings, ("quotes",) * TURN, TURN * queues)


def topics(bindings: int) -> flood.Exchange:
    """One queue; each key matches one of the bindings."""
    patterns = tuple(("queue", _pattern(at)) for at in range(bindings))
    return flood.Exchange("topic", patterns, tuple(_key(at, bindings) for at in range(KEYS)), KEYS)


def _pattern(at: int) -> str:
    return f"quotes.market{at}.*"


def _key(at: int, bindings: int) -> str:
    return f"quotes.market{at * 17 % bindings}.share{at:04}"


def look_up(link: Connection, bindings: int) -> None:
    """Send the nanoseconds of processor time that it takes to find the queues for a new key."""
    broker = Broker()
    vhost = broker.vhost("/")
    queue = vhost.declare_queue("queue", None, 0.0)
    for at in range(bindings):
        vhost.bind("amq.topic", queue, _pattern(at))
    envelopes = [Envelope(exchange="amq.topic", key=_key(at, bindings)) for at in range(LOOK_UPS)]
    find = vhost.routes.find
    start = time.thread_time_ns()
    for envelope in envelopes:
        find(envelope)
    link.send((time.thread_time_ns() - start) / LOOK_UPS)


def _measure(flow: flood.Exchange, deliveries: int, scale: float) -> Figures:
    with (
        our_broker() as broker,
        Child(flood.one_exchange, broker.address, flow, int(deliveries * scale)) as client,
    ):
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        count = client.hear()
        return {"cost": (broker.processor_seconds() - before) / count * 1e9}


def _look_up(bindings: int, scale: float) -> Figures:
    with Child(look_up, bindings) as child:
        return {"new": child.hear()}


def _queues(count: int) -> str:
    return f"{count} queue{'s' if count > 1 else ''}"


def _bindings(count: int) -> str:
    return f"{count:,} bindings"


def _row(name: str, what: str, figure: str, side: str, peer: str) -> Row:
    return Row(
        name=f"amqp_{name}", what=what, figure=figure, unit="ns", bar="<= 1.2", ours=side, peers=(peer,)
    )


def _fan_out_row(count: int) -> Row:
    what = f"broker's processor time a delivery when a message goes to {_queues(count)}"
    return _row(f"fanout_{count}", what, "cost", _queues(count), _queues(1) + AGAIN * (count == 1))


_TOPIC = "broker's processor time a delivery, topic exchange, 500 keys in turn, 10,000 bindings"
_MATCH = "look-up of a key never seen before among 10,000 bindings of a topic exchange"
_LOOK_UP = "look-up, "

SCENARIO = Scenario(
    name="amqp_exchanges",
    sides=(
        *(Side(_queues(count), partial(_measure, fan_out(count), DELIVERIES)) for count in (1, 10, 100)),
        Side(_queues(1) + AGAIN, partial(_measure, fan_out(1), DELIVERIES)),
        *(
            Side(_bindings(count), partial(_measure, topics(count), TOPIC_DELIVERIES))
            for count in (10, 10_000)
        ),
        *(Side(_LOOK_UP + _bindings(count), partial(_look_up, count)) for count in (10, 10_000)),
    ),
    rows=(
        *(_fan_out_row(count) for count in (1, 10, 100)),
        _row("topic_10000", _TOPIC, "cost", _bindings(10_000), _bindings(10)),
        _row("match_10000", _MATCH, "new", _LOOK_UP + _bindings(10_000), _LOOK_UP + _bindings(10)),
    ),
)
