"""Confirmation from end to end, taking again, and what happens when an owner raises."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import MixedBatch, mixed_batch
from kernel.dispatcher.route import RouteSpec
from kernel.routing.fan_out import FanOut
from tests.kernel.dispatcher.conftest import Owner, System
from tests.seeds import examples


def test_a_source_learns_what_every_destination_has_confirmed(system: System) -> None:
    system.route("a", "b", "c", confirm=True)
    for name in "abc":
        system.port(name)
    system.turn()
    a, b, c = (system.ports[name] for name in "abc")
    assert a.confirms
    assert b.wants_confirm
    system.send("a", b"1", b"2")
    system.take("b")
    system.take("c")
    b.confirm_through(2)
    system.turn()
    assert a.confirmed() == 0
    c.confirm_through(1)
    c.confirm_through(2)
    system.turn()
    assert a.confirmed() == a.sent() == 2
    assert system.owners["a"].confirmations == [2]


def test_routes_that_do_not_confirm_do_not_count(system: System) -> None:
    system.route("a", "b", confirm=True)
    system.route("a", "c")
    for name in "abc":
        system.port(name)
    system.turn()
    system.send("a", b"1")
    system.take("b")
    system.confirm("b", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 1
    assert not system.ports["c"].wants_confirm


def test_a_reader_can_tell_where_messages_came_from(system: System) -> None:
    route = system.route("a", "t")
    system.route("b", "t", confirm=True)
    for name in "abt":
        system.port(name)
    system.turn()
    system.send("a", b"1")
    system.take("t")
    assert system.ports["t"].origin == ("a", route.name)
    system.send("b", b"2")
    system.take("t")
    assert system.ports["t"].origin[0] == "b"


def test_a_message_that_nobody_wants_is_confirmed(system: System) -> None:
    system.route("a", "b", confirm=True, wants=lambda envelope: envelope.key == "k")
    system.port("a")
    system.port("b")
    system.turn()
    system.send("a", b"1")
    system.turn()
    assert system.owners["a"].confirmations == [1]


def test_confirmations_of_mixed_pipes_are_booked_in_the_order_of_taking(system: System) -> None:
    system.route("a", "t", confirm=True)
    system.route("b", "t")
    system.route("c", "t", confirm=True)
    for name in "abct":
        system.port(name)
    system.turn()
    order = []
    for name in "abc":
        system.send(name, name.encode() * 1, name.encode() * 2)
        order += system.take("t")
    assert len(order) == 6
    target = system.ports["t"]
    target.confirm_through(3)
    system.turn()
    assert (system.ports["a"].confirmed(), system.ports["c"].confirmed()) == (2, 0)
    target.confirm_through(6)
    system.turn()
    assert (system.ports["a"].confirmed(), system.ports["c"].confirmed()) == (2, 2)


def test_plain_messages_taken_first_are_counted_by_whoever_confirms(system: System) -> None:
    system.route("a", "t", confirm=True)
    system.route("b", "t")
    for name in "abt":
        system.port(name)
    system.turn()
    for name in "ba":
        system.send(name, b"1")
        system.take("t")
    system.confirm("t", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 0, "that was for the plain one"
    system.confirm("t", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 1


def test_take_again_gives_what_was_taken_and_not_confirmed_in_order(system: System) -> None:
    system.route("a", "t", confirm=True)
    system.route("b", "t", confirm=True)
    for name in "abt":
        system.port(name)
    system.turn()
    target = system.ports["t"]
    system.send("a", b"a1", b"a2", b"a3")
    system.take("t")
    system.send("b", b"b1")
    system.take("t")
    system.send("a", b"a4")
    system.take("t")
    target.confirm_through(2)
    assert [body for batch in target.take_again().batches for body in batch.bodies] == [b"a3", b"b1", b"a4"]
    target.confirm_through(5)  # of the old positions: they mean nothing any more
    system.turn()
    assert system.ports["b"].confirmed() == 0
    target.confirm_through(8)
    system.turn()
    assert (system.ports["a"].confirmed(), system.ports["b"].confirmed()) == (4, 1)
    assert not target.take_again()


def test_take_again_leaves_out_what_nobody_waits_for(system: System) -> None:
    system.route("a", "t", confirm=True)
    system.route("b", "t")
    for name in "abt":
        system.port(name)
    system.turn()
    for name, body in (("a", b"a1"), ("b", b"b1"), ("a", b"a2")):
        system.send(name, body)
        system.take("t")
    target = system.ports["t"]
    assert [body for batch in target.take_again().batches for body in batch.bodies] == [b"a1", b"a2"]
    target.confirm_through(5)
    system.turn()
    system.turn()
    assert system.ports["b"].confirmed() == 0


def test_unconfirmed_messages_of_a_dead_worker_are_handed_over(system: System) -> None:
    system.route("a", "w", router="round-robin", confirm=True)
    system.port("a")
    system.port("w/1", "w", thread="t1")
    system.port("w/2", "w", thread="t2")
    system.turn()
    system.send("a", *[b"%d" % number for number in range(8)])
    system.turn()
    one, two = system.ports["w/1"], system.ports["w/2"]
    first = [body for batch in one.take().batches for body in batch.bodies]
    one.confirm_through(1)
    second = [body for batch in two.take().batches for body in batch.bodies]
    two.confirm_through(len(second))
    system.turn()
    assert system.ports["a"].confirmed() < 8
    one.close()
    system.turn()
    handed = [body for batch in two.take().batches for body in batch.bodies]
    assert handed == first[1:]
    system.turn()
    assert system.ports["a"].confirmed() < 8, "the heir has not confirmed yet"
    two.confirm_through(len(second) + len(handed))
    system.turn()
    assert system.ports["a"].confirmed() == 8


def test_unconfirmed_messages_wait_for_the_return_of_the_only_destination(system: System) -> None:
    system.route("a", "b", confirm=True)
    system.port("a")
    system.port("b")
    system.turn()
    for body in (b"1", b"2", b"3"):
        system.send("a", body)
    system.take("b")
    system.confirm("b", 1)
    system.ports["b"].close()
    system.turn()
    assert system.ports["a"].confirmed() == 1
    assert not system.send("a", b"4")
    system.port("b")
    system.turn()
    assert system.take("b") == [b"2", b"3", b"4"]
    system.confirm("b", 3)
    system.turn()
    assert system.ports["a"].confirmed() == 4


def test_nobody_is_told_after_the_source_has_gone(system: System) -> None:
    system.route("a", "b", confirm=True)
    system.port("a")
    system.port("b")
    system.turn()
    system.send("a", b"1")
    system.ports["a"].close()
    assert system.take("b") == [b"1"]
    system.confirm("b", 1)
    system.turn()
    assert system.owners["a"].confirmations == []


def test_a_target_forgets_confirming_sources_that_have_gone(system: System) -> None:
    """A listener that confirms has a new source port for each connection that it ever had."""
    system.route("a", "b", confirm=True)
    system.port("b")
    for number in range(50):
        port = system.port(f"a/{number}", "a", thread="a")
        system.turn()
        port.send([batch_of([b"x"])])
        assert system.take("b") == [b"x"]
        system.confirm("b", 1)
        port.close()
        system.turn()
        system.take("b")
    assert not system.ports["b"].wants_confirm


def test_dropping_and_confirming_together_never_leave_the_source_waiting(system: System) -> None:
    for when_full in ("drop-newest", "drop-oldest"):
        source, target = f"a {when_full}", f"b {when_full}"
        system.route(source, target, confirm=True, when_full=when_full, high=2)
        system.port(source)
        system.port(target)
        system.turn()
        for number in range(10):
            system.send(source, b"%d" % number)
        system.confirm(target, len(system.take(target)))
        system.turn()
        assert system.ports[source].confirmed() == 10, when_full


class Failing(Owner):
    """An engine that raises whenever it is called."""

    def on_output(self) -> None:
        raise ZeroDivisionError("output")

    def on_writable(self) -> None:
        raise ZeroDivisionError("writable")

    def on_confirmed(self, position: int) -> None:
        raise ZeroDivisionError("confirmed")


def test_an_owner_that_raises_is_blamed_and_its_thread_goes_on(system: System) -> None:
    blamed: list[str] = []
    system.route("a", "b", confirm=True, high=1)
    for name in "ab":
        system.port(name, owner=Failing()).on_failure = lambda error: blamed.append(str(error))
    system.turn()
    system.send("a", b"1")
    system.take("b")
    system.confirm("b", 1)
    system.turn()
    assert sorted(set(blamed)) == ["confirmed", "output", "writable"]


class BadRouter:
    """A router of a plugin that raises where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __getattr__(self, name: str) -> object:
        def method(*_: object) -> object:
            if name == self._where:
                raise ZeroDivisionError(name)
            return ()

        return method


@pytest.mark.parametrize("where", ["attach", "detach", "subscribe"])
def test_a_router_that_raises_is_blamed_and_its_thread_goes_on(system: System, where: str) -> None:
    blamed: list[str] = []
    system.port("a").on_failure = lambda error: blamed.append(str(error))
    spec = msgspec.structs.replace(
        system.route("x", "y"), source="a", targets=("b",), make_router=lambda: BadRouter(where)
    )
    system.dispatcher.add_route(spec)
    port = system.port("b")
    port.subscribe("pattern")
    system.turn()
    port.close()
    system.turn()
    assert blamed == [where]


@settings(max_examples=examples(120))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "take", "confirm", "die", "join", "turn"]),
            st.integers(0, 2),
            st.integers(1, 6),
        ),
        max_size=60,
    ),
    st.sampled_from(["round-robin", "fan-out"]),
)
def test_the_source_hears_only_of_what_whoever_was_promised_it_has_confirmed(
    steps: list[tuple[str, int, int]], router: str
) -> None:
    """Round robin: somebody.  Fan-out: every engine of the route, through however many lives of its port."""
    system = System()
    try:
        _Lives(system, router).run(steps)
    finally:
        system.close()


class _Lives:
    """Three workers that come, take, confirm and die: of one engine, or each of its own."""

    def __init__(self, system: System, router: str) -> None:
        self.system = system
        self.engines = ["w"] * 3 if router == "round-robin" else ["w0", "w1", "w2"]
        system.route("a", *dict.fromkeys(self.engines), router=router, confirm=True, high=5)
        self.source = system.port("a")
        self.ports: dict[int, str] = {}
        self.taken: dict[int, list[bytes]] = {}
        self.confirmed: dict[str, set[bytes]] = {engine: set() for engine in self.engines}
        self.sent: list[bytes] = []
        self.generation = 0

    def run(self, steps: list[tuple[str, int, int]]) -> None:
        for what, number, count in steps:
            getattr(self, what)(number, count)
            self.check()
        for number in range(3):
            self.join(number, 0)
        for _ in range(200):  # now everybody reads and confirms
            for number in range(3):
                self.take(number, 1 << 30)
                self.confirm(number, 1 << 30)
            self.turn()
            if self.source.confirmed() == len(self.sent):
                break
        assert self.source.confirmed() == self.source.sent() == len(self.sent)
        self.check()

    def check(self) -> None:
        told = self.sent[: self.source.confirmed()]
        assert all(confirmed.issuperset(told) for confirmed in self.confirmed.values())

    def send(self, _: int, count: int) -> None:
        fresh = [b"%d" % (len(self.sent) + at) for at in range(count)]
        self.sent += fresh
        self.source.send([batch_of(fresh)])

    def turn(self, *_: int) -> None:
        self.system.turn()

    def join(self, number: int, _: int) -> None:
        if number not in self.ports:
            self.generation += 1
            self.ports[number] = name = f"{self.engines[number]}/{self.generation}"
            self.system.port(name, self.engines[number], thread=f"t{number}")
            self.taken[number] = []

    def take(self, number: int, count: int) -> None:
        if number in self.ports:
            self.system.turn(f"t{number}")
            taken = self.system.ports[self.ports[number]].take(count)
            self.taken[number] += [bytes(body) for batch in taken.batches for body in batch.bodies]

    def confirm(self, number: int, count: int) -> None:
        if number in self.ports:
            taken = self.taken[number]
            done = taken[:count]
            del taken[:count]
            self.confirmed[self.engines[number]].update(done)
            self.system.confirm(self.ports[number], len(done))

    def die(self, number: int, _: int) -> None:
        if number in self.ports:
            self.system.ports[self.ports.pop(number)].close()


def test_a_port_knows_whether_a_route_lets_an_envelope_pass(system: System) -> None:
    wants = Envelope(key="wanted")
    system.port("a")
    system.turn()
    assert not system.ports["a"].wants(wants)
    system.route("a", "b", wants=lambda envelope: envelope.key == "wanted")
    system.turn()
    assert system.ports["a"].wants(wants)
    assert not system.ports["a"].wants(Envelope(key="other"))
    system.route("a", "c")
    system.turn()
    assert system.ports["a"].wants(Envelope(key="other"))


def test_a_port_knows_whether_a_router_would_find_somebody(system: System) -> None:
    port = system.port("a")
    system.route("a", "b", router="by-key")
    reader = system.port("b")
    system.turn()
    assert not port.wants(Envelope(key="k"))
    reader.subscribe("k")
    system.turn()
    assert port.wants(Envelope(key="k"))
    assert port.wants(batch_of([b"x"], Envelope(key="k")))
    assert not port.wants(Envelope(key="other"))
    reader.unsubscribe("k")
    system.turn()
    assert not port.wants(Envelope(key="k"))


def test_a_router_that_looks_at_bodies_is_asked_with_the_run(system: System) -> None:
    class ByBody(FanOut):
        def wants(self, batch: Batch) -> bool:
            return not batch.bodies or batch.bodies[0].startswith(b"y")

    port = system.port("a")
    system.port("b")
    system.dispatcher.add_route(
        RouteSpec(name="r", source="a", targets=("b",), make_router=ByBody, by_content=True)
    )
    system.turn()
    assert port.wants(batch_of([b"yes"]))
    assert not port.wants(batch_of([b"no"]))
    assert port.wants(Envelope()), "the envelope alone does not decide"


def test_a_source_that_counts_is_told_of_each_message_also_when_a_single_plain_route_is_left(
    system: System,
) -> None:
    system.route("a", "b")
    careful = system.route("a", "c", confirm=True)
    for name in "abc":
        system.port(name)
    system.turn()
    system.dispatcher.remove_route(careful)
    system.turn()
    system.send("a", b"1", b"2")
    system.turn()
    assert (system.ports["a"].confirms, system.ports["a"].sent()) == (True, 2)
    assert system.owners["a"].confirmations == [2]


def test_a_late_confirmation_of_what_nobody_waits_for_is_none_of_what_came_later(system: System) -> None:
    system.route("a", "t", confirm=True)
    system.route("b", "t")
    for name in "bt":
        system.port(name)
    system.turn()
    target = system.ports["t"]
    system.send("b", b"1", b"2")
    system.turn()
    plain = target.take()
    assert (plain.count, plain.position) == (2, None)
    system.port("a")
    system.turn()
    system.send("a", b"3", b"4")
    system.turn()
    waited_for = target.take()
    assert (waited_for.count, waited_for.position) == (2, 4)
    for position in (1, 2):  # a peer that counts has just received the first two
        target.confirm_through(position)
    system.turn()
    assert system.ports["a"].confirmed() == 0
    for position in (4, 3, 4):
        target.confirm_through(position)
    system.turn()
    assert system.owners["a"].confirmations == [2]


def test_only_who_accepts_mixed_batches_gets_them(system: System) -> None:
    system.route("a", "b")
    system.route("c", "d", wants=lambda envelope: envelope.key != "y")
    system.route("e", "f", confirm=True)
    for name in "abcdef":
        system.port(name).accept_mixed(accepts=name != "b")
    system.turn()
    given = mixed_batch([b"1", b"2", b"3"], ["x", "y", "y"])
    for name in "ace":
        system.ports[name].send([given])
    system.turn()
    taken = {name: system.ports[name].take().batches for name in "bdf"}
    assert [(list(batch.bodies), batch.envelope.key) for batch in taken["b"]] == [
        ([b"1"], "x"),
        ([b"2", b"3"], "y"),
    ]
    # A filter decides for each message, and what is to be confirmed is kept as batches.
    assert [(list(batch.bodies), batch.envelope.key) for batch in taken["d"]] == [([b"1"], "x")]
    assert not any(isinstance(batch, MixedBatch) for batch in taken["f"])
    assert system.ports["c"].unrouted == 2
    system.ports["b"].accept_mixed()
    system.ports["a"].send([given])
    system.turn()
    assert system.ports["b"].take().batches == [given]
    # A pipe that is attached later as well.
    system.port("a2", "a")
    system.turn()
    system.ports["a2"].send([given])
    system.turn()
    assert system.ports["b"].take().batches == [given]
