"""A kernel at one end of an association, in a process of its own.

    python -m tests.plugins.engines.sctp.kernel_program receive ADDRESS OPTIONS
    python -m tests.plugins.engines.sctp.kernel_program keep ADDRESS OPTIONS FILE
    python -m tests.plugins.engines.sctp.kernel_program send ADDRESS OPTIONS

All print what engines report, a line each. ``send`` numbers messages until its input ends, waits until all are confirmed, and
prints "sent" and how many; ``receive`` prints "received" and the last number for each hundred, and "wrong" for one out of order.
``keep`` writes what comes to the file, a line each, before it asks for more, and prints "at" and where it listens.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import EngineEvent
from kernel.testing.fixtures import plan_of
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.system.conftest import route

INTERVAL = 0.002


def tell(event: EngineEvent) -> None:
    print(event.what, event.detail, flush=True)


def receive(engine: EnginePlan) -> None:
    with Kernel(plan_of(engine, route("net", "app", confirm=True))) as kernel:
        kernel.events.append(tell)
        app = kernel.open("app")
        expected = 0
        while True:
            for body in app.receive_many():
                if int(bytes(body)) != expected:
                    print("wrong", int(bytes(body)), expected, flush=True)
                expected += 1
                if expected % 100 == 0:
                    print("received", expected, flush=True)


def keep(engine: EnginePlan, file: str) -> None:
    with Kernel(plan_of(engine, route("net", "app", confirm=True))) as kernel, open(file, "ab", 0) as out:
        kernel.wait_running()
        print("at", kernel.address_of("net"), flush=True)
        app = kernel.open("app", batch=100)
        while True:
            out.write(b"".join(bytes(body) + b"\n" for body in app.receive_many(100)))


def send(engine: EnginePlan) -> None:
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    with Kernel(plan_of(engine, route("app", "net", confirm=True))) as kernel:
        kernel.events.append(tell)
        app = kernel.open("app")
        count = 0
        while not over.wait(INTERVAL):
            app.send(b"%d" % count, timeout=60)
            count += 1
        app.wait_confirmed(60)
        print("sent", count, flush=True)


ROLES: dict[str, Callable[..., None]] = {"receive": receive, "keep": keep, "send": send}


def main(role: str, address: str, options: dict[str, Any], *files: str) -> None:
    mode = "dial" if role == "send" else "listen"
    engine = EnginePlan(name="net", kind="sctp", options={"address": address, "mode": mode, **options})
    ROLES[role](engine, *files)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:])
