"""Our side: kernels for the measurements, and the roles of sender, receiver and echo on them."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.processes import WARM, time_calls
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

BATCH = 1000
"""Messages in one batch call."""


def linked_plan(
    mode: str,
    address: str,
    *,
    router: str = "fan-out",
    spin: float | None = None,
    api: str = "native",
    **options: Any,
) -> Plan:
    """An application, a poll thread and a stream engine between it and the network."""
    return Plan(
        threads=(ThreadPlan(name="io", options={} if spin is None else {"spin": spin}),),
        engines=(
            EnginePlan(name="link", kind="stream", options={"address": address, "mode": mode, **options}),
            EnginePlan(name="app", kind=api),
        ),
        routes=(
            RoutePlan(source="app", targets=("link",), router=router),
            RoutePlan(source="link", targets=("app",)),
        ),
    )


def listening(spin: float | None = None) -> Kernel:
    """A kernel that listens on some port of the loopback interface."""
    kernel = Kernel(linked_plan("listen", "backend+tcp://127.0.0.1:0", spin=spin)).start()
    kernel.wait_running()
    return kernel


def dialling(address: str, spin: float | None = None) -> Kernel:
    """A kernel that is connected to another."""
    kernel = Kernel(linked_plan("dial", address, spin=spin)).start()
    kernel.wait_running()
    return kernel


def receive_single(link: Connection, count: int, size: int) -> None:
    """Receive with one call a message."""
    with listening() as kernel:
        receive = kernel.open("app").receive
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        receive()
        start = time.perf_counter()
        for _ in range(count - 1):
            receive()
        link.send((count - 1) / (time.perf_counter() - start))
        link.recv()


def send_single(link: Connection, address: str, count: int, size: int) -> None:
    """Send with one call a message."""
    with dialling(address) as kernel:
        send = kernel.open("app").send
        body = b"x" * size
        for _ in range(count):
            send(body)
        link.recv()


def receive_batch(link: Connection, count: int, size: int) -> None:
    """Receive all that has come in one call."""
    with listening() as kernel:
        receive_many = kernel.open("app").receive_many
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        first = received = len(receive_many())
        start = time.perf_counter()
        while received < count:
            received += len(receive_many())
        link.send((received - first) / (time.perf_counter() - start))
        link.recv()


def send_batch(link: Connection, address: str, count: int, size: int) -> None:
    """Send ``BATCH`` messages in one call."""
    with dialling(address) as kernel:
        send_many = kernel.open("app").send_many
        body = b"x" * size
        for _ in range(count // BATCH):
            send_many([body] * BATCH)
        link.recv()


def echo(link: Connection, count: int, size: int, spin: float | None = None) -> None:
    """Send back what comes."""
    with listening(spin) as kernel:
        app = kernel.open("app")
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        for _ in range(WARM + count):
            app.send(app.receive())
        link.recv()


def ask(link: Connection, address: str, count: int, size: int, spin: float | None = None) -> None:
    """Send and wait for the answer."""
    with dialling(address, spin) as kernel:
        app = kernel.open("app")
        body = b"x" * size

        def there_and_back() -> None:
            app.send(body)
            app.receive()

        link.send(time_calls(there_and_back, count))
        link.recv()
