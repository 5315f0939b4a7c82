"""Plans as data: what leads from one to another."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import PlanError
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan, diff

A = EnginePlan(name="a", kind="x", thread="io")
B = EnginePlan(name="b", kind="x")
C = EnginePlan(name="c", kind="x")
IO = ThreadPlan(name="io")
AB = RoutePlan(source="a", targets=("b",), match=("k.#",))
BC = RoutePlan(source="b", targets=("c",))
PLAN = Plan(threads=(IO,), engines=(A, B, C), routes=(AB, BC))


def lines(new: Plan) -> list[str]:
    return diff(PLAN, new).lines()


def test_where_something_stands_changes_nothing() -> None:
    moved = Plan(
        threads=(ThreadPlan(name="io", line=9),),
        engines=(C, B, EnginePlan(name="a", kind="x", thread="io", line=7)),
        routes=(BC, AB),
        file="elsewhere",
    )
    assert not diff(PLAN, moved)
    assert lines(moved) == []


def test_a_changed_engine_takes_its_routes_along() -> None:
    changed = EnginePlan(name="a", kind="x", thread="io", options={"n": 1})
    new = Plan(threads=(IO,), engines=(changed, B, C), routes=(AB, BC))
    assert lines(new) == ["- route a -> b [k.#]", "- engine a", "+ engine a", "+ route a -> b [k.#]"]


def test_an_engine_takes_live_options_where_it_is() -> None:
    def live(engine: EnginePlan) -> tuple[str, ...]:
        return ("n",)

    for options, line in (
        ({"n": 1}, "~ engine a"),
        ({"n": 1, "m": 1}, "+ engine a"),
        ({"m": 1}, "+ engine a"),
    ):
        changed = EnginePlan(name="a", kind="x", thread="io", options=options)
        found = diff(PLAN, Plan(threads=(IO,), engines=(changed, B, C), routes=(AB, BC)), live=live).lines()
        assert line in found
        assert (len(found) == 1) == (line == "~ engine a")
        elsewhere = ThreadPlan(name="io", options={"n": 1})
        uprooted = diff(PLAN, Plan(threads=(elsewhere,), engines=(changed, B, C), routes=(AB, BC)), live=live)
        assert not uprooted.engines_changed


def test_a_changed_thread_takes_its_engines_along() -> None:
    new = Plan(threads=(ThreadPlan(name="io", options={"n": 1}),), engines=(A, B, C), routes=(AB, BC))
    assert lines(new) == [
        "- route a -> b [k.#]",
        "- engine a",
        "- thread io",
        "+ thread io",
        "+ engine a",
        "+ route a -> b [k.#]",
    ]


def test_a_changed_route_is_replaced_and_no_more() -> None:
    wider = RoutePlan(source="b", targets=("c",), marks=WaterMarks(high=5))
    change = diff(PLAN, Plan(threads=(IO,), engines=(A, B, C), routes=(AB, wider)))
    assert change.routes_removed == (BC,)
    assert change.routes_added == (wider,)
    assert not change.engines_removed


def test_equal_routes_are_paired_off_one_to_one() -> None:
    twice = Plan(threads=(IO,), engines=(A, B, C), routes=(AB, BC, BC))
    assert diff(PLAN, twice).routes_added == (BC,)
    assert diff(twice, PLAN).routes_removed == (BC,)


def test_parts_are_found_by_name() -> None:
    assert PLAN.thread("io") is IO
    assert PLAN.engine("b") is B
    assert PLAN.engine("nobody") is None
    assert PLAN.routes_of("b") == (AB, BC)


@pytest.mark.parametrize("field", ["targets", "match"])
def test_a_text_where_a_tuple_is_meant_is_refused_where_it_is_written(field: str) -> None:
    """A text is a sequence, too: ``bb`` would be the two engines ``b`` and ``b``."""
    with pytest.raises(PlanError, match=rf"route from 'a': {field} = 'bb' is a text.*{field}=\('bb',\)"):
        RoutePlan(**{"source": "a", "targets": ("b",), field: "bb"})  # type: ignore[arg-type]
