"""There and back, 64 B, in x-mode on both sides, beside blocking sockets with nothing around them."""

from __future__ import annotations

from benchmarks import xmode
from benchmarks.peers import bare_sockets
from benchmarks.processes import round_trip
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 64
COUNT = 50_000


def _ours(scale: float) -> Figures:
    return round_trip(xmode.echo, xmode.ask, int(COUNT * scale), SIZE)


def _bare(scale: float) -> Figures:
    return round_trip(bare_sockets.echo, bare_sockets.ask, int(COUNT * scale), SIZE)


def _row(figure: str) -> Row:
    return Row(
        name=f"roundtrip_64B_xmode_{figure}",
        what=f"round trip, {SIZE} B, x-mode on both sides, {figure}",
        figure=figure,
        unit="µs",
        bar="<= 1.25",
        ours="kernel, x-mode",
        peers=("bare blocking sockets",),
    )


SCENARIO = Scenario(
    name="roundtrip_xmode",
    sides=(Side("kernel, x-mode", _ours), Side("bare blocking sockets", _bare)),
    rows=(_row("p50"), _row("p99")),
)
