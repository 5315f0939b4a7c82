"""One way, 100 B, batch calls on both sides; pyzmq and libzmq have none, they get one call a message."""

from __future__ import annotations

from benchmarks import kernels
from benchmarks.peers import libzmq_c, pyzmq_sockets
from benchmarks.processes import one_way
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 100


def _ours(scale: float) -> Figures:
    return one_way(kernels.receive_batch, kernels.send_batch, _count(8_000_000, scale), SIZE)


def _pyzmq_copy(scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive, pyzmq_sockets.send, _count(1_500_000, scale), SIZE, True)


def _pyzmq_no_copy(scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive, pyzmq_sockets.send, _count(750_000, scale), SIZE, False)


def _libzmq_c(scale: float) -> Figures:
    return libzmq_c.throughput(_count(5_000_000, scale), SIZE)


def _count(count: int, scale: float) -> int:
    return int(count * scale) // kernels.BATCH * kernels.BATCH


def _row(name: str, bar: str, *peers: str) -> Row:
    return Row(
        name=name,
        what=f"one way, {SIZE} B, batches of {kernels.BATCH}",
        figure="rate",
        unit="msg/s",
        bar=bar,
        ours="kernel",
        peers=peers,
    )


SCENARIO = Scenario(
    name="oneway_batch",
    sides=(
        Side("kernel", _ours),
        Side("pyzmq, copy", _pyzmq_copy),
        Side("pyzmq, no copy", _pyzmq_no_copy),
        Side("libzmq in C", _libzmq_c),
    ),
    rows=(
        _row("oneway_100B_batch", ">= 4.0", "pyzmq, copy", "pyzmq, no copy"),
        _row("oneway_100B_batch_libzmq_c", ">= 1.0", "libzmq in C"),
    ),
)
