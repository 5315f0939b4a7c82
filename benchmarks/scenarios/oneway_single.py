"""One way, one call a message on both sides: small messages, where the cost of a call is what counts."""

from __future__ import annotations

from functools import partial

from benchmarks import kernels
from benchmarks.peers import pyzmq_sockets
from benchmarks.processes import one_way
from benchmarks.scenario import Figures, Row, Scenario, Side

# size -> (name, messages of ours, of pyzmq's), so that a run takes one to two seconds each
_SIZES = {
    1: ("1B", 3_000_000, 1_500_000),
    100: ("100B", 3_000_000, 1_500_000),
    1024: ("1KiB", 1_200_000, 600_000),
}


def _ours(count: int, size: int, scale: float) -> Figures:
    return one_way(kernels.receive_single, kernels.send_single, int(count * scale), size)


def _pyzmq(count: int, size: int, copy: bool, scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive, pyzmq_sockets.send, int(count * scale), size, copy)


def _sides() -> list[Side]:
    sides = []
    for size, (name, ours, theirs) in _SIZES.items():
        sides.append(Side(f"kernel, {name}", partial(_ours, ours, size)))
        sides.append(Side(f"pyzmq, copy, {name}", partial(_pyzmq, theirs, size, True)))
        sides.append(Side(f"pyzmq, no copy, {name}", partial(_pyzmq, theirs // 2, size, False)))
    return sides


def _row(name: str) -> Row:
    return Row(
        name=f"oneway_{name}_single",
        what=f"one way, {name}, one call a message on both sides",
        figure="rate",
        unit="msg/s",
        bar=">= 2.0",
        ours=f"kernel, {name}",
        peers=(f"pyzmq, copy, {name}", f"pyzmq, no copy, {name}"),
    )


SCENARIO = Scenario(
    name="oneway_single",
    sides=tuple(_sides()),
    rows=tuple(_row(name) for name, _, _ in _SIZES.values()),
)
