"""SCTP over UDP, ours beside usrsctp hosted the same way: messages a second, and round trips.

Ours in both framings: ``backend`` puts many small messages into a user message, ``plain`` sends one for each, as usrsctp does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.processes import one_way, round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side
from benchmarks.sctp import ours, usrsctp_over_udp

COUNTS = {100: 200_000, 1024: 40_000, 65_536: 1_500}
ROUND_TRIPS = 3_000


def _rate(framing: str | None, size: int, scale: float) -> Figures:
    count = int(COUNTS[size] * scale)
    if framing is None:
        return one_way(usrsctp_over_udp.receive, usrsctp_over_udp.send, count, size)
    return one_way(ours.receive, ours.send, count, size, framing)


def _trips(framing: str | None, size: int, scale: float) -> Figures:
    count = int(ROUND_TRIPS * scale) // (10 if size > 10_000 else 1)
    if framing is None:
        return round_trip(usrsctp_over_udp.echo, usrsctp_over_udp.ask, count, size)
    return round_trip(ours.echo, ours.ask, count, size, framing)


def _sides(what: str, measure: Callable[[str | None, int, float], Figures]) -> list[Side]:
    return [
        Side(f"{name}, {what}, {size} B", partial(measure, framing, size))
        for size in COUNTS
        for name, framing in (("kernel", "backend"), ("kernel, plain", "plain"), ("usrsctp", None))
    ]


def _row(size: int, what: str, figure: str) -> Row:
    rate = figure == "rate"
    return Row(
        name=f"sctp_{size}" if rate else f"sctp_roundtrip_{size}",
        what=f"SCTP over UDP, {'one way' if rate else 'round trip, p50'}, {size:,} B",
        figure=figure,
        unit="msg/s" if rate else "µs",
        bar=">= 1.0" if rate else "<= 1.0",
        ours=f"kernel, {what}, {size} B",
        peers=(f"usrsctp, {what}, {size} B",),
        also=(f"kernel, plain, {what}, {size} B",),
    )


SCENARIO = Scenario(
    name="sctp",
    sides=(*_sides("one way", _rate), *_sides("round trip", _trips)),
    rows=(
        *(_row(size, "one way", "rate") for size in COUNTS),
        *(_row(size, "round trip", "p50") for size in COUNTS),
    ),
)
