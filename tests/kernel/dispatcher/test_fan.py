"""Small messages to all pipes of a fan-out at once: each reader gets what it would get batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Buffer, Envelope, batch_of, batch_of_one
from kernel.dispatcher.ack_tracker import Entry
from kernel.dispatcher.route import Route
from kernel.hosting.fast_sender import fast_sender
from kernel.pipes.pipe_fan import PipeFan
from tests.kernel.dispatcher.conftest import System
from tests.seeds import examples

READERS = ("a", "b", "c")
HIGH = 8


class Full(Exception):
    """A pipe is full."""


class Source:
    """The port ``source``, with a sender as a channel has it."""

    def __init__(self, system: System) -> None:
        self.port = system.port("source")
        # What is posted to the source is done by ``turn``, before it sends.
        self.fast = fast_sender((), self._long_way)
        self.port.on_topology = self._plug
        self._plug()

    def _plug(self) -> None:
        self.fast.plug(self.port.fast_pipe())

    def _long_way(self, body: Buffer, key: str | None, timeout: float | None) -> None:
        if self.fast.refill(body, key):
            return
        envelope = Envelope(key=key) if key is not None else Envelope()
        self.send_batch(batch_of_one(body, envelope))

    def send_batch(self, batch: Batch) -> None:
        self.fast.give_back()
        if not self.port.has_room_for(batch):
            self.port.stop()
            raise Full
        self.port.send((batch,))

    def send(self, body: bytes, key: str | None = None) -> bool:
        """Send a message; return whether there was room."""
        try:
            self.fast.send(body, key=key)
        except Full:
            return False
        return True


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages have passed a route."""
    offered: list[int] = []
    offer = Route.offer

    def counted(self: Route, batch: Batch, entry: Entry | None = None) -> bool:
        offered.append(len(batch.bodies))
        return offer(self, batch, entry)

    monkeypatch.setattr(Route, "offer", counted)
    return offered


def _three(system: System, **options: Any) -> Source:
    for name in READERS:
        system.port(name)
    system.route("source", *READERS, **options)
    source = Source(system)
    system.turn()
    return source


def test_small_messages_reach_all_readers_without_a_look_at_the_route(
    system: System, offered: list[int]
) -> None:
    source = _three(system)
    assert isinstance(source.port.fast_pipe(), PipeFan)
    sent = [b"%d" % number for number in range(3000)]
    for number, body in enumerate(sent):
        assert source.send(body, "k" if number % 2 else None)
    for name in READERS:
        assert system.take(name) == sent
    assert not offered
    # Unused credit counts as written until it is given back.
    source.fast.give_back()
    assert all(pipe.depth() == 0 for pipe in source.port.routes[0].pipes)


def test_keys_come_with_their_messages(system: System) -> None:
    source = _three(system)
    source.send(b"1", "x")
    source.send(b"2")
    source.send(b"3", "y")
    for name in READERS:
        system.turn(name)
        batches = []
        while (taken := system.ports[name].take()).batches:
            batches += taken.batches
        found = [(batch.envelope.key, body) for batch in batches for body in batch.bodies]
        assert found == [("x", b"1"), ("", b"2"), ("y", b"3")]


@pytest.mark.parametrize(
    "change",
    [
        lambda system: system.route("source", "a"),
        lambda system: system.route("source", "d", confirm=True),
        lambda system: system.dispatcher.remove_route(system.ports["source"].routes[0].spec),
    ],
)
def test_what_changes_the_routes_ends_it(system: System, change: Callable[[System], object]) -> None:
    source = _three(system)
    change(system)
    system.turn()
    assert source.port.fast_pipe() is None


@pytest.mark.parametrize(
    "options",
    [
        {"router": "round-robin"},
        {"router": "by-key"},
        {"confirm": True},
        {"wants": lambda envelope: envelope.key != "secret"},
    ],
)
def test_routes_that_choose_filter_or_confirm_are_asked(system: System, options: dict[str, Any]) -> None:
    source = _three(system, **options)
    assert source.port.fast_pipe() is None


def test_the_last_of_two_readers_is_written_to_as_the_only_one(system: System) -> None:
    source = _three(system)
    for name in ("a", "b"):
        system.ports[name].close()
    system.turn()
    assert source.port.fast_pipe() is source.port.short_cut() is source.port.routes[0].pipes[0]
    assert source.send(b"1")
    assert system.take("c") == [b"1"]


def test_the_source_waits_for_the_slowest_and_goes_on(system: System) -> None:
    source = _three(system, high=HIGH)
    sent = 0
    while source.send(b"%d" % sent):
        sent += 1
    assert sent == HIGH
    for name in ("a", "b"):
        assert len(system.take(name)) == sent
    assert not source.send(b"not yet"), "c has taken nothing"
    assert len(system.take("c")) == sent
    system.turn()
    assert source.send(b"now")
    for name in READERS:
        assert system.take(name) == [b"now"]


def test_who_takes_nothing_is_suspended_and_loses_what_comes_meanwhile(system: System) -> None:
    source = _three(system, high=HIGH, stall_timeout=5.0)
    for number in range(HIGH):
        assert source.send(b"%d" % number)
    for name in ("a", "b"):
        system.take(name)
    assert not source.send(b"x")
    system.wait(5.1)
    system.turn()
    assert source.send(b"missed")
    for name in ("a", "b"):
        assert system.take(name) == [b"missed"]
    pipe = next(pipe for pipe in source.port.routes[0].pipes if pipe.engine == "c")
    assert (pipe.suspended, pipe.dropped) == (True, 1)
    # There is room again, but not so much that the source would wait for it.
    begun = system.take("c", 2)
    fan = source.port.fast_pipe()
    assert fan is not None
    assert pipe.suspended
    assert not pipe.full()
    assert not fan.credit(), "it may drop what comes, so it has to see each message"
    assert begun + system.take("c") == [b"%d" % number for number in range(HIGH)]
    system.turn()
    assert not pipe.suspended
    assert source.send(b"again")
    for name in READERS:
        assert system.take(name) == [b"again"]


_STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["", "k", "l"]), st.integers(1, 5)),
    st.tuples(st.just("large"), st.just(""), st.just(1)),
    st.tuples(st.just("batch"), st.sampled_from(["", "k"]), st.integers(1, 4)),
    st.tuples(st.just("take"), st.sampled_from([*READERS, "late"]), st.integers(1, 6)),
    st.tuples(st.just("leave"), st.sampled_from(READERS), st.just(0)),
    st.tuples(st.just("join"), st.just("late"), st.just(0)),
)


@given(st.lists(_STEPS, max_size=40))
@settings(max_examples=examples(100), deadline=None)
def test_everybody_gets_everything_in_order_whatever_happens(  # noqa: C901 - one branch for each step
    steps: list[tuple[str, str, int]],
) -> None:
    system = System()
    for name in READERS:
        system.port(name)
    system.route("source", *READERS, "late", high=HIGH, high_bytes=HIGH * 100)
    source = Source(system)
    system.turn()
    accepted: list[bytes] = []
    since = dict.fromkeys(READERS, 0)
    got: dict[str, list[bytes]] = {name: [] for name in (*READERS, "late")}
    until: dict[str, int] = {}
    held: list[bytes] = []
    """What the last reader has left behind: the next one to join gets it (``Route.detach``)."""
    for what, name, count in steps:
        system.turn()
        if what in ("send", "large"):
            for _ in range(count):
                body = b"%d" % len(accepted) + b"." * (200 if what == "large" else 0)
                if source.send(body, name or None):
                    accepted.append(body)
        elif what == "batch":
            bodies = [b"%d" % (len(accepted) + at) for at in range(count)]
            try:
                source.send_batch(batch_of(list(bodies), Envelope(key=name)))
            except Full:
                continue
            accepted += bodies
        elif what == "take" and name in since and name not in until:
            got[name] += system.take(name, count)
        elif what == "leave" and name not in until:
            system.ports[name].close()
            system.turn()
            until[name] = len(accepted)
            if "late" not in since and len(until) == len(READERS):
                held = accepted[len(got[name]) :]
        elif what == "join" and "late" not in since:
            system.port("late")
            system.turn()
            since["late"] = len(accepted)
    system.turn()
    for name, first in since.items():
        if name in until:
            assert accepted[first : until[name]][: len(got[name])] == got[name]
        else:
            got[name] += system.take(name)
            assert got[name] == [*(held if name == "late" else ()), *accepted[first:]]
    source.fast.give_back()
    assert all(pipe.depth() == 0 for route in source.port.routes for pipe in route.pipes)
