"""Sites: kernels with a broker each, and links between them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan, ThreadPlan
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, exchange, queue
from tests.events import Events
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT
from tests.system.conftest import FAST

__all__ = ["kernel_factory"]

FEED = {"name": "feed", "type": "topic"}


class Site:
    """A kernel with a broker that has the exchange ``feed``; messages are published and looked at over AMQP."""

    def __init__(self, make: KernelFactory, name: str, *, threads: int = 1, **options: Any) -> None:
        self.name = name
        self.events = Events()
        own = {"address": "127.0.0.1:0", "cluster_name": name, "exchanges": [FEED], **options}
        self.kernel = make(
            EnginePlan(name="broker", kind="amqp", options=own),
            *(ThreadPlan(name=f"poll-{number}") for number in range(threads)),
            on_event=self.events,
        )
        self.address = self.kernel.address_of("broker")
        self.client = RawClient(int(self.address.rpartition(":")[2]))

    def follow(self, upstream: str, name: str = "link", *, to: str = "broker", **options: Any) -> None:
        """Add a link from the broker at this address; ``to`` is where its messages go."""
        own = {"broker": "broker", "addresses": [upstream], "reconnect": FAST, **options}
        if "queues" not in own:
            own.setdefault("exchanges", ["feed"])
        self.kernel.add_engine(EnginePlan(name=name, kind="federation", options=own))
        self.kernel.add_route(RoutePlan(source=name, targets=(to,), confirm=True))

    def figures(self, name: str = "link") -> dict[str, Any]:
        (found,) = [engine for engine in self.kernel.statistics().engines if engine.name == name]
        return found.counters

    def wants(self, *keys: str, name: str = "q") -> None:
        """Have a queue, and bind it."""
        self.client.ask(queue.Declare(queue=name), queue.DeclareOk)
        for key in keys:
            self.client.ask(queue.Bind(queue=name, exchange="feed", routing_key=key), queue.BindOk)

    def wants_no_more(self, key: str) -> None:
        self.client.ask(queue.Unbind(queue="q", exchange="feed", routing_key=key), queue.UnbindOk)

    def bound(self, downstream: str) -> set[str]:
        """The keys that a downstream has bound here (RabbitMQ takes A and B in turn)."""
        inner = {f"federation: feed -> {downstream} {suffix}" for suffix in "AB"}
        return {row["routing_key"] for row in self.rows("bindings") if row["destination_name"] in inner}

    def rows(self, what: str) -> tuple[dict[str, Any], ...]:
        """What the kernel shows of its ``queues``, ``consumers`` ..., however busy it is."""
        return self.kernel.inspect(what, TIMEOUT).rows

    def wait_for_bindings_of(self, downstream: Site, *keys: str) -> None:
        until(lambda: self.bound(downstream.name) == set(keys), downstream.name)

    def wait_for_count(self, count: int) -> None:
        until(lambda: self.count() >= count, self.name)

    def publish(self, *messages: tuple[str, bytes], **properties: Any) -> None:
        for key, body in messages:
            self.client.publish(body, key, "feed", properties)
        self.client.ask(basic.Qos(), basic.QosOk)  # it has all of them

    def count(self, name: str = "q") -> int:
        return self.client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk).message_count

    def take(self, count: int, name: str = "q") -> list[Delivered]:
        """Take so many messages that wait in a queue, or come to it."""
        return self.client.take(name, count)

    def bodies(self, count: int, name: str = "q") -> list[bytes]:
        return [bytes(body) for event in self.take(count, name) for body in event.batch.bodies]

    def delete_feed(self) -> None:
        self.client.ask(exchange.Delete(exchange="feed"), exchange.DeleteOk)

    def cut(self, name: str = "link") -> None:
        """Cut the wire of a link, as a router that goes would."""
        states = [state for thread in self.kernel._threads() for state in thread.states.values()]
        (engine,) = [state.engine for state in states if state.name == name]
        descriptor = os.dup(engine.link.connection.connection.wire.fileno())
        with socket.socket(fileno=descriptor) as wire:
            wire.shutdown(socket.SHUT_RDWR)


def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait until something that nobody tells of has happened in another thread or process."""
    deadline = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < deadline, what or "it never happened"
        sleep(0.005)


def numbered(first: int, last: int) -> Iterable[tuple[str, bytes]]:
    return [("k", b"%d" % number) for number in range(first, last)]


@pytest.fixture
def site(kernel_factory: KernelFactory) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(name: str, **options: Any) -> Site:
        made.append(Site(kernel_factory, name, **options))
        return made[-1]

    yield make
    for each in made:
        each.client.__exit__()
