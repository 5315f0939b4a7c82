"""Brokers for other protocols than AMQP: ours for each measurement, RabbitMQ with a plugin for a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.amqp.brokers import Broker
from benchmarks.amqp.rabbitmq import rabbitmq
from benchmarks.processes import Child
from kernel.topology.plan import EnginePlan, Plan, ThreadPlan
from kernel.topology.system import Kernel


@contextmanager
def our_broker(protocol: str, durable: bool = False, **listener: Any) -> Iterator[Broker]:
    """Run ours.  ``durable``: with a store in a temporary folder.  ``listener``: options of its listener."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        options = {"data_dir": folder} if durable else {}
        with Child(_serve, protocol, options, listener) as child:
            yield Broker("kernel", child.hear(), child.pid)


@contextmanager
def rabbitmq_with(protocol: str, durable: bool = False) -> Iterator[Broker]:
    """Return the node of this run; it stays, and stores what is to be stored."""
    yield rabbitmq(protocol)


def _serve(link: Connection, protocol: str, options: dict[str, Any], listener: dict[str, Any]) -> None:
    listening = {"protocol": protocol, "address": "127.0.0.1:0", "anonymous": "guest", **listener}
    engine = EnginePlan(name="broker", kind="broker", options={**options, "listeners": [listening]})
    with Kernel(Plan(threads=(ThreadPlan(name="io"),), engines=(engine,))) as kernel:
        kernel.wait_running()
        link.send(kernel.address_of("broker"))
        link.recv()
