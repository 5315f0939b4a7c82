"""Our side: a broker in a process; publisher and consumer with our client engine and the native API."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.amqp.work import BATCH, Work
from kernel.contracts.engine import EngineEvent
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

TIMEOUT = 20.0


def broker(link: Connection, spin: float | None, options: dict[str, Any]) -> None:
    """Run a broker until told to end."""
    thread = ThreadPlan(name="io", options={} if spin is None else {"spin": spin})
    engine = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", **options})
    with Kernel(Plan(threads=(thread,), engines=(engine,))) as kernel:
        kernel.wait_running()
        link.send(kernel.address_of("broker"))
        link.recv()


def publish(link: Connection, address: str, work: Work) -> None:
    """Send batches; with ``confirms`` until the broker has confirmed the last of them."""
    options = {"persistent": work.persistent}
    with _connected(address, options, "app", "client", confirm=work.confirms) as kernel:
        channel = kernel.open("app")
        body = b"x" * work.size
        link.recv()
        start, began = time.perf_counter(), time.process_time()
        for _ in range(work.count // BATCH):
            channel.send_many([body] * BATCH, key=work.queue)
        if work.confirms:
            channel.wait_confirmed()
        link.send((time.process_time() - began) / (time.perf_counter() - start))
        link.recv()


def consume(link: Connection, address: str, work: Work) -> None:
    """Receive all that has come in one call; with ``acks`` the next call acknowledges it."""
    options = {
        "queues": [{"name": work.queue, "durable": work.persistent, "auto_delete": True}],
        "consume": [{"queue": work.queue, "no_ack": not work.acks, "prefetch": work.prefetch}],
    }
    with _connected(address, options, "client", "app", confirm=work.acks) as kernel:
        receive_many = kernel.open("app").receive_many
        link.send("ready")
        first = received = len(receive_many())
        start, began = time.perf_counter(), time.process_time()
        while received < work.count:
            received += len(receive_many())
        seconds = time.perf_counter() - start
        link.send(((received - first) / seconds, (time.process_time() - began) / seconds))
        link.recv()


def _connected(address: str, options: dict[str, Any], source: str, target: str, *, confirm: bool) -> Kernel:
    """An application, and a thread with a client that is connected to the broker."""
    client = EnginePlan(name="client", kind="amqp-client", options={"addresses": [address], **options})
    plan = Plan(
        threads=(ThreadPlan(name="io"),),
        engines=(client, EnginePlan(name="app", kind="native")),
        routes=(RoutePlan(source=source, targets=(target,), confirm=confirm),),
    )
    kernel = Kernel(plan)
    connected = threading.Event()

    def look(event: EngineEvent) -> None:
        if event.what == "connected":
            connected.set()

    kernel.events.append(look)
    kernel.start()
    if not connected.wait(TIMEOUT):
        raise TimeoutError(f"no connection to {address} within {TIMEOUT} s")
    return kernel
