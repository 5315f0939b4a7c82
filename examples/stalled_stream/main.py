"""Four feeds over one connection; the destination of one of them takes nothing for a while.

    python examples/stalled_stream/main.py [PLOT.svg]

Over TCP all four wait, because a TCP connection is one queue.  Over SCTP each feed has its own stream, and
the three others are not delayed.  The two topologies differ only in their addresses.
"""

from __future__ import annotations

import os
import statistics
import struct
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep

from kernel import EnginePlan, Kernel, Plan, RoutePlan, WaterMarks
from kernel.contracts.errors import KernelError, WouldBlock

PHASE = float(os.environ.get("PHASE", "2.0"))
"""Seconds of each of three phases: without, with, and again without a stall."""
INTERVAL = 0.005
HEALTHY = ("1", "2", "3")
STAMP = struct.Struct("d")
LARGE = bytes(10_000)
PLACES = {"TCP": "backend+tcp://127.0.0.1:0", "SCTP": "backend+sctp://127.0.0.1:0/0"}

Points = list[tuple[float, float]]
"""When a message was due, in seconds from the start, and how long it took from then on."""


def route(source: str, target: str, key: str = "") -> RoutePlan:
    marks = WaterMarks(high=100, stall_timeout=10 * PHASE)
    return RoutePlan(source=source, targets=(target,), match=(key,) if key else (), marks=marks)


def link(address: str, mode: str) -> EnginePlan:
    return EnginePlan(name="link", kind="stream", options={"address": address, "mode": mode})


class Trial:
    """Two kernels, and a thread for each feed at each end."""

    def __init__(self, place: str) -> None:
        feeds = ("0", *HEALTHY)
        self.points: Points = []
        self._started = self._over = 0.0
        self._stalled = threading.Event()
        self._there = Kernel(
            Plan(
                engines=(link(place, "listen"),),
                routes=tuple(route("link", f"to {key}", key) for key in feeds),
            )
        )
        self._there.start()
        self._there.wait_running()
        address = f"{place.partition('://')[0]}://{self._there.address_of('link')}"
        self._here = Kernel(
            Plan(
                engines=(link(address, "dial"),), routes=tuple(route(f"feed {key}", "link") for key in feeds)
            )
        )
        self._here.start()

    def run(self) -> Points:
        """Send messages for three phases; return the times of the healthy feeds."""
        self._started = monotonic() + 0.5
        self._over = self._started + 3 * PHASE
        jobs: list[Callable[[], None]] = [self._send_large, self._take_large]
        jobs += [lambda key=key: self._send_stamps(key) for key in HEALTHY]  # type: ignore[misc]
        jobs += [lambda key=key: self._take_stamps(key) for key in HEALTHY]  # type: ignore[misc]
        threads = [threading.Thread(target=job) for job in jobs]
        for thread in threads:
            thread.start()
        sleep(self._started + PHASE - monotonic())
        self._stalled.set()
        sleep(self._started + 2 * PHASE - monotonic())
        self._stalled.clear()
        for thread in threads:
            thread.join()
        for kernel in (self._here, self._there):
            kernel.close(linger=0)
            kernel.join()
        return sorted(self.points)

    def _send_stamps(self, key: str) -> None:
        with self._here.open(f"feed {key}") as feed:
            due = self._started
            while due < self._over:
                sleep(max(0.0, due - monotonic()))
                feed.send(STAMP.pack(due), key=key)
                due += INTERVAL
            feed.send(b"end", key=key)
            sleep(0.5)  # for the last ones to be on their way

    def _take_stamps(self, key: str) -> None:
        with self._there.open(f"to {key}") as sink:
            while (body := bytes(sink.receive())) != b"end":
                (due,) = STAMP.unpack(body)
                self.points.append((due - self._started, monotonic() - due))

    def _send_large(self) -> None:
        with self._here.open("feed 0") as feed:
            while monotonic() < self._over:
                try:
                    feed.send_nowait(LARGE, key="0")
                except WouldBlock:
                    pass
                sleep(INTERVAL)

    def _take_large(self) -> None:
        with self._there.open("to 0") as sink:
            while monotonic() < self._over:
                if self._stalled.is_set():
                    sleep(INTERVAL)
                    continue
                try:
                    sink.receive_many(timeout=INTERVAL)
                except KernelError:  # nothing there
                    pass


def p99(points: Points, first: float, last: float) -> float:
    """Return the 99th percentile of the messages that were due between the two times, in milliseconds."""
    return 1000 * statistics.quantiles((took for due, took in points if first <= due < last), n=100)[98]


def plot(found: dict[str, Points], path: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    axes.axvspan(PHASE, 2 * PHASE, color="#eeeeee", label="one destination takes nothing")
    for (name, points), colour in zip(found.items(), ("#c44e52", "#4c72b0"), strict=True):
        axes.plot(
            *zip(*((due, 1000 * took) for due, took in points), strict=True),
            ".",
            color=colour,
            label=name,
            markersize=3,
        )
    axes.set(yscale="log", xlabel="seconds", ylabel="latency of the other three feeds, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    found = {name: Trial(place).run() for name, place in PLACES.items()}
    print("p99 of the three healthy feeds, ms")
    for name, points in found.items():
        without, stalled = p99(points, 0.2 * PHASE, PHASE), p99(points, PHASE, 2 * PHASE)
        print(
            f"{name:5} unstalled {without:9.2f}  while one stalls {stalled:9.2f}  "
            f"ratio {stalled / without:9.2f}"
        )
    if len(sys.argv) > 1:
        plot(found, sys.argv[1])


if __name__ == "__main__":
    main()
