"""Who is connected to whom, and that it may change while messages flow."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence

import pytest

from kernel.contracts.engine import PortGroup
from kernel.contracts.message import Batch, batch_of
from kernel.contracts.router import Outlet
from kernel.routing.round_robin import RoundRobin
from tests.kernel.dispatcher.conftest import ROUTERS, Owner, System, make_batch


def test_a_message_reaches_the_target_of_its_route(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    system.port("b")
    system.turn()
    assert system.send("a", b"hello")
    assert system.take("b") == [b"hello"]
    assert system.owners["b"].outputs == 1


@pytest.mark.parametrize("order", ["route first", "source first", "target first", "route last"])
def test_it_does_not_matter_who_comes_first(system: System, order: str) -> None:
    steps: dict[str, Callable[[], object]] = {
        "route": lambda: system.route("a", "b"),
        "source": lambda: system.port("a"),
        "target": lambda: system.port("b"),
    }
    first, place = order.split()
    names = sorted(steps, key=lambda name: (name == first) == (place == "last"))
    for name in names:
        steps[name]()
        system.turn()
    system.send("a", b"1")
    assert system.take("b") == [b"1"]


def test_a_port_that_has_joined_can_be_answered_before_it_can_be_heard(system: System) -> None:
    """Another thread may look at its mailbox, and at its pipes, between any two posts of the thread that joins."""
    system.route("ask", "answer")
    system.route("answer", "ask", router="reply")
    answer = system.port("answer", thread="two")
    system.turn()
    ask = system.port("ask", thread="one")
    ask.send([batch_of([b"question"])])
    posted = system.slots["two"].mailbox.posted
    while not system.owners["answer"].outputs:
        posted.popleft()()
    assert [len(route.pipes) for route in answer.routes] == [1]


def test_the_matrix_counts_pipes_by_writing_and_reading_thread(system: System) -> None:
    system.route("a", "b")
    system.route("b", "a")
    system.route("a", "c")
    system.port("a", thread="one")
    system.port("b", thread="two")
    system.port("c", thread="one")
    system.turn()
    assert system.dispatcher.matrix() == [[1, 1], [1, 0]]


def test_every_port_of_a_group_gets_a_pipe_of_its_own(system: System) -> None:
    system.route("a", "listener")
    system.port("a")
    system.port("listener/1", "listener", thread="t")
    system.port("listener/2", "listener", thread="t")
    system.turn()
    system.send("a", b"x")
    system.turn()
    assert [system.ports[name].take().batches[0].bodies for name in ("listener/1", "listener/2")] == [
        [b"x"],
        [b"x"],
    ]


def test_the_same_body_object_reaches_every_destination(system: System) -> None:
    system.route("a", "b", "c")
    for name in "abc":
        system.port(name)
    system.turn()
    body = bytes(1000)
    system.ports["a"].send([batch_of([body])])
    system.turn()
    assert system.ports["b"].take().batches[0].bodies[0] is body
    assert system.ports["c"].take().batches[0].bodies[0] is body


def test_a_full_destination_does_not_hold_up_the_others(system: System) -> None:
    system.route("a", "full", "free", high=2)
    for name in ("a", "full", "free"):
        system.port(name)
    system.turn()
    for number in range(10):
        system.send("a", b"%d" % number)
        assert system.take("free") == [b"%d" % number]
    assert len(system.take("full")) == 10


def test_the_source_is_told_to_stop_and_told_to_go_on(system: System) -> None:
    system.route("a", "b", high=2)
    system.port("a")
    system.port("b")
    system.turn()
    assert system.send("a", b"1")
    assert not system.send("a", b"2")
    system.turn()
    assert system.owners["a"].writables == 0
    assert system.take("b") == [b"1", b"2"]
    system.turn()
    assert system.owners["a"].writables == 1
    assert system.send("a", b"3")


def test_messages_sent_before_there_is_a_destination_are_held_in_order(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    assert not system.send("a", b"1")
    assert not system.send("a", b"2", key="k")
    system.port("b")
    system.turn()
    assert system.take("b") == [b"1", b"2"]
    assert system.owners["a"].writables == 1


def test_without_a_route_messages_go_nowhere_and_nothing_waits(system: System) -> None:
    system.port("a")
    assert system.send("a", b"1")


def test_a_route_that_drops_counts_what_found_no_destination(system: System) -> None:
    system.route("a", "b", when_full="drop-newest")
    port = system.port("a")
    assert system.send("a", b"1", b"2")
    assert port.routes[0].unrouted == 2


def test_what_a_closed_source_wrote_is_still_read(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    system.port("b")
    system.turn()
    system.send("a", b"last")
    system.ports["a"].close()
    assert system.take("b") == [b"last"]
    assert system.dispatcher.pipes() == []


def test_a_port_closed_twice_leaves_once(system: System) -> None:
    port = system.port("a")
    port.close()
    port.close()
    assert system.dispatcher.ports() == []


def test_a_removed_route_still_delivers_what_is_in_its_pipes(system: System) -> None:
    spec = system.route("a", "b")
    system.port("a")
    system.port("b")
    system.turn()
    system.send("a", b"1")
    system.dispatcher.remove_route(spec)
    system.turn()
    system.send("a", b"nobody's")
    assert system.take("b") == [b"1"]


def test_a_source_that_waited_for_a_removed_route_goes_on(system: System) -> None:
    spec = system.route("a", "b", high=1)
    system.port("a")
    system.port("b")
    system.turn()
    assert not system.send("a", b"1")
    system.dispatcher.remove_route(spec)
    system.turn()
    assert system.owners["a"].writables == 1


def test_a_source_that_waited_for_a_dead_destination_goes_on(system: System) -> None:
    system.route("a", "b", "c", high=2)
    for name in "abc":
        system.port(name)
    system.turn()
    assert not system.send("a", b"1", b"2")
    system.take("c")
    system.turn()
    assert system.owners["a"].writables == 0
    system.ports["b"].close()
    system.turn()
    assert system.owners["a"].writables == 1


def test_what_was_on_its_way_to_a_dead_worker_goes_to_another(system: System) -> None:
    system.route("a", "w", router="round-robin")
    system.port("a")
    system.port("w/1", "w", thread="t1")
    system.port("w/2", "w", thread="t2")
    system.turn()
    system.send("a", *[b"%d" % number for number in range(6)])
    system.turn()
    system.ports["w/1"].close()
    system.turn()
    got = [bytes(body) for batch in system.ports["w/2"].take().batches for body in batch.bodies]
    assert sorted(got) == [b"%d" % number for number in range(6)]


def test_what_a_dead_destination_leaves_waits_for_its_return(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    system.port("b")
    system.turn()
    system.send("a", b"1")
    system.send("a", b"2")
    system.turn()
    system.ports["b"].close()
    system.turn()
    system.send("a", b"3")
    system.port("b")
    system.turn()
    assert system.take("b") == [b"1", b"2", b"3"]


def test_what_a_dead_subscriber_leaves_is_counted(system: System) -> None:
    system.route("a", "b", "c")
    for name in "abc":
        system.port(name)
    system.turn()
    system.send("a", b"1", b"2")
    system.turn()
    system.ports["b"].close()
    system.turn()
    assert system.ports["a"].abandoned == 2
    assert system.take("c") == [b"1", b"2"]


def test_what_a_source_leaves_waiting_is_counted(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    system.send("a", b"1", b"2")
    system.ports["a"].close()
    assert system.dispatcher.past.of_group("a")["abandoned"] == 2


def test_a_filter_is_asked_once_while_the_envelope_repeats(system: System) -> None:
    asked: list[str] = []

    def wants(envelope: object) -> bool:
        asked.append(envelope.key)  # type: ignore[attr-defined]
        return envelope.key == "yes"  # type: ignore[attr-defined, no-any-return]

    system.route("a", "b", wants=wants)
    system.port("a")
    system.port("b")
    system.turn()
    yes, no = make_batch(b"1", key="yes"), make_batch(b"2", key="no")
    for batch in (yes, yes, no, no, yes):
        system.ports["a"].send([batch])
    assert asked == ["yes", "no", "yes"]
    assert system.take("b") == [b"1", b"1", b"1"]


def test_replies_go_back_to_whom_they_name(system: System) -> None:
    system.route("server", "client", router="reply")
    system.port("server")
    system.port("client/1", "client", thread="t")
    system.port("client/2", "client", thread="t")
    system.turn()
    system.send("server", b"for 2", reply_to="client/2")
    system.send("server", b"for nobody", reply_to="client/9")
    system.turn()
    assert not system.ports["client/1"].take()
    assert [list(batch.bodies) for batch in system.ports["client/2"].take().batches] == [[b"for 2"]]
    assert system.ports["server"].routes[0].unrouted == 1


def test_subscriptions_reach_the_router_before_and_after_the_connection(system: System) -> None:
    system.route("a", "b", router="by-key")
    system.port("a")
    port = system.port("b", subscriptions=["early.*"])
    system.turn()
    port.subscribe("late.#")
    system.turn()
    for key in ("early.x", "late.x.y", "other"):
        system.send("a", key.encode(), key=key)
    assert system.take("b") == [b"early.x", b"late.x.y"]
    port.unsubscribe("late.#")
    system.turn()
    system.send("a", b"unwanted", key="late.x.y")
    assert system.take("b") == []


def test_subscriptions_made_early_apply_to_routes_added_later(system: System) -> None:
    port = system.port("b")
    port.subscribe("k")
    system.route("a", "b", router="by-key")
    system.port("a")
    system.turn()
    system.send("a", b"1", key="k")
    assert system.take("b") == [b"1"]


def test_a_subscription_made_while_the_pipe_is_on_its_way_counts_once(system: System) -> None:
    system.route("a", "b", router="by-key")
    port = system.port("b", subscriptions=["gone"])
    system.port("a")
    system.turn("a")  # the source has its end of the pipe, the target not yet
    port.subscribe("k")
    port.unsubscribe("gone")
    system.turn()
    for key in ("k", "gone"):
        system.send("a", key.encode(), key=key)
    assert system.take("b") == [b"k"]
    port.unsubscribe("k")
    system.turn()
    system.send("a", b"k", key="k")
    assert system.take("b") == []


def test_nothing_is_lost_on_routes_that_stay_while_others_come_and_go(system: System) -> None:
    system.route("a", "stays")
    system.port("a")
    system.port("stays")
    system.turn()
    sent: list[bytes] = []
    got: list[bytes] = []
    for number in range(60):
        body = b"%d" % number
        system.send("a", body)
        sent.append(body)
        if number % 3 == 0:
            guest = system.port(f"guest{number}", "guest", thread="g")
            spec = system.route("a", "guest", confirm=number % 2 == 0)
        elif number % 3 == 1:
            system.dispatcher.remove_route(spec)
        else:
            guest.close()
        if number % 7 == 0:
            got += system.take("stays")
        if number % 5 == 0:
            system.turn()
    assert got + system.take("stays") == sent


@pytest.mark.slow
def test_nothing_is_lost_while_another_thread_changes_routes(system: System) -> None:
    """The writing thread never stops; ports and routes come and go beside it."""
    system.route("a", "stays")
    system.port("stays")
    system.thread("a")
    total = 20_000
    ready = threading.Event()

    def write() -> None:
        system.port("a", thread="a")
        mailbox = system.slots["a"].mailbox
        for number in range(total):
            if number == 100:
                ready.set()
            if mailbox.posted:
                mailbox.process()
            system.ports["a"].send([batch_of([b"%d" % number])])
        ready.set()

    writer = threading.Thread(target=write)
    writer.start()
    ready.wait(10)
    got: list[bytes] = []
    slot = system.thread("guests")
    rounds = 0
    while writer.is_alive():
        rounds += 1
        spec = system.route("a", "guest", router="round-robin" if rounds % 2 else "fan-out")
        port = system.dispatcher.open_port(slot, f"guest/{rounds}", "guest", Owner())
        slot.mailbox.process()
        port.take(10)
        if rounds % 3:
            system.dispatcher.remove_route(spec)
            port.close()
        else:
            port.close()
            system.dispatcher.remove_route(spec)
        got += system.take("stays", 1000)
    writer.join()
    system.turn()
    got += system.take("stays")
    assert got == [b"%d" % number for number in range(total)]


def test_statistics_may_be_read_while_ports_leave(system: System) -> None:
    system.route("a", "b")
    system.port("a")
    port = system.port("b")
    assert len(system.dispatcher.pipes()) == 1
    port.close()
    assert system.dispatcher.pipes() == []
    assert [each.name for each in system.dispatcher.ports()] == ["a"]


def test_a_source_that_goes_before_it_hears_of_a_destination_leaves_no_pipe_behind(system: System) -> None:
    system.route("a", "b", confirm=True)
    system.port("b")
    for _ in range(3):
        system.port("a")
        system.port("late", group="b")
        system.ports["a"].close()
        assert system.take("late") == system.take("b") == []
        for name in ("late", "b"):
            assert len(system.ports[name]._queue) == 0
            assert not system.ports[name].wants_confirm
        system.turn()
        system.ports["late"].close()


def test_what_waits_in_a_route_that_is_removed_holds_up_no_confirmation(system: System) -> None:
    system.port("a")
    system.port("b")
    spec = system.route("a", "b", "absent", confirm=True)
    system.turn()
    system.send("a", b"1", b"2")
    assert system.take("b") == [b"1", b"2"]
    system.confirm("b", 2)
    system.turn()
    assert system.ports["a"].confirmed() == 0
    system.dispatcher.remove_route(spec)
    system.turn()
    assert system.ports["a"].confirmed() == 2
    assert system.ports["a"].abandoned == 2
    assert system.owners["a"].confirmations == [2]


def test_what_waits_for_a_full_pipe_of_a_route_that_is_removed_is_still_delivered(system: System) -> None:
    system.port("a")
    system.port("b", subscriptions=["k"])
    spec = system.route("a", "b", router="by-key", high=1)
    system.turn()
    for body in (b"1", b"2", b"3"):
        system.ports["a"].send([make_batch(body, key="k")])
    system.dispatcher.remove_route(spec)
    system.turn("a")
    assert system.take("b") == [b"1", b"2", b"3"]
    assert system.ports["a"].abandoned == 0


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_destination_may_leave_after_its_route_without_having_confirmed(system: System, taken: int) -> None:
    system.port("a")
    system.port("b")
    spec = system.route("a", "b", confirm=True)
    system.route("a", "c", confirm=True)
    system.port("c")
    system.turn()
    system.send("a", b"1")
    system.send("a", b"2", b"3")
    assert len(system.take("b", taken)) == taken
    assert len(system.take("c")) == 3
    system.confirm("c", 3)
    system.dispatcher.remove_route(spec)
    system.turn()
    assert system.ports["a"].confirmed() == 0
    system.ports["b"].close()
    system.turn()
    assert system.ports["a"].confirmed() == 3
    assert system.ports["a"].abandoned == 3


def test_a_destination_still_confirms_what_came_by_a_route_that_is_gone(system: System) -> None:
    system.port("a")
    system.port("b")
    for _ in range(3):
        spec = system.route("a", "b", confirm=True)
        system.turn()
        system.send("a", b"1", b"2")
        system.dispatcher.remove_route(spec)
        assert system.take("b") == [b"1", b"2"]
        system.confirm("b", 2)
        system.turn()
    assert system.ports["a"].confirmed() == 6
    system.ports["b"].close()
    system.turn()
    assert system.ports["a"].abandoned == 0


@pytest.mark.parametrize("confirm", [False, True])
def test_room_that_is_made_while_the_router_looks_is_used(
    system: System, monkeypatch: pytest.MonkeyPatch, confirm: bool
) -> None:
    got: list[bytes] = []

    class Overtaken(RoundRobin):
        def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
            choice = super().choose(batch)
            if not choice:
                got.extend(system.take("w"))
            return choice

    monkeypatch.setitem(ROUTERS, "overtaken", (Overtaken, True, False))
    system.route("a", "w", "v", router="overtaken", high=1, confirm=confirm)
    system.port("a")
    system.port("w")
    system.port("v")
    system.turn()
    system.ports["a"].send([make_batch(b"%d" % number) for number in range(6)])
    system.turn()
    while system.ports["w"].has_input() or system.ports["v"].has_input():
        got += system.take("w") + system.take("v")
        system.turn()
    assert sorted(got) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("route_first", [True, False])
def test_a_route_to_its_own_engine_connects_all_ports_but_none_with_itself(
    system: System, route_first: bool
) -> None:
    if route_first:
        system.route("hub", "hub")
    for name in ("first", "second", "third"):
        system.port(name, "hub")
    if not route_first:
        system.route("hub", "hub")
    system.turn()
    for sender in ("first", "second", "third"):
        system.send(sender, sender.encode())
    got = {name: sorted(system.take(name)) for name in ("first", "second", "third")}
    assert got == {
        "first": [b"second", b"third"],
        "second": [b"first", b"third"],
        "third": [b"first", b"second"],
    }


def test_a_route_with_echo_brings_messages_back_to_where_they_came_from(system: System) -> None:
    system.route("hub", "hub", echo=True)
    for name in ("first", "second"):
        system.port(name, "hub")
    system.turn()
    system.send("first", b"x")
    assert [system.take(name) for name in ("first", "second")] == [[b"x"], [b"x"]]


@pytest.mark.parametrize("route_first", [True, False])
def test_a_port_may_do_without_the_echo_of_a_route(system: System, route_first: bool) -> None:
    if route_first:
        system.route("hub", "hub", echo=True)
    system.port("first", "hub", echo=False)
    system.port("second", "hub")
    if not route_first:
        system.route("hub", "hub", echo=True)
    system.turn()
    for name in ("first", "second"):
        system.send(name, name.encode())
    assert system.take("first") == [b"second"]
    assert sorted(system.take("second")) == [b"first", b"second"]


def test_streams_of_one_association_do_not_get_what_another_of_its_streams_has_sent(system: System) -> None:
    system.route("hub", "hub")
    for peer in ("near", "far"):
        for index in range(2):
            system.port(
                f"{peer}/{index}", "hub", port_group=PortGroup(whole=peer, index=index, of=2), thread=peer
            )
    system.turn()
    system.send("near/0", b"x")
    got = {name: system.take(name) for name in ("near/0", "near/1", "far/0", "far/1")}
    assert got["near/0"] == got["near/1"] == []
    assert got["far/0"] + got["far/1"] == [b"x"]


def test_a_source_that_has_left_is_freed_although_its_reader_does_nothing(system: System) -> None:
    """An application thread processes its mailbox in its next call, which may come in an hour.

    Nor does it take a collection of garbage: many peers may come and go.
    """
    gc.disable()
    try:
        system.route("a", "b")
        system.port("b")
        port = system.port("a")
        system.turn("a")
        assert system.send("a", b"the last words")
        port.close()
        gone = weakref.ref(system.owners.pop("a"))
        del port, system.ports["a"]
        assert gone() is None
    finally:
        gc.enable()
    assert system.take("b") == [b"the last words"]
