"""Which routes take a message, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel.contracts.errors import KernelError, UnknownName
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.explaining import Question
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

APPS = tuple(EnginePlan(name=name, kind="native") for name in ("feed", "eu", "us"))
ROUTES = (
    RoutePlan(source="feed", targets=("eu",), match=("eu.#", "all")),
    RoutePlan(source="feed", targets=("us",), exchange="prices", marks=WaterMarks(when_full="drop-newest")),
)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel(Plan(engines=APPS, routes=ROUTES)) as kernel:
        yield kernel


def test_each_route_says_what_its_filter_does(kernel: Kernel) -> None:
    rows = kernel.explain(Question(engine="feed", key="eu.de")).rows
    assert [(row["gets"], row["why"]) for row in rows] == [
        (True, "pattern 'eu.#' matches key 'eu.de'"),
        (False, "it is for exchange 'prices', and the message has ''"),
    ]
    rows = kernel.explain(Question(engine="feed", asked={"exchange": "prices"}, key="us")).rows
    assert [(row["gets"], row["why"]) for row in rows] == [
        (False, "'eu.#', 'all' do not match key 'us'"),
        (True, "it has no pattern, so it takes every key"),
    ]


def test_a_destination_that_is_not_there_does_not_get_it(kernel: Kernel) -> None:
    with kernel.open("us"):
        (eu,), (us,) = (
            row["next"]
            for row in kernel.explain(Question(engine="feed", asked={"exchange": "prices"}, key="all")).rows
        )
    assert (eu["gets"], us["gets"]) == (False, True)
    assert eu["notes"] == [
        "no application has opened it: messages wait for it, and their source waits with them"
    ]


def test_names_that_are_not_there_are_refused(kernel: Kernel) -> None:
    with pytest.raises(UnknownName, match="there is no engine 'fed'; did you mean 'feed'"):
        kernel.explain(Question(engine="fed"))
    with pytest.raises(KernelError, match="say where the message begins: --from ENGINE"):
        kernel.explain(Question(key="a"))
    with pytest.raises(
        KernelError, match="engine 'feed' cannot explain with --topic; engines that can: none"
    ):
        kernel.explain(Question(engine="feed", asked={"topic": "a", "exchange": "prices"}))
