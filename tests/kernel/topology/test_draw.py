"""Drawings of a plan."""

from __future__ import annotations

from xml.etree import ElementTree

from kernel.topology.draw import matrix, matrix_text, mermaid
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.svg import svg

PLAN = Plan(
    threads=(ThreadPlan(name="io"), ThreadPlan(name='n"<t')),
    engines=(
        EnginePlan(name="link", kind="stream", thread="io", options={"address": "backend+tcp://h:1"}),
        EnginePlan(name="out", kind="stream", thread='n"<t'),
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="free", kind="stream"),
    ),
    routes=(
        RoutePlan(source="app", targets=("link", "out"), match=("feed.#",), router="round-robin"),
        RoutePlan(source="link", targets=("app",), confirm=True),
        RoutePlan(source="link", targets=("link",)),
    ),
)


def test_mermaid_has_threads_engines_and_routes() -> None:
    assert (
        mermaid(PLAN, {"native"})
        == """\
flowchart LR
  subgraph t0["application threads"]
    e2["app<br>native"]
  end
  subgraph t1["io"]
    e0["link<br>stream backend+tcp://h:1"]
  end
  subgraph t2["n&quot;&lt;t"]
    e1["out<br>stream"]
  end
  subgraph t3["least loaded of io, n&quot;&lt;t"]
    e3["free<br>stream"]
  end
  e2 -->|"feed.#, round-robin"| e0
  e2 -->|"feed.#, round-robin"| e1
  e0 ==>|"confirmed"| e2
  e0 --> e0
"""
    )


def test_the_matrix_has_a_cell_for_each_pair_of_threads() -> None:
    rows = matrix(PLAN, {"native"})
    assert [len(row) for row in rows] == [5] * 5
    assert rows[1][2] == "app -> link"
    assert rows[2][1] == "link -> app"
    assert rows[2][2] == "link -> link"
    assert matrix_text(PLAN).count("\n") == 5


def test_the_svg_is_xml_with_a_box_an_engine_and_an_arrow_a_target() -> None:
    root = ElementTree.fromstring(svg(PLAN, {"native"}))
    classes = [element.get("class") for element in root.iter()]
    assert classes.count("thread") == 4
    assert classes.count("engine") == 4
    assert sum(name is not None and name.startswith("route") for name in classes) == 4
    width = float(str(root.get("width")))
    assert all(
        float(box.get("x", 0)) + float(box.get("width", 0)) <= width
        for box in root.iter()
        if box.get("class")
    )


def test_the_way_of_refused_messages_is_in_all_drawings() -> None:
    names = ("source", "target", "letters")
    plan = Plan(
        engines=tuple(EnginePlan(name=name, kind="stream") for name in names),
        routes=(RoutePlan(source="source", targets=("target",), confirm=True, dead_letters="letters"),),
    )
    assert 'e0 -.->|"refused"| e2' in mermaid(plan)
    assert matrix(plan)[1][1] == "source -> target; source -> letters (refused)"
    root = ElementTree.fromstring(svg(plan))
    arrows = [element for element in root.iter() if str(element.get("class")).startswith("route")]
    assert [arrow.get("class") for arrow in arrows] == ["route confirmed", "route refused"]
    assert [text.text for text in root.iter() if text.get("class") == "label"] == ["confirmed", "refused"]


def test_a_plan_without_threads_is_drawn_with_the_one_it_gets() -> None:
    drawing = mermaid(Plan(engines=(EnginePlan(name="a", kind="x"),)))
    assert 'subgraph t0["poll-1"]' in drawing


def test_a_process_says_so_and_gets_no_engine_that_does_not_name_it() -> None:
    engines = (EnginePlan(name="feed", kind="hub"), EnginePlan(name="disk", kind="hub", thread="p"))
    plan = Plan(
        threads=(ThreadPlan(name="p", kind="process"),),
        engines=engines,
        routes=(RoutePlan(source="feed", targets=("disk",)),),
    )
    assert matrix(plan) == [
        ["from \\ to", "poll-1", "p (process)"],
        ["poll-1", "", "feed -> disk"],
        ["p (process)", "", ""],
    ]
