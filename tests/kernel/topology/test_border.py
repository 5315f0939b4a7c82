"""How a route is divided whose ends are in several processes, and when its links get sockets."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from kernel.plugins import PluginRegistry
from kernel.topology.border import HERE, SEND_BUFFER, Border, Crossing, Here, cross
from kernel.topology.plan import RoutePlan
from tests.plans import route

PLACES = {"a": HERE, "b": HERE, "p1": "p", "p2": "p", "q1": "q"}


def _cross(plan: RoutePlan, *, by_name: bool = False) -> Crossing:
    used: list[str] = []

    def name(wanted: str) -> str:
        used.append(wanted)
        count = used.count(wanted)
        return wanted if count == 1 else f"{wanted} ({count})"

    return cross(plan, lambda engine: PLACES[engine], by_name=by_name, name=name)


def _legs(crossing: Crossing) -> list[tuple[str, str, tuple[str, ...], str]]:
    return [(leg.place, leg.plan.source, leg.plan.targets, leg.plan.router) for leg in crossing.legs]


def _links(crossing: Crossing) -> list[tuple[str, str, str]]:
    return [(link.name, link.sender, link.receiver) for link in crossing.links]


def test_a_route_within_one_process_is_one_leg_there() -> None:
    for plan, place in ((route("a", "b", match=("x",)), HERE), (route("p1", "p2", confirm=True), "p")):
        crossing = _cross(plan)
        assert not crossing.links
        assert [(leg.place, leg.plan) for leg in crossing.legs] == [(place, plan)]


def test_each_other_process_has_a_link_and_a_second_leg() -> None:
    crossing = _cross(route("a", "p1", "b", "q1", "p2", router="round-robin", match=("x.#",), confirm=True))
    assert _links(crossing) == [("link a -> p1, p2", HERE, "p"), ("link a -> q1", HERE, "q")]
    assert sorted(_legs(crossing)) == [
        (HERE, "a", ("link a -> p1, p2", "b", "link a -> q1"), "round-robin"),
        ("p", "link a -> p1, p2", ("p1", "p2"), "round-robin"),
        ("q", "link a -> q1", ("q1",), "round-robin"),
    ]
    first, *seconds = sorted(crossing.legs, key=lambda leg: leg.place)
    assert first.plan.match == ("x.#",)
    assert [leg.plan.match for leg in seconds] == [(), ()]  # the filter has been asked already
    assert all(leg.plan.confirm for leg in crossing.legs)
    assert [(link.sender_port, link.receiver_port) for link in crossing.links] == [
        ("p1, p2", "a"),
        ("q1", "a"),
    ]


def test_two_processes_have_a_link_of_their_own() -> None:
    assert _links(_cross(route("p1", "q1"))) == [("link p1 -> q1", "p", "q")]


def test_a_router_that_looks_at_names_chooses_where_the_ports_are() -> None:
    crossing = _cross(route("a", "b", "p1", router="reply"), by_name=True)
    assert sorted(_legs(crossing)) == [
        (HERE, "a", ("b",), "reply"),
        (HERE, "a", ("link a -> p1",), "fan-out"),
        ("p", "link a -> p1", ("p1",), "reply"),
    ]


def test_dead_letters_go_from_each_process_that_refuses_to_their_engine() -> None:
    crossing = _cross(route("a", "p1", "q1", confirm=True, dead_letters="p2"))
    letters = {(leg.place, leg.plan.source): leg.plan.dead_letters for leg in crossing.legs}
    ends = {name: (sender, receiver) for name, sender, receiver in _links(crossing)}
    from_here, from_q = letters[HERE, "a"], letters["q", "link a -> q1"]
    assert from_here is not None
    assert from_q is not None
    assert letters["p", "link a -> p1"] == "p2"
    assert (ends[from_here], ends[from_q]) == ((HERE, "p"), ("q", "p"))
    assert letters["p", from_here] is letters["p", from_q] is None
    assert all(leg.plan.confirm for leg in crossing.legs)


class Process:
    """A thread in another process, as the border sees it."""

    def __init__(self) -> None:
        self.pairs: list[int] = []
        self.buffer = 0
        """Bytes of the last socket that was given."""

    def add_leg(self, *_: Any) -> None: ...

    def add_link(self, *_: Any) -> None: ...

    def give(self, link: str, pair: int, connected: socket.socket) -> None:
        self.buffer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        connected.close()
        self.pairs.append(pair)


class System:
    """A link from one process to another."""

    def __init__(self) -> None:
        self.threads = {"p": Process(), "q": Process()}
        self.border = Border(cast("Here", self), PluginRegistry.load())
        for engine in ("p1", "q1"):
            self.border.move(engine, PLACES[engine])
        assert self.border.add(route("p1", "q1"))

    def change(self, *what: str) -> list[int]:
        """Have processes come up or go down; return the pairs that both have been given so far."""
        for each in what:
            self.border.changed(*each.split())
        return self.pairs()

    def ask(self, pair: int) -> list[int]:
        """The sender asks for sockets; ``pair`` is the last that it has got."""
        self.border.renew("link p1 -> q1", pair)
        return self.pairs()

    def pairs(self) -> list[int]:
        assert self.threads["p"].pairs == self.threads["q"].pairs
        return self.threads["p"].pairs


def test_a_link_gets_sockets_when_both_processes_are_up_and_when_its_end_asks() -> None:
    system = System()
    assert system.change("p up") == []
    assert system.ask(0) == []
    assert system.change("q up") == [1]
    assert system.ask(1) == [1, 2]
    assert system.change("q down") == [1, 2]
    assert system.ask(2) == [1, 2]
    assert system.change("q up") == [1, 2, 3]


def test_a_link_asks_for_a_larger_buffer_than_a_socketpair_has() -> None:
    one, other = socket.socketpair()
    with one, other:
        usual = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # A system may allow no more than it gives by itself.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        allowed = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    system = System()
    system.change("p up", "q up")
    assert [system.threads[name].buffer for name in ("p", "q")] == [allowed, allowed]
    assert allowed >= usual


def test_an_end_that_asks_while_sockets_are_on_their_way_to_it_gets_no_others() -> None:
    system = System()
    assert system.change("p up", "q up") == [1]
    assert system.ask(0) == [1]
    # Of the process that was there before.
    assert system.change("p down", "p up") == [1, 2]
    assert system.ask(1) == [1, 2]
    assert system.ask(2) == [1, 2, 3]


def test_an_end_that_got_no_sockets_for_lack_of_descriptors_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise OSError(24, "Too many open files")

    system = System()
    assert system.change("p up", "q up") == [1]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socketpair", none)
        assert system.change("p down", "p up") == [1]
        assert system.ask(0) == [1]
    assert system.ask(0) == [1, 2]
