"""``kernel definitions export``: what RabbitMQ would read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.topology.control import ControlServer
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.methods import queue
from tests.kernel.cli.test_commands import Run, kernel
from tests.plugins.engines.amqp.raw_client import RawClient

__all__ = ["kernel"]

OPTIONS = {
    "address": "127.0.0.1:0",
    "exchanges": [{"name": "events", "type": "topic"}],
    "queues": [{"name": "orders", "arguments": {"x-max-length": 9}}],
    "bindings": [{"exchange": "events", "queue": "orders", "key": "order.#"}],
}
DEFINITIONS = {
    "vhosts": [{"name": "/"}],
    "exchanges": [
        {
            "name": "events",
            "vhost": "/",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "queues": [
        {
            "name": "orders",
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 9},
        }
    ],
    "bindings": [
        {
            "source": "events",
            "vhost": "/",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        }
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A system with two brokers, the second of which has nothing of its own."""
    brokers = (
        EnginePlan(name="one", kind="amqp", options=OPTIONS),
        EnginePlan(name="two", kind="amqp", options={"address": "127.0.0.1:0"}),
    )
    with Kernel(Plan(engines=brokers)) as system, ControlServer(system, tmp_path / "c.sock"):
        system.wait_running()
        with RawClient(int(system.address_of("one").rpartition(":")[2])) as client:
            client.ask(queue.Declare(queue="mine", exclusive=True), queue.DeclareOk)
            client.ask(queue.Bind(queue="mine", exchange="events", routing_key="x"), queue.BindOk)
            yield tmp_path / "c.sock"


def test_export(kernel: Run, path: Path) -> None:
    status, shown, errors = kernel("definitions", "export", "--control", path, "--engine", "one")
    assert (status, errors) == (0, "")
    assert json.loads(shown) == DEFINITIONS


def test_one_of_several_brokers_must_be_named(kernel: Run, path: Path) -> None:
    status, _, errors = kernel("definitions", "export", "--control", path)
    assert (status, errors) == (
        1,
        "kernel: several engines have exchanges; say which: --engine one | two\n",
    )


def test_a_broker_that_is_not_there_is_named(kernel: Run, path: Path) -> None:
    _, _, errors = kernel("definitions", "export", "--control", path, "--engine", "three")
    assert errors == "kernel: no engine 'three' has exchanges; those that have: one, two\n"
