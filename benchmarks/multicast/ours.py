"""The kernel's side, as a program: the same as ``peers/libzmq_multicast.c``, with an address of ours.

``receive ADDRESS COUNT SIZE RATE`` and ``send ADDRESS COUNT SIZE RATE GAP``; RATE in bytes per second, GAP in
nanoseconds.
"""

from __future__ import annotations

import select
import sys
import time
from struct import Struct

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from kernel.contracts.errors import TimedOut

BATCH = 1000
END = b"END"
FIRST_PATIENCE, TIMEOUT = 60.0, 3.0
MOST = 15_000_000_000
WINDOW = {"window_packets": 1_000_000, "window_bytes": 1 << 30}
"""libzmq's has room for what goes in ten seconds, at the rate that is allowed."""
STAMP = Struct("=q")


def receive(address: str, count: int, size: int, rate: int) -> None:
    options = {"address": address, "mode": "receive", "receiver": WINDOW}
    plan = Plan(
        engines=(
            EnginePlan(name="in", kind="pgm", options=options),
            EnginePlan(name="to", kind="native"),
        ),
        routes=(RoutePlan(source="in", targets=("to",)),),
    )
    with Kernel(plan) as kernel, kernel.open("to") as channel:
        kernel.wait_running()
        print("ready", flush=True)
        taken: list[int] = []
        received, first, last = 0, 0, 0
        timeout = FIRST_PATIENCE
        while received < count and last - first < MOST:
            try:
                bodies = channel.receive_many(timeout=timeout)
            except TimedOut:
                break
            ended = END in bodies
            last = time.monotonic_ns()
            first = first or last
            timeout = TIMEOUT
            received += len(bodies) - bodies.count(END)
            if ended:
                break
            taken.append(last - STAMP.unpack_from(bodies[0])[0])
        ordered = sorted(taken) or [0]
        p50, p99 = (ordered[int(len(ordered) * part)] / 1e3 for part in (0.5, 0.99))
        print("received", received, (last - first) / 1e9, p50, p99, flush=True)


def send(address: str, count: int, size: int, rate: int, gap: int) -> None:
    options = {"address": address, "mode": "send", "source": {"rate": rate, **WINDOW}}
    plan = Plan(
        engines=(
            EnginePlan(name="out", kind="pgm", options=options),
            EnginePlan(name="from", kind="native"),
        ),
        routes=(RoutePlan(source="from", targets=("out",)),),
    )
    with Kernel(plan) as kernel, kernel.open("from") as channel:
        kernel.wait_running()
        print("ready", flush=True)
        sys.stdin.readline()
        rest = b"x" * (size - STAMP.size)
        if gap:
            due = time.monotonic_ns()
            for _ in range(count):
                due += gap
                time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
                channel.send(STAMP.pack(time.monotonic_ns()) + rest)
        else:
            for _ in range(count // BATCH):
                channel.send_many([STAMP.pack(time.monotonic_ns()) + rest] * BATCH)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            channel.send(END)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[3:]]
    if sys.argv[1] == "send":
        send(sys.argv[2], *numbers)
    else:
        receive(sys.argv[2], *numbers)
