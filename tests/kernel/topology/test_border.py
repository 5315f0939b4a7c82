"""How a route is divided whose ends are in several processes."""

from __future__ import annotations

from kernel.topology.border import HERE, Crossing, cross
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
