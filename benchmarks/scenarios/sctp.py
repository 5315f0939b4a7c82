"""SCTP over UDP, ours beside usrsctp hosted the same way and aiortc's: messages a second, and round trips.

Ours with both framings: ``backend`` puts many small messages into a user message, ``plain`` sends one user
message for each, as the others do.  Our packets are as large as probing finds, up to the engine's limit and
the 65,536 bytes of the interface.  The others' are smaller, so the result of ours with packets of 1,200 bytes
is printed too.  Round trips are made with ``spin``, as in ``roundtrip_poll``; the result without it is
printed, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from benchmarks.processes import one_way, round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side, Unavailable
from benchmarks.sctp import ours, usrsctp_over_udp

COUNTS = {100: 200_000, 1024: 40_000, 65_536: 1_500}
ROUND_TRIPS = 3_000
SPIN = 300e-6
"""Seconds: longer than in ``roundtrip_poll``, because the other side takes longer."""
SMALL = 1200
SLOW = 8
"""How many times fewer messages aiortc is given, for a round to take as long."""


def _aiortc() -> ModuleType:
    try:
        from benchmarks.sctp import aiortc_transport
    except ImportError as why:
        raise Unavailable(f"{why} (make setup)") from None
    return aiortc_transport


def _ours() -> ModuleType:
    return ours


def _usrsctp() -> ModuleType:
    return usrsctp_over_udp


def _rate(size: int, peer: Callable[[], ModuleType], how: tuple[Any, ...], scale: float) -> Figures:
    side, count = peer(), int(COUNTS[size] * scale)
    return one_way(side.receive, side.send, count // (SLOW if peer is _aiortc else 1), size, *how)


def _trips(size: int, peer: Callable[[], ModuleType], how: tuple[Any, ...], scale: float) -> Figures:
    side, count = peer(), int(ROUND_TRIPS * scale)
    return round_trip(side.echo, side.ask, count // (10 if size > 10_000 else 1), size, *how)


def _sides(size: int) -> list[Side]:
    hows: tuple[tuple[str, Callable[[], ModuleType], tuple[Any, ...]], ...] = (
        ("kernel", _ours, ("backend",)),
        ("kernel, plain", _ours, ("plain",)),
        ("usrsctp", _usrsctp, ()),
        ("aiortc", _aiortc, ()),
    )
    small = ("kernel, small packets", _ours, ("backend", SMALL))
    spinning = ("kernel, threads that spin", _ours, ("backend", SPIN))
    return [
        *(
            Side(f"{name}, one way, {size} B", partial(_rate, size, peer, how))
            for name, peer, how in (*hows, small)
        ),
        *(
            Side(f"{name}, round trip, {size} B", partial(_trips, size, peer, how))
            for name, peer, how in (spinning, *hows)
        ),
    ]


def _one_way(size: int, peer: str, bar: str, *also: str) -> Row:
    return Row(
        name=f"sctp_{size}" if peer == "usrsctp" else f"sctp_{size}_{peer}",
        what=f"SCTP over UDP, one way, {size:,} B",
        figure="rate",
        unit="msg/s",
        bar=bar,
        ours=f"kernel, one way, {size} B",
        peers=(f"{peer}, one way, {size} B",),
        also=tuple(f"{name}, one way, {size} B" for name in also),
    )


def _round_trip(size: int) -> Row:
    return Row(
        name=f"sctp_roundtrip_{size}",
        what=f"SCTP over UDP, round trip, p50, {size:,} B",
        figure="p50",
        unit="µs",
        bar="<= 1.0",
        ours=f"kernel, threads that spin, round trip, {size} B",
        peers=(f"usrsctp, round trip, {size} B",),
        also=tuple(f"{name}, round trip, {size} B" for name in ("kernel", "kernel, plain", "aiortc")),
    )


OTHERS = ("kernel, plain", "kernel, small packets")

SCENARIO = Scenario(
    name="sctp",
    sides=tuple(side for size in COUNTS for side in _sides(size)),
    rows=(
        _one_way(100, "usrsctp", ">= 1.0", *OTHERS),
        _one_way(1024, "usrsctp", ">= 1.0", *OTHERS),
        _one_way(65_536, "usrsctp", ">= 1.0", *OTHERS, "aiortc"),
        _one_way(100, "aiortc", ">= 5.0"),
        _one_way(1024, "aiortc", ">= 5.0"),
        *map(_round_trip, COUNTS),
    ),
)
