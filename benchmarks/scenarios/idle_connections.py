"""One active connection among 1,000 idle ones on one poll thread, beside the same without them."""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from multiprocessing.connection import Connection

from benchmarks import kernels
from benchmarks.processes import Child, allow_descriptors, resident
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side, Unavailable
from kernel.contracts.engine import EngineEvent
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.options import BackendOptions

IDLE = 1000
COUNT = 3_000_000
SIZE = 100
WITH, WITHOUT = f"{IDLE:,} idle connections beside", "no other connection"


def idle(link: Connection, address: str, count: int) -> None:
    """Hold connections that have greeted, and do nothing with them."""
    allow_descriptors(count)
    host, _, port = address.rpartition("/")[2].partition(":")
    # a heartbeat of 0 promises none: the listener waits for nothing
    greeting = b"".join(
        bytes(part) for part in BackendConnection(BackendOptions(heartbeat=0), "client").data_to_send()
    )
    connections = []
    for _ in range(count):
        connected = socket.create_connection((host, int(port)))
        connected.sendall(greeting)
        connections.append(connected)
    link.send("ready")
    link.recv()


def receive_among(link: Connection, count: int) -> None:
    """Listen, say how much memory there is before and after the idle ones came, then receive."""
    allow_descriptors(IDLE)
    plan = Plan(
        threads=(ThreadPlan(name="io"),),
        engines=(
            EnginePlan(
                name="link", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
            ),
            EnginePlan(name="app", kind="native"),
        ),
        routes=(RoutePlan(source="link", targets=("app",)),),
    )
    kernel = Kernel(plan)
    connected = threading.Semaphore(0)

    def count_connected(event: EngineEvent) -> None:
        if event.what == "connected":
            connected.release()

    kernel.events.append(count_connected)
    with kernel:
        kernel.wait_running()
        receive = kernel.open("app").receive
        before = resident()
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        for _ in range(link.recv()):
            if not connected.acquire(timeout=30):
                raise Unavailable("the idle connections did not all come up")
        link.send(resident() - before)
        receive()
        start = time.perf_counter()
        for _ in range(count - 1):
            receive()
        link.send((count - 1) / (time.perf_counter() - start))
        link.recv()


def _measure(others: int, scale: float) -> Figures:
    count = int(COUNT * scale)
    with Child(receive_among, count) as receiver:
        address = receiver.hear()
        with Child(idle, address, others) as sleeper:
            sleeper.hear(receiver)
            receiver.say(others)
            grown = receiver.hear(sleeper)
            with Child(kernels.send_single, address, count, SIZE) as sender:
                figures = {"rate": receiver.hear(sender)}
    if others:
        figures["memory"] = grown / others
    return figures


def _remarks(measured: Measured) -> list[str]:
    memory = measured.median(WITH, "memory")
    return [f"An idle connection takes {memory / 1024:.1f} KiB of the process's memory."] if memory else []


SCENARIO = Scenario(
    name="idle_connections",
    sides=(Side(WITH, partial(_measure, IDLE)), Side(WITHOUT, partial(_measure, 0))),
    rows=(
        Row(
            name="idle_1000_connections",
            what=f"one way, {SIZE} B, one call a message, {IDLE:,} idle connections on the same poll thread",
            figure="rate",
            unit="msg/s",
            bar=">= 0.9",
            ours=WITH,
            peers=(WITHOUT,),
        ),
    ),
    remarks=_remarks,
)
