"""PGM over UDP, ours beside libzmq's epgm in C and OpenPGM through ctypes.

The rate is limited to 4 Gbit/s; the link has no loss, or loses 1 %.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.multicast.network import Command, libzmq, measure, openpgm, ours
from benchmarks.scenario import Figures, Row, Scenario, Side

COUNTS = {100: 1_000_000, 1000: 150_000}
PACE = 100_000
"""Nanoseconds between messages where latency is measured: 10,000 a second."""
FANOUT = (1, 3, 10)

Make = Callable[[int, int, int], Command]


def _flood(make: Make, size: int, loss: float = 0.0, receivers: int = 1) -> Callable[[float], Figures]:
    def run(scale: float) -> Figures:
        count = int(COUNTS[size] * scale) // 1000 * 1000
        return measure(make(count, size, 0), receivers, loss)

    return run


def _paced(make: Make) -> Callable[[float], Figures]:
    def run(scale: float) -> Figures:
        return measure(make(int(20_000 * scale), 100, PACE))

    return run


def _rate(name: str, what: str, bar: str, side: str, peer: str = "libzmq") -> Row:
    return Row(
        name=name,
        what=what,
        figure="rate",
        unit="msg/s",
        bar=bar,
        ours=f"kernel, {side}",
        peers=(f"{peer}, {side}",),
    )


def _latency(name: str, figure: str) -> Row:
    return Row(
        name=name,
        what=f"PGM, one way at 10,000 a second, 100 B, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 1.0",
        ours="kernel, paced",
        peers=("libzmq, paced",),
    )


def _cost(receivers: int) -> Row:
    return Row(
        name=f"pgm_fanout_{receivers}",
        what=f"PGM, 1000 B, {receivers} receivers: the sender's processor time a message, as for one",
        figure="sender_us",
        unit="µs",
        bar="<= 1.3",
        ours=f"kernel, to {receivers}",
        peers=("kernel, to 1",),
    )


SCENARIO = Scenario(
    name="pgm",
    sides=(
        *(
            Side(f"{name}, {size} B{', 1 % lost' if loss else ''}", _flood(make, size, loss))
            for size in COUNTS
            for loss in (0.0, 1.0)
            for name, make in (("kernel", ours), ("libzmq", libzmq), ("OpenPGM", openpgm))
        ),
        Side("kernel, paced", _paced(ours)),
        Side("libzmq, paced", _paced(libzmq)),
        *(Side(f"kernel, to {receivers}", _flood(ours, 1000, 0.0, receivers)) for receivers in FANOUT),
    ),
    rows=(
        *(
            _rate(f"pgm_{size}B", f"PGM over UDP, {size} B, 4 Gbit/s allowed", ">= 1.0", f"{size} B")
            for size in COUNTS
        ),
        *(
            _rate(f"pgm_{size}B_loss", f"PGM over UDP, {size} B, 1 % lost", ">= 2.0", f"{size} B, 1 % lost")
            for size in COUNTS
        ),
        *(
            _rate(
                f"pgm_{size}B{'_loss' if loss else ''}_openpgm",
                f"PGM over UDP, {size} B, {'1 % lost' if loss else '4 Gbit/s allowed'}",
                ">= 1.0",
                f"{size} B{loss}",
                "OpenPGM",
            )
            for size in COUNTS
            for loss in ("", ", 1 % lost")
        ),
        _latency("pgm_latency_p50", "p50"),
        _latency("pgm_latency_p99", "p99"),
        *(_cost(receivers) for receivers in FANOUT[1:]),
    ),
)
