"""Drawings are measured: texts fit into their boxes, and no line runs through a label or a box."""

from __future__ import annotations

import random
import re
from itertools import chain, combinations, pairwise, product
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from kernel.plugins import PluginRegistry
from kernel.topology.check import plan_of_text
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.svg import svg
from tests.seeds import many

ROOT = Path(__file__).parents[3]
APIS = ("native", "trio")
# The widest letter of the fonts that the drawing names (DejaVu Sans Mono), in parts of its size.
LETTER = 0.602
SIZES = {"title": 13, "name": 13, "kind": 11, "label": 11}


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def has(self, other: Box) -> bool:
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


class Drawing:
    """What is in a drawing, measured."""

    def __init__(self, text: str) -> None:
        root = ElementTree.fromstring(text)
        self.all = Box(0, 0, float(str(root.get("width"))), float(str(root.get("height"))))
        self.boxes: dict[str, list[Box]] = {"thread": [], "engine": []}
        self.texts: dict[str, list[tuple[str, Box]]] = {style: [] for style in SIZES}
        self.lines: list[list[Box]] = []
        for each in root.iter():
            kind = each.tag.rpartition("}")[2]
            style = str(each.get("class"))
            if kind == "rect" and style in self.boxes:
                x, y, width, height = (float(str(each.get(key))) for key in ("x", "y", "width", "height"))
                self.boxes[style].append(Box(x, y, x + width, y + height))
            elif kind == "text":
                self.texts[style].append((str(each.text), _box_of(each, SIZES[style])))
            elif kind == "path" and style.startswith("route"):
                thick = 3.0 if "confirmed" in style else 1.5
                self.lines.append(_segments(str(each.get("d")), thick))


def _box_of(text: ElementTree.Element, size: int) -> Box:
    x, y = float(str(text.get("x"))), float(str(text.get("y")))
    width = len(str(text.text)) * size * LETTER
    left = x if text.get("text-anchor") == "start" else x - width
    return Box(left, y - size * 0.8, left + width, y + size * 0.25)


def _segments(way: str, thick: float) -> list[Box]:
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", way)]
    found = []
    for (x1, y1), (x2, y2) in pairwise(points):
        assert x1 == x2 or y1 == y2, "lines have right angles"
        half = thick / 2
        found.append(Box(min(x1, x2) - half, min(y1, y2) - half, max(x1, x2) + half, max(y1, y2) + half))
    return found


def check(plan: Plan) -> None:
    drawing = Drawing(svg(plan, APIS))
    check_boxes(drawing)
    check_labels(drawing)
    check_lines(drawing)


def check_boxes(drawing: Drawing) -> None:
    engines, threads = drawing.boxes["engine"], drawing.boxes["thread"]
    for style, holders in (("name", engines), ("kind", engines), ("title", threads)):
        for text, box in drawing.texts[style]:
            assert any(holder.has(box) for holder in holders), f"{text!r} is not within a box"
    for boxes in (engines, threads):
        assert not any(one.meets(other) for one, other in combinations(boxes, 2))


def check_labels(drawing: Drawing) -> None:
    for text, label in drawing.texts["label"]:
        assert drawing.all.has(label), f"{text!r} is outside"
        assert not any(label.meets(engine) for engine in drawing.boxes["engine"]), f"{text!r} is upon a box"
        for line in drawing.lines:
            assert not any(label.meets(segment) for segment in line), f"a line runs through {text!r}"
    labels = [box for _, box in drawing.texts["label"]]
    assert not any(one.meets(other) for one, other in combinations(labels, 2))


def check_lines(drawing: Drawing) -> None:
    texts = [box for style in ("name", "kind", "title") for _, box in drawing.texts[style]]
    for segment in chain.from_iterable(drawing.lines):
        assert drawing.all.has(segment)
        assert not any(segment.meets(text) for text in texts), "a line runs through a text"
    # Two lines may cross, and not run along each other.
    for one, other in combinations(drawing.lines, 2):
        assert not any(a.meets(b) and _along(a, b) for a, b in product(one, other)), "two lines are one"


def _along(one: Box, other: Box) -> bool:
    return (one.right - one.left > one.bottom - one.top) == (
        other.right - other.left > other.bottom - other.top
    )


EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.toml") if "[engines." in path.read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_nothing_overlaps_in_the_drawing_of_an_example(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_INTERFACE", "lo")
    monkeypatch.setenv("AMQP_CERTIFICATE", "server.pem")
    monkeypatch.setenv("SENDER", "a-machine.with-a-long-name.example.org:5558")
    text = path.read_text().replace("nats+tcp", "backend+tcp")
    check(plan_of_text(text, PluginRegistry.load()))


LONG = "backend+tls://a-machine.with-a-long-name.example.org:55555"


def test_long_names_addresses_and_labels_fit() -> None:
    check(
        Plan(
            threads=(ThreadPlan(name="a thread that has a very long name, for whatever reason"),),
            engines=(
                EnginePlan(name="an-engine-that-has-a-longer-name-than-address", kind="amqp"),
                EnginePlan(name="link", kind="stream", options={"address": LONG}),
                EnginePlan(name="app", kind="native"),
            ),
            routes=(
                RoutePlan(
                    source="link",
                    targets=("app", "link"),
                    match=("weather.europe.#", "prefix:urgent"),
                    confirm=True,
                ),
                RoutePlan(source="link", targets=("app",), router="by-key", exchange="an exchange"),
                RoutePlan(source="app", targets=("link",), router="reply"),
            ),
        )
    )


def any_plan(choose: random.Random) -> Plan:
    threads = [f"thread-{number}" for number in range(choose.randint(0, 4))]
    engines = [
        EnginePlan(
            name=f"engine-{number}",
            kind=choose.choice(("stream", "amqp", "native")),
            thread=choose.choice([*threads, None]) if threads else None,
            options={"address": LONG[: choose.randint(16, len(LONG))]} if choose.random() < 0.6 else {},
        )
        for number in range(choose.randint(1, 8))
    ]
    names = [engine.name for engine in engines]
    routes = [
        RoutePlan(
            source=choose.choice(names),
            targets=tuple(choose.sample(names, choose.randint(1, min(3, len(names))))),
            match=tuple(choose.sample(("a.#", "prefix:b", "orders.*.new"), choose.randint(0, 3))),
            router=choose.choice(("fan-out", "round-robin", "by-key")),
            confirm=choose.random() < 0.5,
            dead_letters=choose.choice((None, *names)),
        )
        for _ in range(choose.randint(0, 12))
    ]
    threads_of = tuple(ThreadPlan(name=name) for name in threads)
    return Plan(threads=threads_of, engines=tuple(engines), routes=tuple(routes))


def test_nothing_overlaps_in_any_drawing() -> None:
    for seed in many(0, 150):
        check(any_plan(random.Random(seed)))
