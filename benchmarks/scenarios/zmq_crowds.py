"""Many peers and many subscriptions of sockets of ØMQ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.kernels import BATCH
from benchmarks.peers import bare_zmtp, our_sockets, pyzmq_sockets
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side

SIZE = 100
SUBSCRIBERS, TOPICS = 100, 10
MESSAGES = 200_000
MANY = 10_000
VISITS, IDLE = 3000, 1000
_AIM = "the aim"
_FIGURES = {"cost": 0.15, "rate": 1000.0}


def _bodies(topics: int) -> list[bytes]:
    return [b"topic.%05d." % number + b"x" * (SIZE - 12) for number in range(topics)]


def _published(
    publish: Callable[..., Any], bodies: list[bytes], prefixes: Sequence[Sequence[bytes]], readers: int
) -> Callable[[float], Figures]:
    """Measure a publisher; ``readers``: how many get each message."""

    def measure(scale: float) -> Figures:
        count = int(MESSAGES * scale) // BATCH * BATCH
        with Child(publish, bodies, count, len(prefixes)) as publisher:
            place = publisher.hear()
            with Child(bare_zmtp.subscribe, place, prefixes, SIZE, count * readers) as subscribers:
                subscribers.hear(publisher)
                publisher.say("go")
                subscribers.hear(publisher)
                publisher.say("all is there")
                return {"cost": publisher.hear() / (count * readers) * 1e6}

    return measure


def _hundred(publish: Callable[..., Any]) -> Callable[[float], Figures]:
    bodies = _bodies(TOPICS)
    prefixes = [[bodies[number % TOPICS][:12]] for number in range(SUBSCRIBERS)]
    return _published(publish, bodies, prefixes, SUBSCRIBERS // TOPICS)


def _subscriptions(number: int) -> Callable[[float], Figures]:
    bodies = _bodies(number)
    return _published(our_sockets.publish, bodies, [[body[:12] for body in bodies]], 1)


def _connects(listen: Callable[..., Any], scale: float) -> Figures:
    count = int(VISITS * scale)
    with Child(listen) as listener, Child(bare_zmtp.come_and_go, listener.hear(), count) as visitors:
        visitors.hear(listener)
        visitors.say("go")
        return {"rate": count / visitors.hear(listener)}


def _idle(listen: Callable[..., Any], scale: float) -> Figures:
    count = int(IDLE * scale)
    with Child(listen, count) as listener:
        place = listener.hear()
        with Child(bare_zmtp.stay, place, bare_zmtp.AT_A_TIME) as first:
            # Whatever the first ones bring along.
            first.hear(listener)
            listener.say("memory")
            before = listener.hear()
            with Child(bare_zmtp.stay, place, count) as others:
                others.hear(listener)
                listener.say("memory")
                return {"memory": (listener.hear() - before) / count}


def _remarks(measured: Measured) -> list[str]:
    found = {name: measured.median(f"{name}, idle peers", "memory") for name in ("kernel.sockets", "pyzmq")}
    return [
        f"An idle peer of ØMQ takes {memory / 1024:.1f} KiB of memory with {name}."
        for name, memory in found.items()
        if memory
    ]


def _row(
    name: str, what: str, figure: str, unit: str, bar: str, ours: str, *peers: str, also: str = ""
) -> Row:
    return Row(
        name=f"zmq_{name}",
        what=what,
        figure=figure,
        unit=unit,
        bar=bar,
        ours=ours,
        peers=peers,
        also=(also,) if also else (),
    )


_FEW_SIDE, _MANY_SIDE = "kernel.sockets, 10 subscriptions", f"kernel.sockets, {MANY:,} subscriptions"
_PUB, _CONNECTS = "PUB to 100", "connects"

SCENARIO = Scenario(
    name="zmq_crowds",
    sides=(
        Side(f"kernel.sockets, {_PUB}", _hundred(our_sockets.publish)),
        Side(f"pyzmq, {_PUB}", _hundred(pyzmq_sockets.publish)),
        Side(_FEW_SIDE, _subscriptions(10)),
        Side(_MANY_SIDE, _subscriptions(MANY)),
        Side(f"kernel.sockets, {_CONNECTS}", partial(_connects, our_sockets.listen)),
        Side(f"pyzmq, {_CONNECTS}", partial(_connects, pyzmq_sockets.listen)),
        Side("kernel.sockets, idle peers", partial(_idle, our_sockets.listen)),
        Side("pyzmq, idle peers", partial(_idle, pyzmq_sockets.listen)),
        Side(_AIM, lambda scale: _FIGURES),
    ),
    rows=(
        _row(
            "pub_100_cost",
            f"PUB to {SUBSCRIBERS} subscribers with {TOPICS} prefixes, {SIZE} B, batches of {BATCH}: processor time a delivery",
            "cost",
            "µs",
            "<= 1.0",
            f"kernel.sockets, {_PUB}",
            _AIM,
            also=f"pyzmq, {_PUB}",
        ),
        _row(
            "subscriptions_10k",
            f"PUB to a subscriber with {MANY:,} subscriptions instead of 10: processor time a message",
            "cost",
            "µs",
            "<= 1.2",
            _MANY_SIDE,
            _FEW_SIDE,
        ),
        _row(
            "connects",
            f"peers of ØMQ that connect and disconnect, {bare_zmtp.AT_A_TIME} at a time",
            "rate",
            "1/s",
            ">= 1.0",
            f"kernel.sockets, {_CONNECTS}",
            _AIM,
            also=f"pyzmq, {_CONNECTS}",
        ),
    ),
    remarks=_remarks,
)
