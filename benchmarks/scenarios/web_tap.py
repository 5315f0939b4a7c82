"""A tap on a fast feed: what it costs the process that receives the feed, with the work of the tap itself.

The feed is that of ``oneway_batch``: 100 B, batches, from another process.  One tap shows all that it can, the other
looks for a text that no body contains.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from benchmarks import kernels
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side
from kernel.contracts.errors import KernelClosed
from kernel.topology.system import Kernel
from kernel.topology.tap import TapWanted

SIZE = 100
COUNT = 4_000_000
WITHOUT, SHOWING, SEARCHING = "no tap", "a tap that shows", "a tap that searches"


def receive(link: Connection, count: int, wanted: dict[str, Any] | None) -> None:
    """Receive the feed; say the rate, and the processor time of this process for a million messages."""
    with kernels.listening() as kernel:
        app = kernel.open("app")
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        stop = threading.Event()
        shown: list[int] = []
        watching = threading.Thread(target=partial(_watch, kernel, wanted, stop, shown))
        first = received = len(app.receive_many())
        watching.start()
        start, cpu = time.perf_counter(), time.process_time()
        while received < count:
            received += len(app.receive_many())
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        stop.set()
        watching.join()
        link.send(
            {"rate": (received - first) / seconds, "cpu": cpu / (received - first) * 1e9, "shown": sum(shown)}
        )
        link.recv()


def _watch(kernel: Kernel, wanted: dict[str, Any] | None, stop: threading.Event, shown: list[int]) -> None:
    """Do what the control socket does for a watcher, but for the socket."""
    if wanted is None:
        return
    tap = kernel.tap(TapWanted(source="link", **wanted))
    try:
        while not stop.is_set():
            rows = tap.read(0.25)
            shown.append(len(rows))
            for row in rows:
                msgspec.json.encode(row)
    except KernelClosed:
        return
    finally:
        tap.close()


def _measure(wanted: dict[str, Any] | None, scale: float) -> Figures:
    count = int(COUNT * scale) // kernels.BATCH * kernels.BATCH
    with Child(receive, count, wanted) as receiver:
        address = receiver.hear()
        with Child(kernels.send_batch, address, count, SIZE) as sender:
            figures: Figures = receiver.hear(sender)
            sender.say("done")
        receiver.say("done")
    return figures


def _remarks(measured: Measured) -> list[str]:
    shown = measured.median(SHOWING, "shown")
    return (
        []
        if shown is None
        else [f"the tap that shows has shown {shown:,.0f} of {COUNT:,} messages; the others are counted"]
    )


def _row(name: str, ours: str, figure: str, unit: str, bar: str) -> Row:
    return Row(
        name=name,
        what=f"a feed of {SIZE} B in batches, with {ours} and with none",
        figure=figure,
        unit=unit,
        bar=bar,
        ours=ours,
        peers=(WITHOUT,),
    )


SCENARIO = Scenario(
    name="web_tap",
    sides=(
        Side(WITHOUT, partial(_measure, None)),
        Side(SHOWING, partial(_measure, {})),
        Side(SEARCHING, partial(_measure, {"contains": "not there"})),
    ),
    rows=(
        _row("web_tap_cpu", SHOWING, "cpu", "ms for a million messages", "<= 1.1"),
        _row("web_tap_rate", SHOWING, "rate", "msg/s", ">= 0.9"),
        _row("web_tap_search_cpu", SEARCHING, "cpu", "ms for a million messages", "<= 1.1"),
    ),
    remarks=_remarks,
)
