"""A broker's processor time for a message when each has a key that was never there before, and never comes again."""

from __future__ import annotations

from functools import partial

from benchmarks.amqp import flood
from benchmarks.amqp.brokers import our_broker
from benchmarks.amqp.pairs import StartBroker, shared
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side

OURS = 400_000
THEIRS = 30_000

_FEEDS = {
    "": flood.Feed(("quotes.*",), "quotes.{at:08}", 100, 100),
    "_sizes": flood.Feed(("quotes.*",), "quotes.{at}", 60, 139),
    "_1000": flood.Feed(
        tuple(f"quotes.market{at}.*" for at in range(1000)), "quotes.market{binding}.{at}", 60, 139
    ),
}
_WHAT = {
    "": "100 B, one binding",
    "_sizes": "keys of 8 to 13 B, bodies of 60 to 139 B, one binding",
    "_1000": "bodies of 60 to 139 B, 1,000 bindings",
}
_AIM = "the aim: 1.2 µs"


def _measure(start: StartBroker, feed: flood.Feed, count: int, scale: float) -> Figures:
    with (
        start() as broker,
        Child(flood.new_keys, broker.address, feed, int(count * scale)) as client,
    ):
        client.hear()
        before = broker.processor_seconds()
        client.say("go")
        count = client.hear()
        return {"cost": (broker.processor_seconds() - before) / count * 1e6}


def _row(name: str, suffix: str, bar: str, peer: str) -> Row:
    return Row(
        name=f"amqp_new_keys{name}",
        what=f"the broker's processor time a message, each under a key of its own, {_WHAT[suffix]}",
        figure="cost",
        unit="µs",
        bar=bar,
        ours=f"kernel{suffix}",
        peers=(peer,),
    )


SCENARIO = Scenario(
    name="amqp_new_keys",
    sides=(
        *(
            Side(f"{name}{suffix}", partial(_measure, start, feed, count))
            for suffix, feed in _FEEDS.items()
            for name, start, count in (("kernel", our_broker, OURS), ("RabbitMQ", shared(rabbitmq), THEIRS))
        ),
        Side(_AIM, lambda scale: {"cost": 1.2}),
    ),
    rows=(
        *(_row(suffix, suffix, "<= 1.0", _AIM) for suffix in _FEEDS),
        *(_row(f"{suffix}_rabbitmq", suffix, "<= 0.2", f"RabbitMQ{suffix}") for suffix in _FEEDS),
    ),
)
