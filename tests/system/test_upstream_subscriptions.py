"""A subscription travels to the source, over as many kernels as lie between."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.ports import free_port
from tests.system.conftest import dialler, listener, route

TIMEOUT = 30.0


def _unrouted(kernel: Kernel) -> int:
    return kernel.statistics().routes[0].unrouted


def _messages_in(kernel: Kernel, engine: str) -> int:
    (found,) = (each for each in kernel.statistics().engines if each.name == engine)
    return int(found.counters["messages_in"])


class Chain:
    """A feed in the first kernel, a reader in the third."""

    def __init__(self, make: KernelFactory, *, address: str = "", **up: Any) -> None:
        self.source = make(
            listener(address=address or "backend+tcp://127.0.0.1:0"), route("feed", "net", router="by-key")
        )
        self.between = make(
            dialler(f"backend+tcp://{self.source.address_of('net')}", name="up", **up),
            listener("down"),
            route("up", "down", router="by-key"),
        )
        self.last = make(
            dialler(f"backend+tcp://{self.between.address_of('down')}"),
            route("net", "reader", router="by-key"),
        )
        self.feed = self.source.open("feed")
        self.reader = self.last.open("reader")
        self.serial = 0

    def send_until_it_arrives(self, key: str) -> None:
        """How a reader learns from outside that its subscription has reached the source."""
        while True:
            self.serial += 1
            self.feed.send(b"%d" % self.serial, key=key, timeout=TIMEOUT)
            try:
                while self.reader.receive(timeout=0.02) != b"%d" % self.serial:
                    pass
            except TimedOut:
                continue
            return

    def send_until_it_is_unrouted(self, key: str) -> None:
        before = _unrouted(self.source)
        while _unrouted(self.source) == before:
            self.feed.send(b"anybody?", key=key, timeout=TIMEOUT)


def test_a_subscriber_two_kernels_away_filters_at_the_source(kernel_factory: KernelFactory) -> None:
    chain = Chain(kernel_factory)
    chain.reader.subscribe("wanted.#")
    chain.send_until_it_arrives("wanted.x")
    before = _messages_in(chain.between, "up"), _unrouted(chain.source)
    for _ in range(50):
        chain.feed.send(b"no", key="unwanted", timeout=TIMEOUT)
    chain.feed.send(b"yes", key="wanted.y", timeout=TIMEOUT)
    assert chain.reader.receive(timeout=TIMEOUT) == b"yes"
    assert (_messages_in(chain.between, "up"), _unrouted(chain.source)) == (before[0] + 1, before[1] + 50)
    chain.reader.unsubscribe("wanted.#")
    chain.send_until_it_is_unrouted("wanted.x")


def test_the_last_of_several_readers_takes_the_subscription_back(kernel_factory: KernelFactory) -> None:
    chain = Chain(kernel_factory)
    other = chain.last.open("reader")
    chain.reader.subscribe("k")
    other.subscribe("k")
    chain.send_until_it_arrives("k")
    other.close()
    chain.send_until_it_arrives("k")
    chain.reader.close()
    chain.send_until_it_is_unrouted("k")


def test_a_source_that_comes_back_is_asked_again(kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    chain = Chain(kernel_factory, address=address)
    events = Events()
    chain.between.events.append(events)
    chain.reader.subscribe("k")
    chain.send_until_it_arrives("k")
    chain.source.remove_engine("net")
    events.wait("disconnected")
    chain.reader.subscribe("meanwhile")
    chain.reader.unsubscribe("k")
    chain.source.add_engine(listener(address=address))
    chain.send_until_it_arrives("meanwhile")
    chain.send_until_it_is_unrouted("k")


def test_subscriptions_are_kept_here_where_the_topology_says_so(kernel_factory: KernelFactory) -> None:
    chain = Chain(kernel_factory, forward_subscriptions=False, protocol={"subscriptions": ["static"]})
    chain.reader.subscribe("k")
    chain.reader.subscribe("static")
    chain.send_until_it_arrives("static")
    before = _unrouted(chain.source)
    chain.feed.send(b"no", key="k", timeout=TIMEOUT)
    chain.send_until_it_arrives("static")
    assert _unrouted(chain.source) > before


def test_a_subscription_goes_through_an_engine_inside_the_process(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(name="here", kind="stream", options={"address": "backend+inproc://x", "mode": "listen"}),
        EnginePlan(name="there", kind="stream", options={"address": "backend+inproc://x"}),
        route("feed", "here", router="by-key"),
        route("there", "reader", router="by-key"),
    )
    feed, reader = kernel.open("feed"), kernel.open("reader")
    reader.subscribe("k")
    for number in range(10_000):
        feed.send(b"%d" % number, key="k", timeout=TIMEOUT)
        feed.send(b"no", key="other", timeout=TIMEOUT)
        try:
            assert reader.receive(timeout=0.02) != b"no"
        except TimedOut:
            continue
        break
    reader.unsubscribe("k")
    before = kernel.statistics().routes[0].unrouted
    while kernel.statistics().routes[0].unrouted < before + 2:
        feed.send(b"anybody?", key="k", timeout=TIMEOUT)


def test_a_subscription_made_before_the_connection_inside_the_process_arrives(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(
        EnginePlan(name="there", kind="stream", options={"address": "backend+inproc://x"}),
        route("feed", "here", router="by-key"),
        route("there", "reader", router="by-key"),
    )
    feed, reader = kernel.open("feed"), kernel.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut):
        reader.wait_subscribed(timeout=0.02)
    kernel.add_engine(
        EnginePlan(name="here", kind="stream", options={"address": "backend+inproc://x", "mode": "listen"})
    )
    for _ in range(1_000):
        feed.send(b"hello", key="k", timeout=TIMEOUT)
        try:
            assert reader.receive(timeout=0.02) == b"hello"
        except TimedOut:
            continue
        return
    raise AssertionError("the listener does not know of the subscription")


def test_a_channel_waits_until_its_subscription_is_in_effect(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener(), route("net", "reader", router="by-key"), route("app", "net"))
    sender = kernel_factory(
        dialler(f"backend+tcp://{kernel.address_of('net')}", forward_subscriptions=False), route("app", "net")
    )
    sending, reader = sender.open("app"), kernel.open("reader")
    reader.subscribe("begun")
    for number in range(10_000):
        sending.send(b"%d" % number, key="begun", timeout=TIMEOUT)
        try:
            reader.receive(timeout=0.02)
        except TimedOut:
            continue
        break
    reader.unsubscribe("begun")
    for number in range(20):
        reader.subscribe(f"key.{number}")
        reader.wait_subscribed(timeout=TIMEOUT)
        sending.send(b"at once %d" % number, key=f"key.{number}", timeout=TIMEOUT)
        while not (body := bytes(reader.receive(timeout=TIMEOUT))).startswith(b"at once"):
            pass
        assert body == b"at once %d" % number


def test_a_source_that_is_in_no_call_has_not_applied_a_subscription_yet(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("feed", "reader", router="by-key"))
    feed, reader = kernel.open("feed"), kernel.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut, match="not all subscriptions are in effect"):
        reader.wait_subscribed(timeout=0)
    feed.statistics()
    feed.send(b"its next call", key="k")
    reader.wait_subscribed(timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"its next call"


def test_members_of_a_group_share_what_matches(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("feed", "worker", router="by-key"))
    feed, workers = kernel.open("feed"), [kernel.open("worker") for _ in range(3)]
    for worker in workers:
        worker.subscribe("job.#", group="workers")
    jobs = [b"%d" % number for number in range(30)]
    for job in jobs:
        feed.send(job, key="job.x", timeout=TIMEOUT)
    got = [[bytes(body) for body in worker.receive_many(timeout=TIMEOUT)] for worker in workers]
    assert [len(each) for each in got] == [10, 10, 10]
    assert sorted(body for each in got for body in each) == sorted(jobs)
