"""Traces, by RabbitMQ's rules: what may come, what is wanted upstream, what a step adds."""

from __future__ import annotations

from typing import Any

from plugins.engines.broker.topology_observers import BindingState
from plugins.engines.federation.trace import (
    Place,
    may_come,
    wanted_upstream,
    with_exchange_step,
    with_queue_step,
)
from tests.notes import for_each

HERE, UP, FAR = Place("here", "/"), Place("up", "/"), Place("far", "/")


def _step(place: Place, **more: Any) -> dict[str, Any]:
    return {"cluster-name": place.cluster, "vhost": place.vhost, **more}


@for_each(
    "trace,max_hops,may",
    [
        (None, 1, True),
        ([], 1, True),
        ("no trace", 1, True),
        ([_step(FAR)], 1, False),
        ([_step(FAR)], 2, True),
        ([_step(FAR), _step(HERE)], 9, False),
        ([_step(Place("here", "other"))], 9, True),
        ([{"uri": "amqp://nameless"}], 2, True),
        ([{"uri": "amqp://nameless"}], 1, False),
    ],
)
def test_what_may_come(trace: Any, max_hops: int, may: bool) -> None:
    assert may_come({} if trace is None else {"x-received-from": trace}, HERE, max_hops) is may


@for_each(
    "trace,max_hops,hops",
    [
        ([], 3, 3),
        ([_step(FAR, hops=3)], 3, 2),
        ([_step(FAR, hops=9)], 3, 3),
        ([_step(FAR, hops=1)], 3, None),
        ([_step(FAR, hops=3), _step(UP, hops=4)], 3, None),
        ([_step(FAR, hops="many")], 3, None),
    ],
)
def test_what_is_wanted_upstream(trace: list[Any], max_hops: int, hops: int | None) -> None:
    arguments = {"x": 1, **({"x-bound-from": trace} if trace else {})}
    wanted = wanted_upstream([BindingState("k", arguments)], HERE, "feed", UP, max_hops)
    if hops is None:
        assert wanted == frozenset()
        return
    (binding,) = wanted
    assert (binding.key, binding.arguments["x"]) == ("k", 1)
    assert binding.arguments["x-bound-from"] == [_step(HERE, exchange="/:feed A", hops=hops), *trace]


def test_a_step_to_an_exchange_is_put_before_the_others() -> None:
    before = {"own": 1, "x-received-from": [_step(FAR)]}
    after = with_exchange_step(before, _step(UP))
    assert after == {"own": 1, "x-received-from": [_step(UP), _step(FAR)]}
    assert before == {"own": 1, "x-received-from": [_step(FAR)]}


def test_a_step_from_a_queue_counts_the_visits_and_keeps_where_it_was_first() -> None:
    here = {"uri": "amqp://here", "virtual_host": "/", "queue": "jobs"}
    there = {**here, "uri": "amqp://there"}
    once = with_queue_step({"CC": ["copy"]}, here, "feed", "k")
    assert once == {
        "x-original-exchange": "feed",
        "x-original-routing-key": "k",
        "x-original-cc": ["copy"],
        "x-received-from": [{**here, "visit-count": 1}],
    }
    twice = with_queue_step(once, there, "", "jobs")
    again = with_queue_step(twice, here, "", "jobs")
    assert again["x-original-exchange"] == "feed"
    assert again["x-received-from"] == [{**here, "visit-count": 2}, {**there, "visit-count": 1}]
