"""The report page: numbers as people read them, charts that are well-formed, and a browser that shows them."""

from __future__ import annotations

import csv
import re
import subprocess
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plugins.apis.spark.report.drawing import draw_heat_map, draw_lines
from plugins.apis.spark.report.files import write_report
from plugins.apis.spark.report.findings import Figure, HeatMap, Lines, Report, Table
from plugins.apis.spark.report.page import ROWS_SHOWN, page
from plugins.apis.spark.report.quantities import spell, ticks, time_ticks
from tests.notes import for_each

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TIMES = [NOON + timedelta(seconds=second) for second in range(60)]
NASTY = '<script>alert("&")</script>'


def _lines(**series: list[float | None]) -> Lines:
    return Lines(title=NASTY, times=TIMES, series=series, unit="messages/s", marks=[(TIMES[3], NASTY)])


def _heat_map(columns: int = 3) -> HeatMap:
    names = [f"12:00:{number:02d}" for number in range(columns)]
    values = [[float(row * number) for number in range(columns)] for row in range(2)]
    return HeatMap(title="heat", columns=names, rows=["above", NASTY], values=values, unit="messages")


def _table(rows: int = 2) -> Table:
    content = [(f"k{number}", 1500 + number, 0.0125, NOON) for number in range(rows)]
    return Table(
        name="keys",
        title="Keys",
        columns=("key", "messages", "p99", "first"),
        rows=[*content, (NASTY, None, None, None)],
        units={"messages": "messages", "p99": "seconds"},
    )


def _report() -> Report:
    figures = (
        Figure(label="messages", value=28123, unit="messages"),
        Figure(label="lost", value=1, bad=True),
    )
    rates: list[float | None] = [float(100 + number) for number in range(60)]
    return Report(title="Traffic", figures=figures, parts=(_lines(all=rates), _heat_map(), _table()))


# ------------------------------------------------------------------ numbers


@for_each(
    "value,unit,text",
    [
        (0, "messages", "0"),
        (1234, "messages", "1\u202f234"),
        (12_345_678, "messages", "12.3 M"),
        (950.4, "messages/s", "950/s"),
        (1_000_000, "messages/s", "1 M/s"),
        (512, "bytes", "512 B"),
        (1536, "bytes", "1.5 KiB"),
        (3 << 30, "bytes/s", "3 GiB/s"),
        (0.25, "seconds", "250 ms"),
        (0.0000123, "seconds", "12.3 µs"),
        (90, "seconds", "1.5 min"),
        (0, "seconds", "0"),
        (0.125, "share", "12.5 %"),
        (None, "bytes", "\u2013"),
        (float("nan"), "", "\u2013"),
        ("text", "bytes", "text"),
        (28_298, "", "28\u202f298"),
        (True, "", "True"),
        (NOON, "", "2026-11-21 12:00:00"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: Any, unit: Any, text: str) -> None:
    assert spell(value, unit) == text


@for_each("most", [0.003, 0.7, 1, 3, 9.9, 47, 1001, 123456, 5e9])
def test_axes_have_few_round_levels_and_the_last_is_above_all(most: float) -> None:
    levels = ticks(most)
    assert levels[0] == 0
    assert levels[-2] < most <= levels[-1] * (1 + 1e-9)
    assert 3 <= len(levels) <= 7
    assert all(float(f"{level:.3g}") == pytest.approx(level) for level in levels)


@for_each("seconds", [0.02, 1, 59, 600, 86400, 40 * 86400])
def test_axes_of_time_have_few_moments_within_the_span(seconds: float) -> None:
    moments = time_ticks(NOON, NOON + timedelta(seconds=seconds))
    assert 1 <= len(moments) <= 9
    assert all(NOON <= moment <= NOON + timedelta(seconds=seconds) for moment in moments)


# ------------------------------------------------------------------ charts


def _svg(drawing: str) -> ET.Element:
    match = re.search(r"<svg.*</svg>", drawing, re.DOTALL)
    assert match is not None
    return ET.fromstring(match[0])


def _points(line: ET.Element) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]  # type: ignore[misc]


def test_a_line_is_as_high_as_its_values() -> None:
    svg = _svg(draw_lines(_lines(all=[0.0] * 59 + [100.0])))
    (line,) = svg.iterfind("polyline")
    points = _points(line)
    assert len(points) == 60
    assert points[0][1] == points[58][1] > points[59][1], "up is less in SVG"
    assert [x for x, _ in points] == sorted(x for x, _ in points)


def test_a_hole_divides_a_line_and_leaves_no_zero() -> None:
    values: list[float | None] = [1.0] * 20 + [None] * 20 + [1.0] * 20
    lines = list(_svg(draw_lines(_lines(all=values))).iterfind("polyline"))
    assert [len(_points(line)) for line in lines] == [20, 20]


def test_several_lines_have_a_legend_and_one_has_none() -> None:
    ones: list[float | None] = [1.0] * 60
    assert "legend" not in draw_lines(_lines(a=ones))
    assert draw_lines(_lines(a=ones, b=ones)).count("<li>") == 2


def test_cells_are_as_strong_as_their_values_and_zero_is_blank() -> None:
    svg = _svg(draw_heat_map(_heat_map(3)))
    cells = [rect for rect in svg.iterfind("rect") if rect.get("class") == "cell"]
    strengths = [float(cell.attrib["fill-opacity"]) for cell in cells]
    assert len(strengths) == 2
    assert strengths[0] < strengths[1] == 1
    assert cells[1].find("title").text == f"{NASTY} · 12:00:02: 2"


@pytest.mark.parametrize("columns", [2, 3, 20, 120])
def test_labels_of_columns_never_run_into_each_other(columns: int) -> None:
    svg = _svg(draw_heat_map(_heat_map(columns)))
    places = sorted(
        float(text.attrib["x"]) for text in svg.iterfind("text") if text.get("text-anchor") == "middle"
    )
    slanted = [text for text in svg.iterfind("text") if "rotate" in text.get("transform", "")]
    assert len(slanted) + len(places) >= min(columns, 8)
    assert all(right - left >= 55 for left, right in pairwise(places))


def test_the_mouse_reaches_a_mark() -> None:
    drawn = [element.get("class") for element in ET.fromstring(draw_lines(_lines(all=[1.0] * 60)))]
    # What is drawn later is above: the column that shows the values of a time must not hide its mark.
    assert drawn.index("mark") > max(at for at, name in enumerate(drawn) if name == "hover")


@pytest.mark.parametrize("chart", [Lines(title="", times=[], series={}, unit=""), _lines(a=[None] * 60)])
def test_nothing_to_draw_is_said(chart: Lines) -> None:
    assert "nothing to draw" in draw_lines(chart)


# ------------------------------------------------------------------ the page


def test_the_page_asks_nobody_for_anything_and_runs_nothing() -> None:
    text = page(_report(), subtitle=NASTY)
    assert not re.search(r"https?:|src=|@import|url\(|<script|<link", text)


def test_a_long_table_is_cut_on_the_page_and_whole_in_its_file(tmp_path: Path) -> None:
    report = Report(title="t", figures=(), parts=(_table(ROWS_SHOWN + 49),))
    index = write_report(report, tmp_path / "out")
    assert "… and 50 more in keys.csv" in index.read_text()
    with (tmp_path / "out" / "keys.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["key", "messages", "p99", "first"]
    assert rows[1] == ["k0", "1500", "0.0125", "2026-11-21T12:00:00+00:00"]
    assert len(rows) == 1 + ROWS_SHOWN + 50


@pytest.mark.slow
@pytest.mark.peer("chromium")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it(width: int, tmp_path: Path) -> None:
    from matplotlib.image import imread

    index = write_report(_report(), tmp_path / "out")
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            f"--window-size={width},1400",
            f"--screenshot={picture}",
            index.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    pixels = (imread(picture)[:, :, :3] * 255).round().astype(int)
    assert pixels.shape[1] == width
    blue = (abs(pixels - (0x24, 0x56, 0xC7)).sum(axis=2) < 12).sum()
    red = (abs(pixels - (0xB3, 0x26, 0x1E)).sum(axis=2) < 12).sum()
    assert blue > 500, "the line, and the fullest cells"
    assert red > 20, "a figure to look at, and a mark"
