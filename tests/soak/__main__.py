"""`make soak`: real clients on one broker for a given time; it counts every message and watches the memory.

Each pair of a publisher and a consumer is a separate process.  Publishers send at a fixed rate, so that the
computer is not the limit.  A visitor connects and leaves all the time, every other time without a close.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.interop.brokers import KernelProcess
from tests.soak.pairs import PAIRS, Report, take_part

_EVERY = 1.0
"""Seconds between looks at the broker."""
_FLAT = 1.05
"""The last quarter's median memory may exceed the second quarter's by this factor."""


class Look(msgspec.Struct):
    """What the broker's process occupies at one moment."""

    resident: int
    descriptors: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rate", type=int, default=500, help="messages a second for each pair")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, KernelProcess(Path(folder)) as broker:
        stop, reports = spawn.Event(), spawn.Queue()
        children = [
            spawn.Process(target=take_part, args=(name, broker.broker.port, arguments.rate, stop, reports))
            for name in PAIRS
        ]
        for child in children:
            child.start()
        looks = _watch(broker, arguments.seconds)
        stop.set()
        told: list[Report] = [reports.get(timeout=120) for _ in children]
        for child in children:
            child.join(30)
        return _conclude(told, looks, broker.descriptors(), arguments.seconds)


def _watch(broker: KernelProcess, seconds: float) -> list[Look]:
    looks: list[Look] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(_EVERY)
        looks.append(Look(broker.resident(), broker.descriptors()))
    return looks


def _conclude(told: list[Report], looks: list[Look], descriptors: int, seconds: float) -> int:
    for report in sorted(told, key=lambda each: each.name):
        print(report.line())
    quarter = max(1, len(looks) // 4)
    second = statistics.median(look.resident for look in looks[quarter : 2 * quarter])
    last = statistics.median(look.resident for look in looks[-quarter:])
    first_fds, last_fds = looks[quarter].descriptors, descriptors
    total = sum(report.received for report in told)
    print(f"{total:,} messages in {seconds:.0f} s")
    print(
        f"memory of the broker, median: second quarter {second / 2**20:.1f} MiB, last {last / 2**20:.1f} MiB"
    )
    print(f"its descriptors: {first_fds} while all were there, {last_fds} when they had gone")
    wrong = [report.name for report in told if not report.right()]
    if last > second * _FLAT:
        wrong.append("memory")
    print("wrong: " + ", ".join(wrong) if wrong else "all accounted for, memory flat")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
