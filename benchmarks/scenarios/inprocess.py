"""Two threads of one process, 100 B: a channel to a channel over one route, water marks on."""

from __future__ import annotations

from benchmarks import inprocess
from benchmarks.inprocess import measure
from benchmarks.kernels import BATCH
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side

SINGLE = "kernel, one call a message"
BATCHES = "kernel, batches"
QUEUE = "queue.SimpleQueue"
WRAPPED = "queue.SimpleQueue, a Python function around each call"
INPROC = "pyzmq inproc"


def _single(scale: float) -> Figures:
    return measure(inprocess.channel_single, int(5_000_000 * scale))


def _batch(scale: float) -> Figures:
    return measure(inprocess.channel_batch, int(30_000_000 * scale) // BATCH * BATCH)


def _queue(scale: float) -> Figures:
    return measure(inprocess.simple_queue, int(5_000_000 * scale))


def _wrapped(scale: float) -> Figures:
    return measure(inprocess.wrapped_queue, int(5_000_000 * scale))


def _inproc(scale: float) -> Figures:
    return measure(inprocess.pyzmq_inproc, int(1_500_000 * scale))


def _remarks(measured: Measured) -> list[str]:
    inproc = measured.median(INPROC, "rate")
    return [
        f"{side}: {rate / inproc:.1f} times {INPROC} (aim: at least 3)."
        for side in (SINGLE, BATCHES)
        if (rate := measured.median(side, "rate")) and inproc
    ]


SCENARIO = Scenario(
    name="inprocess",
    sides=(
        Side(SINGLE, _single),
        Side(QUEUE, _queue),
        Side(BATCHES, _batch),
        Side(WRAPPED, _wrapped),
        Side(INPROC, _inproc),
    ),
    rows=(
        Row(
            name="inprocess_single",
            what="two threads, 100 B, one call a message",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours=SINGLE,
            peers=(WRAPPED,),
            also=(QUEUE, INPROC),
        ),
        Row(
            name="inprocess_batch",
            what=f"two threads, 100 B, batches of {BATCH}, the queue one call a message",
            figure="rate",
            unit="msg/s",
            bar=">= 3.0",
            ours=BATCHES,
            peers=(WRAPPED,),
            also=(QUEUE, INPROC),
        ),
    ),
    remarks=_remarks,
)
