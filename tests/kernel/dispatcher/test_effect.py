"""When subscriptions are in effect: questions between ports, and those that a peer has to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import HOPS
from kernel.contracts.router import Outlet
from tests.kernel.dispatcher.conftest import Owner, System


class Connected(Owner):
    """The owner of a source's port whose peer answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_on: list[str] = []
        self.asked: list[int] = []

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        self.passed_on.append(pattern)

    def on_sync(self, hops: int) -> None:
        self.asked.append(hops)


class Reader(Owner):
    """Counts how often it hears that its subscriptions are in effect."""

    def __init__(self) -> None:
        super().__init__()
        self.in_effect = 0

    def on_subscribed(self) -> None:
        self.in_effect += 1


def one_source(system: System) -> tuple[Any, Connected, Any, Reader]:
    """A port with a peer, and a reader of what comes from it."""
    system.route("net", "reader", router="by-key")
    source, reader = Connected(), Reader()
    ports = system.port("net", owner=source), system.port("reader", owner=reader)
    system.turn()
    return ports[0], source, ports[1], reader


def test_a_source_with_a_peer_answers_when_its_peer_has(system: System) -> None:
    net, source, reader, owner = one_source(system)
    reader.subscribe("k")
    assert not reader.subscribed()
    system.turn()
    assert (source.passed_on, source.asked, owner.in_effect) == (["k"], [HOPS], 0)
    assert not reader.subscribed()
    assert net.unsynced() == [HOPS]
    net.synced(HOPS)
    system.turn()
    assert reader.subscribed()
    assert (owner.in_effect, net.unsynced()) == (1, [])


def test_nobody_is_asked_until_somebody_wants_to_know(system: System) -> None:
    _, source, reader, _ = one_source(system)
    reader.subscribe("k")
    system.turn()
    assert source.asked == []


def test_a_subscription_while_a_question_is_under_way_takes_one_more_question(system: System) -> None:
    net, source, reader, owner = one_source(system)
    reader.subscribe("a")
    assert not reader.subscribed()
    for pattern in "bcd":
        reader.subscribe(pattern)
        assert not reader.subscribed()
    system.turn()
    assert source.asked == [HOPS]
    net.synced(HOPS)
    system.turn()
    assert (source.asked, owner.in_effect) == ([HOPS] * 2, 0)
    assert not reader.subscribed()
    net.synced(HOPS)
    system.turn()
    assert reader.subscribed()
    assert owner.in_effect == 1


def test_subscriptions_that_a_port_brings_are_asked_about(system: System) -> None:
    system.route("net", "reader", router="by-key")
    source = Connected()
    net = system.port("net", owner=source)
    reader = system.port("reader", subscriptions=["k"])
    system.turn("reader")
    assert not reader.subscribed()
    system.turn()
    assert source.asked == [HOPS]
    net.synced(HOPS)
    system.turn()
    assert reader.subscribed()


def test_a_new_source_is_asked_too(system: System) -> None:
    net, _, reader, _ = one_source(system)
    reader.subscribe("k")
    reader.subscribed()
    system.turn()
    net.synced(HOPS)
    system.turn()
    assert reader.subscribed()
    later = Connected()
    other = system.port("another", group="net", owner=later)
    system.turn()
    assert not reader.subscribed()
    system.turn()
    assert later.asked == [HOPS]
    net.synced(HOPS)
    other.synced(HOPS)
    system.turn()
    assert reader.subscribed()


def test_readers_share_a_question_unless_a_pattern_was_passed_on_after_it(system: System) -> None:
    system.route("net", "one", "two", router="by-key")
    source = Connected()
    net = system.port("net", owner=source)
    one, two = system.port("one"), system.port("two")
    system.turn()
    one.subscribe("k")
    one.subscribed()
    system.turn()
    two.subscribe("k")
    assert not two.subscribed()
    system.turn()
    assert source.asked == [HOPS]
    two.subscribe("other")
    system.turn()
    net.synced(HOPS)
    system.turn()
    assert one.subscribed()
    assert not two.subscribed()
    system.turn()
    assert source.asked == [HOPS] * 2
    net.synced(HOPS)
    system.turn()
    assert two.subscribed()


def test_a_reader_behind_another_pattern_is_not_answered_by_the_question_before_it(system: System) -> None:
    system.route("net", "one", "two", router="by-key")
    source = Connected()
    net = system.port("net", owner=source)
    one, two = system.port("one"), system.port("two")
    system.turn()
    one.subscribe("a")
    one.subscribed()
    system.turn()
    two.subscribe("b")
    two.subscribed()
    system.turn()
    net.synced(HOPS)
    system.turn()
    assert one.subscribed()
    assert not two.subscribed()
    net.synced(HOPS)
    system.turn()
    assert two.subscribed()


def test_a_source_that_goes_is_not_waited_for_and_the_owner_hears_it(system: System) -> None:
    net, _, reader, owner = one_source(system)
    reader.subscribe("k")
    assert not reader.subscribed()
    system.turn()
    net.close()
    system.turn()
    assert reader.subscribed()
    assert owner.in_effect == 1


def test_the_end_of_a_source_is_an_answer_to_a_peer_once_it_is_read(system: System) -> None:
    net, _, reader, _ = one_source(system)
    reader.subscribe("k")
    system.turn()
    system.send("net", b"last", key="k")
    got, answer = answers()
    reader.when_subscribed(3, answer("gone"))
    system.turn()
    net.close()
    system.turn()
    assert got == []
    assert (system.take("reader"), got) == ([b"last"], [])
    system.turn()
    assert got == ["gone"]


def test_a_route_that_is_removed_is_not_waited_for(system: System) -> None:
    spec = system.route("net", "reader", router="by-key")
    source = Connected()
    net, reader = system.port("net", owner=source), system.port("reader")
    system.turn()
    reader.subscribe("k")
    assert not reader.subscribed()
    system.turn()
    system.dispatcher.remove_route(spec)
    system.turn()
    assert reader.subscribed()
    assert not any(level.waiting or level.following for level in net._peer_answers._levels.values())


def test_a_reader_that_goes_leaves_nothing_behind(system: System) -> None:
    net, source, reader, _ = one_source(system)
    reader.subscribe("k")
    for hops in range(1, HOPS):
        reader.when_subscribed(hops, list)
    reader.subscribed()
    system.turn()
    assert sorted(source.asked) == list(range(1, HOPS + 1))
    reader.close()
    system.turn()
    assert not any(level.waiting or level.following for level in net._peer_answers._levels.values())


# ---------------------------------------------------------------------- questions of peers


def answers() -> tuple[list[str], Callable[[str], Callable[[], Any]]]:
    got: list[str] = []
    return got, lambda name: lambda: got.append(name)


def test_hops_are_used_up_and_then_no_peer_is_asked(system: System) -> None:
    _, source, reader, _ = one_source(system)
    got, answer = answers()
    reader.when_subscribed(0, answer("none left"))
    system.turn()
    assert (got, source.asked) == (["none left"], [])
    reader.when_subscribed(200, answer("absurd"))
    system.turn()
    assert source.asked == [HOPS - 1]


def test_questions_with_different_hops_do_not_wait_for_each_other(system: System) -> None:
    net, source, reader, _ = one_source(system)
    got, answer = answers()
    for hops in (3, 2, 1):
        reader.when_subscribed(hops, answer(str(hops)))
    system.turn()
    assert source.asked == [3, 2, 1]
    for hops in (2, 1, 3):
        net.synced(hops)
        system.turn()
    assert got == ["2", "1", "3"]


def test_questions_with_the_same_hops_are_asked_together(system: System) -> None:
    net, source, reader, _ = one_source(system)
    got, answer = answers()
    for name in "abc":
        reader.when_subscribed(3, answer(name))
    reader.subscribe("k")
    for name in "de":
        reader.when_subscribed(3, answer(name))
    system.turn()
    assert source.asked == [3]
    net.synced(3)
    system.turn()
    assert (got, source.asked) == (["a", "b", "c"], [3, 3])
    net.synced(3)
    system.turn()
    assert got == ["a", "b", "c", "d", "e"]


def test_a_port_without_sources_answers_at_once(system: System) -> None:
    got, answer = answers()
    port = system.port("alone")
    port.when_subscribed(3, answer("at once"))
    port.subscribe("k")
    assert port.subscribed()
    assert got == ["at once"]


def test_a_thread_of_the_application_is_not_waited_for_by_a_peer(system: System) -> None:
    system.slots["app"] = system.dispatcher.borrow_slot("app")
    system.route("app", "net", router="by-key")
    system.port("app")
    net = system.port("net")
    system.turn()
    net.subscribe("k")
    got, answer = answers()
    net.when_subscribed(3, answer("a peer"))
    assert got == ["a peer"]
    assert not net.subscribed()
    system.turn("net")
    assert not net.subscribed()
    system.turn("app", "net")
    assert net.subscribed()


def test_what_an_earlier_conversation_asked_is_forgotten_but_not_what_the_port_asks(system: System) -> None:
    net, _, reader, owner = one_source(system)
    got, answer = answers()
    reader.subscribe("k")
    assert not reader.subscribed()
    reader.when_subscribed(3, answer("before"))
    reader.subscribe("other")
    reader.when_subscribed(3, answer("before, too"))
    reader.forget_when_subscribed()
    reader.when_subscribed(3, answer("after"))
    for _ in range(2):
        system.turn()
        net.synced(HOPS)
        net.synced(3)
    system.turn()
    assert got == ["after"]
    assert owner.in_effect == 1


def test_a_peer_that_answers_at_once_may_do_so_inside_the_call(system: System) -> None:
    net, source, reader, _ = one_source(system)
    source.on_sync = net.synced  # type: ignore[method-assign]
    net._peer_answers._ask_peer = net.synced
    reader.subscribe("k")
    assert not reader.subscribed()
    system.turn()
    assert reader.subscribed()


def test_an_answer_that_nobody_waits_for_changes_nothing(system: System) -> None:
    net, _, reader, owner = one_source(system)
    net.synced(HOPS)
    system.turn()
    assert reader.subscribed()
    assert owner.in_effect == 0
