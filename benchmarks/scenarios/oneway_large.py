"""One way, large messages, where copies are what counts; and the share of what bare sockets can do."""

from __future__ import annotations

from functools import partial

from benchmarks import kernels
from benchmarks.peers import bare_sockets, pyzmq_sockets
from benchmarks.processes import one_way
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side

# size -> (name, messages)
_SIZES = {65_536: ("64KiB", 30_000), 1_048_576: ("1MiB", 3_000)}


def _ours(count: int, size: int, scale: float) -> Figures:
    return one_way(kernels.receive_single, kernels.send_single, int(count * scale), size)


def _pyzmq(count: int, size: int, copy: bool, scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive, pyzmq_sockets.send, int(count * scale), size, copy)


def _bare(count: int, size: int, scale: float) -> Figures:
    return one_way(bare_sockets.receive, bare_sockets.send, int(count * scale), size)


def _sides() -> list[Side]:
    sides = []
    for size, (name, count) in _SIZES.items():
        sides.append(Side(f"kernel, {name}", partial(_ours, count, size)))
        sides.append(Side(f"pyzmq, copy, {name}", partial(_pyzmq, count, size, True)))
        sides.append(Side(f"pyzmq, no copy, {name}", partial(_pyzmq, count, size, False)))
        sides.append(Side(f"bare socket loop, {name}", partial(_bare, count, size)))
    return sides


def _row(name: str) -> Row:
    return Row(
        name=f"oneway_{name}",
        what=f"one way, {name}, one call a message on both sides",
        figure="rate",
        unit="msg/s",
        bar=">= 1.2",
        ours=f"kernel, {name}",
        peers=(f"pyzmq, copy, {name}", f"pyzmq, no copy, {name}"),
        also=(f"bare socket loop, {name}",),
    )


def _remarks(measured: Measured) -> list[str]:
    remarks = []
    for name, _ in _SIZES.values():
        ours = measured.median(f"kernel, {name}", "rate")
        bare = measured.median(f"bare socket loop, {name}", "rate")
        if ours and bare:
            remarks.append(f"{name}: {ours / bare:.2f} of a bare Python socket loop (aim: at least 0.8).")
    return remarks


SCENARIO = Scenario(
    name="oneway_large",
    sides=tuple(_sides()),
    rows=tuple(_row(name) for name, _ in _SIZES.values()),
    remarks=_remarks,
)
