"""A sender or receiver of kind ``one-to-many`` as a program.

``publish ADDRESS GROUP``: for each number that comes in on stdin sends so many messages more, and says what it has told until then
when asked with ``?``.  ``subscribe ADDRESS``: says ``ready``, then what it receives, a line each.
"""

from __future__ import annotations

import sys
import threading

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from kernel.contracts.engine import EngineEvent

TIMEOUT = 60.0


def publish(address: str, group: str) -> None:
    plan = Plan(
        engines=(
            EnginePlan(
                name="feed",
                kind="one-to-many",
                options={"mode": "send", "address": address, "group": group, "silence": 2.0},
            ),
            EnginePlan(name="from", kind="native"),
        ),
        routes=(RoutePlan(source="from", targets=("feed",)),),
    )
    kernel = Kernel(plan)
    output = threading.Lock()

    def tell(event: EngineEvent) -> None:
        with output:
            print(event.what, event.detail, flush=True)

    kernel.events.append(tell)
    sent = 0
    with kernel, kernel.open("from") as channel:
        kernel.wait_running()
        with output:
            print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line)):
                channel.send(b"%06d" % sent)
                sent += 1


def subscribe(address: str) -> None:
    options = {"mode": "receive", "address": address, "reconnect": {"most": 0.2}}
    plan = Plan(
        engines=(
            EnginePlan(name="feed", kind="one-to-many", options=options),
            EnginePlan(name="to", kind="native"),
        ),
        routes=(RoutePlan(source="feed", targets=("to",)),),
    )
    with Kernel(plan) as kernel, kernel.open("to") as channel:
        kernel.wait_running()
        print("ready", flush=True)
        while True:
            for body in channel.receive_many(timeout=TIMEOUT):
                print(bytes(body).decode())
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], sys.argv[3])
    else:
        subscribe(sys.argv[2])
