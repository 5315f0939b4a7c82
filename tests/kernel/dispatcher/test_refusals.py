"""Messages that a destination refuses, and acknowledgements out of order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Envelope, batch_of
from tests.kernel.dispatcher.conftest import System


def ready(system: System, *names: str) -> None:
    for name in names:
        system.port(name)
    system.turn()


def taken(system: System, name: str) -> list[Batch]:
    system.turn()
    return system.ports[name].take().batches


def bodies(batches: list[Batch]) -> list[bytes]:
    return [bytes(body) for batch in batches for body in batch.bodies]


def test_what_is_refused_goes_to_the_dead_letters_with_a_note_of_why(system: System) -> None:
    route = system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    envelope = Envelope(key="k", properties={"content_type": "text/plain", "headers": {"own": 1}})
    system.ports["a"].send([batch_of([b"1", b"2", b"3"], envelope)])
    assert bodies(taken(system, "b")) == [b"1", b"2", b"3"]
    system.ports["b"].refuse(2, 2, "not a number")
    (letter,) = taken(system, "d")
    assert letter.bodies == [b"2"]
    assert letter.envelope.key == "k"
    assert letter.envelope.properties == {
        "content_type": "text/plain",
        "headers": {
            "own": 1,
            "x-refused-reason": "not a number",
            "x-refused-by": "b",
            "x-refused-port": "b",
            "x-refused-route": route.name,
        },
    }


def test_what_is_refused_is_confirmed_when_the_dead_letters_have_it(system: System) -> None:
    system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    system.send("a", b"1", b"2")
    system.take("b")
    system.ports["b"].refuse(1, 1, "bad")
    system.ports["b"].confirm_through(2)
    system.turn()
    assert system.take("d") == [b"1"]
    assert system.ports["a"].confirmed() == 0
    system.confirm("d", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 2
    assert system.owners["a"].confirmations == [2]


def test_the_source_is_told_nothing_before_it_knows_of_the_refusal(system: System) -> None:
    """The two threads: the refusal is under way when the rest is confirmed."""
    system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    system.send("a", b"1")
    system.take("b")
    system.ports["b"].refuse(1, 1, "bad")
    system.ports["b"].confirm_through(1)
    (pipe,) = (pipe for _, _, _, pipe in system.dispatcher.pipes() if pipe.engine == "b")
    assert pipe.confirmed == 0
    system.turn()
    assert pipe.confirmed == 1
    assert system.ports["a"].confirmed() == 0


def test_without_dead_letters_a_refusal_is_counted_reported_once_and_confirmed(system: System) -> None:
    system.route("a", "b", confirm=True)
    ready(system, "a", "b")
    system.send("a", b"1", b"2", b"3")
    system.take("b")
    for position in (1, 2):
        system.ports["b"].refuse(position, position, "bad")
    system.ports["b"].confirm_through(3)
    system.turn()
    assert system.ports["a"].confirmed() == 3
    assert [pipe.refused for _, _, _, pipe in system.dispatcher.pipes()] == [2]
    assert [what for what, _ in system.reports] == ["refused"]


def test_dead_letters_wait_for_their_engine_and_do_not_stop_the_source(system: System) -> None:
    system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b")
    assert system.send("a", b"1", b"2")
    system.take("b")
    system.ports["b"].refuse(1, 1, "bad")
    system.ports["b"].confirm_through(2)
    system.turn()
    assert system.send("a", b"3")
    ready(system, "d")
    assert system.take("d") == [b"1"]


def test_many_dead_letters_that_wait_stop_the_source(system: System) -> None:
    system.route("a", "b", confirm=True, dead_letters="d", high=2)
    ready(system, "a", "b")
    system.send("a", b"1", b"2")
    system.take("b")
    system.ports["b"].refuse(1, 2, "bad")
    system.turn()
    assert not system.ports["a"].writable()
    ready(system, "d")
    system.take("d")
    system.confirm("d", 2)
    system.turn()
    assert system.ports["a"].writable()


def test_what_was_refused_is_not_handed_over_when_the_port_goes(system: System) -> None:
    system.route("a", "w", router="round-robin", confirm=True, dead_letters="d")
    ready(system, "a", "d")
    system.port("w/1", "w")
    system.turn()
    system.send("a", b"1", b"2", b"3")
    system.take("w/1")
    system.ports["w/1"].refuse(2, 2, "bad")
    system.ports["w/1"].close()
    system.port("w/2", "w")
    system.turn()
    assert system.take("w/2") == [b"1", b"3"]
    assert system.take("d") == [b"2"]
    system.confirm("w/2", 2)
    system.turn()
    assert system.ports["a"].confirmed() == 0
    system.confirm("d", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 3


def test_what_was_acknowledged_alone_is_neither_taken_again_nor_handed_over(system: System) -> None:
    system.route("a", "w", router="round-robin", confirm=True)
    ready(system, "a")
    system.port("w/1", "w")
    system.turn()
    system.send("a", b"1", b"2", b"3", b"4")
    system.take("w/1")
    one = system.ports["w/1"]
    one.confirm_only(2, 3)
    again = one.take_again()
    assert (bodies(again.batches), again.position) == ([b"1", b"4"], 6)
    one.confirm_only(6, 6)
    one.close()
    system.port("w/2", "w")
    system.turn()
    assert system.take("w/2") == [b"1"]
    system.confirm("w/2", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 4


def test_a_refusal_to_a_source_that_has_gone_lets_the_pipe_end(system: System) -> None:
    system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    system.send("a", b"1")
    system.take("b")
    system.ports["a"].close()
    system.ports["b"].refuse(1, 1, "bad")
    system.turn()
    assert system.take("b") == []
    assert not system.ports["b"].wants_confirm


def test_what_is_refused_after_its_route_was_removed_goes_to_the_dead_letters(system: System) -> None:
    route = system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    system.send("a", b"1", b"2", b"3")
    system.dispatcher.remove_route(route)
    system.turn()
    assert bodies(taken(system, "b")) == [b"1", b"2", b"3"]
    system.ports["b"].refuse(2, 2, "bad")
    system.ports["b"].confirm_through(3)
    assert bodies(taken(system, "d")) == [b"2"]
    assert system.ports["a"].confirmed() == 0
    system.confirm("d", 1)
    system.turn()
    assert system.ports["a"].confirmed() == 3


@pytest.mark.parametrize("leaves", ["", "b", "d"])
def test_the_dead_letters_of_a_removed_route_go_when_nothing_can_be_refused_any_more(
    leaves: str, system: System
) -> None:
    route = system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    system.send("a", b"1")
    system.dispatcher.remove_route(route)
    system.turn()
    assert not system.dispatcher.routes()
    assert [each.spec for each in system.ports["a"].routes] == [route.dead_letters]
    if leaves:
        system.ports[leaves].close()
    if leaves in ("", "d"):
        system.take("b")
        system.confirm("b", 1)
    system.turn()
    # The dispatcher looks at each change.
    other = system.route("a", "y")
    system.turn()
    assert [each.spec for each in system.ports["a"].routes] == [other]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    answers=st.lists(
        st.tuples(st.sampled_from(["through", "only", "refuse"]), st.integers(1, 24), st.integers(0, 4)),
        max_size=30,
    ),
    takes_again=st.booleans(),
)
def test_each_message_is_answered_for_once_whatever_the_order(
    sizes: list[int], answers: list[tuple[str, int, int]], takes_again: Any
) -> None:
    system = System()
    system.route("a", "b", confirm=True, dead_letters="d")
    ready(system, "a", "b", "d")
    total = sum(sizes)
    sent = [b"%d" % number for number in range(1, total + 1)]
    at = 0
    for size in sizes:
        system.send("a", *sent[at : at + size])
        at += size
    system.take("b")
    port = system.ports["b"]
    open_ones = set(range(1, total + 1))
    refused: set[int] = set()
    for verb, first, more in answers:
        if verb == "through":
            port.confirm_through(first)
            open_ones -= set(range(1, first + 1))
        elif verb == "only":
            port.confirm_only(first, first + more)
            open_ones -= set(range(first, first + more + 1))
        else:
            port.refuse(first, first + more, "bad")
            refused |= open_ones & set(range(first, first + more + 1))
            open_ones -= refused
    system.turn()
    letters = system.take("d")
    assert sorted(map(int, letters)) == sorted(refused)
    system.confirm("d", len(letters))
    system.turn()
    assert system.ports["a"].confirmed() <= min(open_ones, default=total + 1) - 1
    left = [b"%d" % number for number in sorted(open_ones)]
    if takes_again:
        again = port.take_again()
        assert bodies(again.batches) == left
        port.confirm_through(again.position)
    else:
        port.confirm_through(total)
    system.turn()
    assert system.ports["a"].confirmed() == total
    system.close()
