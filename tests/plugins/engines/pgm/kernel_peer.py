"""The same program as ``libzmq_peer``, on the kernel: ``publish`` and ``subscribe`` at an address of ours."""

from __future__ import annotations

import sys
import time

from kernel import EnginePlan, Kernel, Plan, RoutePlan

TIMEOUT = 60.0


def publish(address: str, count: int, size: int, between: float) -> None:
    plan = Plan(
        engines=(
            EnginePlan(name="out", kind="pgm", options={"address": address, "mode": "send"}),
            EnginePlan(name="from", kind="native"),
        ),
        routes=(RoutePlan(source="from", targets=("out",)),),
    )
    with Kernel(plan) as kernel, kernel.open("from") as channel:
        kernel.wait_running()
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(count):
            channel.send((b"%06d " % number).ljust(size, b"x"))
            if between:
                time.sleep(between)
        print("sent", flush=True)
        sys.stdin.readline()  # whoever asks for repairs needs us


def subscribe(address: str, count: int) -> None:
    plan = Plan(
        engines=(
            EnginePlan(name="in", kind="pgm", options={"address": address, "mode": "receive"}),
            EnginePlan(name="to", kind="native"),
        ),
        routes=(RoutePlan(source="in", targets=("to",)),),
    )
    with Kernel(plan) as kernel, kernel.open("to") as channel:
        kernel.wait_running()
        print("ready", flush=True)
        for _ in range(count):
            print(bytes(channel.receive(timeout=TIMEOUT)).decode(), flush=True)
        counters = kernel.statistics().engines[0].counters
        print(f"recovered {counters['recovered']} lost {counters['lost']}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        subscribe(sys.argv[2], int(sys.argv[3]))
