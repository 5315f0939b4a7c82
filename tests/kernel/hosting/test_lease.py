"""Leases: application threads that read and write the socket of their connection themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed, TimedOut
from kernel.threads import poller
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
from plugins.apis.native.channel import Channel
from tests.events import Events
from tests.interruptions import EVERYWHERE, interrupted
from tests.systems import lends

pytestmark = lends

ENOUGH = 40
"""Lone messages in a row after which a lease has begun."""
TCP = "backend+tcp://127.0.0.1:0"
DATAGRAMS = ("backend+sctp://127.0.0.1:0/0",)


class Pair:
    """Two kernels and a connection; behind the far one a thread answers each message with the same.

    ``back``: what is received comes over another connection, as from another process.
    ``place``: where the far one listens.
    """

    def __init__(self, back: str = "link", threads: tuple[str, ...] = (), place: str = TCP) -> None:
        names = {"link", back}
        self.back = back
        self._transport = place.partition("://")[0]
        self.seen = Events()
        """What the engines of the far kernel report."""
        self.far = Kernel(_plan("listen", dict.fromkeys(names, place), back))
        self.far.events.append(self.seen)
        self.far.start().wait_running()
        self.near = Kernel(self.plan(threads)).start()
        self.near.wait_running()
        self._answering = threading.Thread(target=self._answer, daemon=True)
        self._answering.start()
        self.channel: Channel = self.near.open("app")

    def plan(self, threads: tuple[str, ...] = ()) -> Plan:
        """Return that of the near kernel."""
        names = {"link", self.back}
        addresses = {name: f"{self._transport}://{self.far.address_of(name)}" for name in names}
        return _plan("dial", addresses, self.back, threads)

    def _answer(self) -> None:
        with self.far.open("app") as channel:
            try:
                while True:
                    message = channel.receive_message()
                    channel.send_message(message)
            except KernelClosed:
                return

    def lend(self) -> Any:
        """Exchange messages until there is a lease; return it."""
        # A channel that has given leases back asks less often, which would take long here.
        self.channel._borrower.after = 8
        for number in range(1000 * ENOUGH):
            self.ask(b"lend %d" % number)
            leased = self.channel.leased
            if leased is not None and leased.active:
                return leased
        raise AssertionError("no lease")

    def ask(self, body: bytes) -> None:
        self.channel.send(body)
        assert self.channel.receive(10) == body

    def close(self) -> None:
        self.near.close()
        self.far.close()
        self.near.join()
        self.far.join()
        self._answering.join(10)
        assert not self._answering.is_alive()


def _plan(mode: str, addresses: dict[str, str], back: str, threads: tuple[str, ...] = ()) -> Plan:
    """What is sent goes from the application to ``link``, and at the listeners it goes the other way round.

    ``threads``: one for each connection.
    """
    there, here = ("link", back) if mode == "dial" else (back, "link")
    names = sorted(addresses)
    return Plan(
        threads=tuple(ThreadPlan(name=name) for name in threads),
        engines=(
            *(
                EnginePlan(
                    name=name,
                    kind="stream",
                    thread=thread,
                    options={"address": addresses[name], "mode": mode},
                )
                for name, thread in zip(names, threads or (None,) * len(names), strict=True)
            ),
            EnginePlan(name="app", kind="native"),
        ),
        routes=(
            RoutePlan(source="app", targets=(there,)),
            RoutePlan(source=here, targets=("app",)),
        ),
    )


@pytest.fixture(params=["link", "back", *DATAGRAMS])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(place=request.param) if request.param in DATAGRAMS else Pair(request.param)
    yield pair
    pair.close()


def test_lone_messages_pass_without_the_poll_thread(pair: Pair) -> None:
    lease, received = pair.lend(), 0
    # On a busy machine a look may end it before its first message.
    while lease.received <= received:
        lease = pair.lend()
        received = lease.received
        for number in range(20):
            pair.ask(b"%d" % number)


def test_what_is_not_one_short_message_takes_the_usual_way_and_keeps_its_order(pair: Pair) -> None:
    def two_at_once() -> list[bytes]:
        pair.channel.send(b"first")
        pair.channel.send(b"second")
        return [bytes(pair.channel.receive(10)) for _ in range(2)]

    def batch() -> list[bytes]:
        pair.channel.send_many([b"first", b"second"])
        return [bytes(pair.channel.receive(10)) for _ in range(2)]

    def keyed() -> list[bytes]:
        pair.channel.send(b"first", key="k")
        pair.channel.send(b"second")
        assert pair.channel.receive_message(10).envelope.key == "k"
        return [b"first", bytes(pair.channel.receive(10))]

    def parts() -> list[bytes]:
        pair.channel.send_parts([b"fir", b"st"])
        pair.channel.send(b"second")
        return [bytes(pair.channel.receive(10)), bytes(pair.channel.receive_many(1, 10)[0])]

    for use in (two_at_once, batch, keyed, parts):
        pair.lend()
        assert use() == [b"first", b"second"], use.__name__
    pair.lend()
    large = bytes(range(256)) * 1000
    pair.channel.send(large)
    assert bytes(pair.channel.receive(10)) == large
    pair.ask(b"and on")


def test_a_wait_ends_at_its_time_and_the_next_message_still_comes(pair: Pair) -> None:
    pair.lend()
    with pytest.raises(TimedOut):
        pair.channel.receive(0.01)
    with pytest.raises(TimedOut):
        pair.channel.receive_nowait()
    pair.ask(b"on")


def test_messages_are_counted(pair: Pair) -> None:
    before = pair.near.statistics()
    pair.lend()
    for _ in range(10):
        pair.ask(b"ten")
    after = pair.near.statistics()
    counters = {each.name: each.counters for each in after.engines}
    came = counters[pair.back]["messages_in"]
    assert came == counters["link"]["messages_out"]
    assert not any(each.counters.get("messages_in") for each in before.engines)
    assert came >= 10 + ENOUGH // 8
    # Of the streams of an association one is used.
    used = [(pipe.depth, pipe.written) for pipe in after.pipes if pipe.written]
    assert used == [(0, came), (0, came)]


def test_a_kernel_that_closes_wakes_who_waits_with_a_lease() -> None:
    pair = Pair()
    pair.lend()
    closer = threading.Timer(0.05, pair.near.close)
    closer.start()
    with pytest.raises(KernelClosed):
        pair.channel.receive()
    closer.join()
    pair.close()


def test_a_peer_that_goes_is_noticed_by_the_connection(pair: Pair) -> None:
    lease = pair.lend()
    pair.far.close()
    pair.far.join()
    with pytest.raises(TimedOut):
        pair.channel.receive(0.5)
    assert not lease.active


def test_a_route_that_is_added_ends_the_lease_and_gets_the_messages(pair: Pair) -> None:
    lease = pair.lend()
    plan = pair.plan()
    other = RoutePlan(source=pair.back, targets=("other",))
    pair.near.apply(
        Plan(engines=(*plan.engines, EnginePlan(name="other", kind="native")), routes=(*plan.routes, other))
    )
    seen: list[bytes] = []
    with pair.near.open("other") as second:
        # ``apply`` does not wait for the thread of the route's source.  An answer of that thread comes behind it.
        pair.near.inspect("connections")
        pair.ask(b"both")
        seen.append(bytes(second.receive(10)))
    assert seen == [b"both"]
    assert not lease.active


@pytest.mark.parametrize("lost", ["link", "back"])
def test_a_lease_of_two_connections_ends_with_either_of_them(lost: str) -> None:
    pair = Pair("back")
    lease = pair.lend()
    pair.near.remove_engine(lost)
    # An answer that is written to the connection that has gone would be lost.
    pair.seen.wait("disconnected", lost)
    with pytest.raises(TimedOut):
        pair.channel.receive(0.2)
    assert not lease.active
    # The other one is read by its own thread again, and can be lent once more.
    pair.near.add_engine(next(each for each in pair.plan().engines if each.name == lost))
    pair.ask(b"on")
    pair.lend()
    pair.ask(b"and on")
    pair.close()


def test_connections_of_different_threads_are_not_lent_together() -> None:
    pair = Pair("back", threads=("one", "two"))
    for number in range(ENOUGH):
        pair.ask(b"%d" % number)
    assert pair.channel.leased is None
    pair.close()


# ---------------------------------------------------------------------- signals


def test_a_handler_may_wait_for_the_poll_thread_in_the_middle_of_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that calls ``Kernel.join`` does when a signal ends the program."""
    monkeypatch.setattr(poller, "TURN_TIMEOUT", 0.01)
    pair = Pair()
    states: list[Any] = []
    # On a busy machine a look may end the lease before its first message.
    while not states:
        lease = pair.lend()
        decode = lease._decode

        def decode_and_wait(data: bytes, lease: Any = lease, decode: Callable[[bytes], Any] = decode) -> Any:
            # Where a handler of a signal would run.
            lease._decode = decode
            states.append(pair.near.inspect("connections"))
            return decode(data)

        lease._decode = decode_and_wait
        pair.ask(b"during")
    assert lease._turn is not lease._holder.turn
    pair.ask(b"after")
    pair.lend()
    pair.close()


@pytest.mark.slow
def test_a_handler_that_raises_anywhere_loses_nothing_and_repeats_nothing(pair: Pair) -> None:
    places: set[str] = set()
    for which in ("send", "receive"):
        at = 0
        while True:
            pair.lend()
            mine, marker = b"%s %d" % (which.encode(), at), b"marker %d" % at
            if which == "send":
                where, _ = interrupted(lambda: pair.channel.send(mine), at, files=EVERYWHERE)  # noqa: B023 - called at once
                expected = [[mine, marker], [marker]]
                answer = None
            else:
                pair.channel.send(mine)
                where, answer = interrupted(lambda: pair.channel.receive(10), at, files=EVERYWHERE)
                expected = [[mine, marker]]
            got = [] if answer is None else [bytes(answer)]
            pair.channel.send(marker)
            while not got or got[-1] != marker:
                got.append(bytes(pair.channel.receive(10)))
            assert got in expected, where
            if not where:
                break
            places.add(where)
            at += 1
    # As many as there are: each call in the two methods, and in what they call.
    assert {place.partition(":")[0] for place in places} >= {"send", "receive"}
    assert len(places) > 10


@pytest.mark.slow
def test_a_handler_that_waits_anywhere_while_the_lease_is_ended_loses_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "TURN_TIMEOUT", 0.005)
    places: set[str] = set()
    for which in ("send", "receive"):
        at = 0
        while True:
            lease = pair.lend()

            def end_and_wait() -> None:
                # As the look of the other thread does when its lock is not valid any more.
                lease._to_connection(lease.end)  # noqa: B023 - called at once
                pair.near.inspect("connections")

            mine = b"%s %d" % (which.encode(), at)
            if which == "send":
                where, _ = interrupted(lambda: pair.channel.send(mine), at, end_and_wait)  # noqa: B023
                got = pair.channel.receive(10)
            else:
                pair.channel.send(mine)
                where, got = interrupted(lambda: pair.channel.receive(10), at, end_and_wait)
            assert bytes(got) == mine, where
            pair.ask(b"after %d" % at)
            if not where:
                break
            places.add(where)
            at += 1
    assert {place.partition(":")[0] for place in places} >= {"send", "receive"}
    assert len(places) > 10
