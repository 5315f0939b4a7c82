"""The pictures at the head of docs/measured.md: what they show is what was measured."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import charts, report, results

SVG = "{http://www.w3.org/2000/svg}"


def test_every_bar_has_a_value() -> None:
    rows = {row["name"]: row for row in results.read()}
    bars = [bar for chart in charts.CHARTS for _, group in chart.groups for bar in group]
    assert [bar for bar in bars if charts.value_of(bar, rows) is None] == []


def test_the_pictures_are_those_of_the_results(tmp_path: Path) -> None:
    drawn = charts.draw(results.read(), tmp_path / "measured")
    for _, path in drawn:
        there = (charts.FOLDER.parent / path).read_text(encoding="utf-8")
        assert (tmp_path / path).read_text(encoding="utf-8") == there, "python -m benchmarks --render"
    page = report.PAGE.read_text(encoding="utf-8")
    opening = page.partition(report.CHARTS_END)[0]
    assert all(f"![{title}]({path})" in opening for title, path in drawn)


def test_bars_are_as_long_as_their_values(tmp_path: Path) -> None:
    rows = [
        {"name": "oneway_100B_single", "ours": 4e6, "peer": 1e6, "also": {}},
        {"name": "oneway_100B_batch", "ours": 2e6, "peer": None, "also": {}},
    ]
    charts.draw(rows, tmp_path)
    picture = ElementTree.parse(tmp_path / "one_way.svg").getroot()
    widths = [
        (bar.get("class"), float(bar.get("width", "")))
        for bar in picture.iter(f"{SVG}rect")
        if bar.get("class") != "page"
    ]
    assert [look for look, _ in widths] == ["ours", "peer", "ours"]
    longest = widths[0][1]
    assert [width / longest for _, width in widths] == pytest.approx([1, 0.25, 0.5], abs=0.001)
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts.count("not measured") == 2
    assert {"4.0", "1.0", "2.0", "million messages a second"} <= set(texts)


def test_what_people_wrote_and_when_it_was_measured_stay(tmp_path: Path) -> None:
    page = tmp_path / "measured.md"
    row = {"name": "a", "ours": 1.0, "peer": 2.0, "peer_name": "p", "unit": "s", "ratio": 0.5, "bar": "<= 1"}
    report.write_page([row], "Written by `make bench` on a day.", [("Seen", "m/a.svg")], [], page)
    page.write_text(page.read_text().replace(report.CHARTS_END, f"{report.CHARTS_END}\n\nA thought."))
    report.write_page([row], None, [("Seen again", "m/b.svg")], [], page)
    text = page.read_text()
    assert "Written by `make bench` on a day." in text
    assert "A thought." in text
    assert text.index("![Seen again](m/b.svg)") < text.index("A thought.") < text.index("| `a` |")
    assert "m/a.svg" not in text
