"""Sockets of ØMQ for applications: ``kernel.sockets`` beside pyzmq, with the same calls, and with its batch calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.kernels import BATCH
from benchmarks.peers import libzmq_c, our_sockets, pyzmq_sockets
from benchmarks.processes import Child, one_way, round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 100
SPIN = 60e-6
SINGLE, MANY, CURVE, TRIPS, PUBLISHED = 1_000_000, 5_000_000, 500_000, 5_000, 1_000_000


def _single(scale: float) -> Figures:
    return one_way(our_sockets.receive, our_sockets.send, int(SINGLE * scale), SIZE)


def _many(scale: float) -> Figures:
    count = int(MANY * scale) // BATCH * BATCH
    figures = one_way(our_sockets.receive_many, our_sockets.send_many, count, SIZE)
    return {"batch_rate": figures["rate"]}


def _pyzmq(scale: float) -> Figures:
    figures = one_way(pyzmq_sockets.receive, pyzmq_sockets.send, int(SINGLE * scale), SIZE, True)
    return {**figures, "batch_rate": figures["rate"]}


def _libzmq(scale: float) -> Figures:
    return {"batch_rate": libzmq_c.throughput(int(MANY * scale), SIZE)["rate"]}


def _curve(scale: float) -> Figures:
    keys = our_sockets.keys_of(*pyzmq_sockets.new_keys())
    figures = one_way(our_sockets.receive, our_sockets.send, int(CURVE * scale), SIZE, keys)
    return {"curve_rate": figures["rate"]}


def _pyzmq_curve(scale: float) -> Figures:
    keys = pyzmq_sockets.new_keys()
    figures = one_way(pyzmq_sockets.receive, pyzmq_sockets.send, int(CURVE * scale), SIZE, True, keys)
    return {"curve_rate": figures["rate"]}


def _publish(subscribers: int, scale: float) -> Figures:
    """Return the rate of the slowest subscriber."""
    count = int(PUBLISHED * scale) // subscribers
    with ExitStack() as stack:
        publisher = stack.enter_context(Child(pyzmq_sockets.publish_alike, count, SIZE, subscribers))
        place = publisher.hear()
        others = [
            stack.enter_context(Child(pyzmq_sockets.subscribe, place, count)) for _ in range(subscribers)
        ]
        return {f"rate_{subscribers}": min(other.hear(publisher) for other in others)}


def _on_ours(measure: Callable[[float], Figures], scale: float) -> Figures:
    with pyzmq_sockets.on_our_backend():
        return measure(scale)


def _single_pyzmq(scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive, pyzmq_sockets.send, int(SINGLE * scale), SIZE, True)


def _trips(scale: float) -> Figures:
    return round_trip(our_sockets.echo, our_sockets.ask, int(TRIPS * scale), SIZE)


def _spinning_trips(scale: float) -> Figures:
    return round_trip(our_sockets.echo, our_sockets.ask, int(TRIPS * scale), SIZE, SPIN)


def _pyzmq_trips(scale: float) -> Figures:
    return round_trip(pyzmq_sockets.echo, pyzmq_sockets.ask, int(TRIPS * scale), SIZE)


SCENARIO = Scenario(
    name="zmq_sockets",
    sides=(
        Side("kernel.sockets", _single),
        Side("kernel.sockets, batches", _many),
        Side("kernel.sockets REQ/REP", _trips),
        Side("kernel.sockets REQ/REP, spin", _spinning_trips),
        Side("kernel.sockets, CURVE", _curve),
        Side("pyzmq", _pyzmq),
        Side("pyzmq, CURVE", _pyzmq_curve),
        Side("pyzmq REQ/REP", _pyzmq_trips),
        Side("libzmq in C", _libzmq),
        Side("pyzmq on our backend", partial(_on_ours, _single_pyzmq)),
        Side("pyzmq on our backend REQ/REP", partial(_on_ours, _pyzmq_trips)),
        Side("pyzmq on our backend, PUB to 1", partial(_on_ours, partial(_publish, 1))),
        Side("pyzmq, PUB to 1", partial(_publish, 1)),
        Side("pyzmq on our backend, PUB to 10", partial(_on_ours, partial(_publish, 10))),
        Side("pyzmq, PUB to 10", partial(_publish, 10)),
    ),
    rows=(
        Row(
            name="zmq_oneway_100B",
            what=f"sockets of ØMQ, one way, {SIZE} B, one call a message",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours="kernel.sockets",
            peers=("pyzmq",),
        ),
        Row(
            name="zmq_oneway_100B_backend",
            what=f"a program of pyzmq on our backend, one way, {SIZE} B, one call a message",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours="pyzmq on our backend",
            peers=("pyzmq",),
        ),
        *(
            Row(
                name=f"zmq_pubsub_{count}",
                what=f"a program of pyzmq on our backend, PUB to SUB, {SIZE} B, one call a message; subscribers: {count}",
                figure=f"rate_{count}",
                unit="msg/s",
                bar=">= 1.0",
                ours=f"pyzmq on our backend, PUB to {count}",
                peers=(f"pyzmq, PUB to {count}",),
            )
            for count in (1, 10)
        ),
        Row(
            name="zmq_oneway_100B_batch",
            what=f"sockets of ØMQ, one way, {SIZE} B, batches of {BATCH}; pyzmq has one call a message",
            figure="batch_rate",
            unit="msg/s",
            bar=">= 4.0",
            ours="kernel.sockets, batches",
            peers=("pyzmq",),
            also=("libzmq in C",),
        ),
        Row(
            name="zmq_oneway_100B_batch_libzmq_c",
            what=f"sockets of ØMQ, one way, {SIZE} B, batches of {BATCH}; libzmq in C has one call a message",
            figure="batch_rate",
            unit="msg/s",
            bar=">= 1.0",
            ours="kernel.sockets, batches",
            peers=("libzmq in C",),
        ),
        Row(
            name="zmq_oneway_100B_curve",
            what=f"sockets of ØMQ, one way, {SIZE} B, encrypted with CURVE, one call a message",
            figure="curve_rate",
            unit="msg/s",
            bar=">= 0.5",
            ours="kernel.sockets, CURVE",
            peers=("pyzmq, CURVE",),
        ),
        Row(
            name="zmq_roundtrip_100B_p50",
            what=f"sockets of ØMQ, REQ and REP, {SIZE} B, p50",
            figure="p50",
            unit="µs",
            bar="<= 1.0",
            ours="kernel.sockets REQ/REP",
            peers=("pyzmq REQ/REP",),
        ),
        Row(
            name="zmq_roundtrip_100B_spin_p50",
            what=f"sockets of ØMQ, REQ and REP, {SIZE} B, p50, with spin",
            figure="p50",
            unit="µs",
            bar="<= 1.0",
            ours="kernel.sockets REQ/REP, spin",
            peers=("pyzmq REQ/REP",),
        ),
        Row(
            name="zmq_roundtrip_100B_backend_p50",
            what=f"a program of pyzmq on our backend, REQ and REP, {SIZE} B, p50",
            figure="p50",
            unit="µs",
            bar="<= 1.0",
            ours="pyzmq on our backend REQ/REP",
            peers=("pyzmq REQ/REP",),
        ),
    ),
)
