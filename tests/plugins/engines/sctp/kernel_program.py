"""A kernel at one end of an association, in a process of its own.

    python -m tests.plugins.engines.sctp.kernel_program receive ADDRESS OPTIONS
    python -m tests.plugins.engines.sctp.kernel_program keep ADDRESS OPTIONS FILE
    python -m tests.plugins.engines.sctp.kernel_program send ADDRESS OPTIONS
    python -m tests.plugins.engines.sctp.kernel_program exchange ADDRESS OPTIONS
    python -m tests.plugins.engines.sctp.kernel_program say ADDRESS OPTIONS TEXT
    python -m tests.plugins.engines.sctp.kernel_program stuff ADDRESS OPTIONS

All print what engines report, a line each. ``send`` numbers messages until its input ends, waits until all are confirmed, and
prints "sent" and how many; ``receive`` prints "received" and the last number for each hundred, and "wrong" for one out of order.
``keep`` writes what comes to the file, a line each, before it asks for more, and prints "at" and where it listens.

The others have a peer that returns what it gets.  ``exchange`` prints "ready" and where when it runs, "heard" and the first words of a peer that
has dialled, and "returned" for each round of messages of many sizes, until its input ends.  ``say`` sends a text, and waits for that
end.  ``stuff`` takes nothing of what comes back, sends until nothing more is taken, prints "full", and goes.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import EngineEvent
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from plugins.engines.sctp import opening
from tests.events import Events
from tests.plans import route
from tests.plugins.engines.sctp.echoing import ROUTES, Echoing
from tests.plugins.engines.sctp.plans import TIMEOUT, bodies_of, sent_in_time

INTERVAL = 0.002
SIZES = (1, 99, 1200, 3, 40_000, 100_000, 2000, 1, *[100] * 50)


def _plan(engine: EnginePlan, *routes: RoutePlan) -> Plan:
    return Plan(engines=(engine,), routes=routes)


def say_line(*words: object) -> None:
    """Print a line in one piece: engines report in another thread."""
    print(" ".join(map(str, words)) + "\n", end="", flush=True)


def tell(event: EngineEvent) -> None:
    say_line(event.what, event.detail)


def end_of_input() -> threading.Event:
    over = threading.Event()

    def wait_for_it() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_it, daemon=True).start()
    return over


def receive(engine: EnginePlan) -> None:
    with Kernel(_plan(engine, route("net", "app", confirm=True))) as kernel:
        kernel.events.append(tell)
        app = kernel.open("app")
        expected = 0
        while True:
            for body in app.receive_many():
                if int(bytes(body)) != expected:
                    say_line("wrong", int(bytes(body)), expected)
                expected += 1
                if expected % 100 == 0:
                    say_line("received", expected)


def keep(engine: EnginePlan, file: str) -> None:
    with Kernel(_plan(engine, route("net", "app", confirm=True))) as kernel, open(file, "ab", 0) as out:
        kernel.wait_running()
        say_line("at", kernel.address_of("net"))
        app = kernel.open("app", batch=100)
        while True:
            out.write(b"".join(bytes(body) + b"\n" for body in app.receive_many(100)))


def send(engine: EnginePlan) -> None:
    over = end_of_input()
    with Kernel(_plan(engine, route("app", "net", confirm=True))) as kernel:
        kernel.events.append(tell)
        app = kernel.open("app")
        count = 0
        while not over.wait(INTERVAL):
            app.send(b"%d" % count, timeout=60)
            count += 1
        app.wait_confirmed(60)
        say_line("sent", count)


def exchange(engine: EnginePlan) -> None:
    over, events = end_of_input(), Events()
    kernel = Kernel(_plan(engine, *ROUTES))
    kernel.events += [tell, events]
    with kernel:
        kernel.wait_running()
        say_line("ready", kernel.address_of("net"))
        events.wait("connected")
        echoing = Echoing(kernel)
        if engine.options["mode"] == "listen":
            say_line("heard", bodies_of(echoing.sink, 1)[0].decode())
        while not over.is_set():
            echoing.exchange(SIZES)
            say_line("returned")


def say(engine: EnginePlan, text: str) -> None:
    over = end_of_input()
    with Kernel(_plan(engine, route("app", "net"))) as kernel:
        kernel.events.append(tell)
        kernel.open("app").send(text.encode(), timeout=TIMEOUT)
        over.wait()


def stuff(engine: EnginePlan) -> None:
    sink = route("net", "sink", marks={"high": 10, "stall_timeout": math.inf})
    with Kernel(_plan(engine, route("app", "net", marks={"high": 10}), sink)) as kernel:
        kernel.events.append(tell)
        kernel.open("sink")
        app = kernel.open("app")
        # So long a time, because a peer that is emulated may do nothing for a second, and take more afterwards.
        while sent_in_time(app, bytes(20_000), "", timeout=5):
            pass
        say_line("full")
        kernel.close(linger=0)


ROLES: dict[str, Callable[..., None]] = {
    "receive": receive,
    "keep": keep,
    "send": send,
    "exchange": exchange,
    "say": say,
    "stuff": stuff,
}
DIALLING = ("send", "say", "stuff")
PATIENT = ("exchange", "say")
"""Roles whose shutdown must be answered, also on a busy machine: they get longer time-outs."""


def main(role: str, address: str, options: dict[str, Any], *files: str) -> None:
    mode = "dial" if role in DIALLING else "listen"
    engine = EnginePlan(name="net", kind="sctp", options={"address": address, "mode": mode, **options})
    if role in PATIENT:
        opening.CLOSE_TIMEOUT = TIMEOUT
    ROLES[role](engine, *files)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:])
