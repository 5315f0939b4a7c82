"""Charts at the head of ``docs/measured.md``: what ``results.json`` says, in a few pictures.

Each is an SVG of bars with their values.  It has colours for light and for dark pages, and a background of
its own, so that it can be read on any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parents[1] / "docs" / "measured"


@dataclass(frozen=True)
class Bar:
    """One bar: who, and where its value is."""

    label: str
    row: str
    """The name of a row of ``results.json``."""
    side: str = "ours"
    """``ours``, ``peer``, or the name of another side of the row (``also``)."""
    is_ours: bool = False
    """Whether this is the kernel, which has a colour of its own."""


@dataclass(frozen=True)
class Chart:
    """A picture: groups of bars with one axis."""

    name: str
    """Of the file."""
    title: str
    """What is seen."""
    unit: str
    """What the axis says."""
    scale: float
    """Values are divided by it: 1e6 for millions."""
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    """What the bars of a group have in common, and the bars."""


def ours(label: str, row: str, side: str = "ours") -> Bar:
    """Return a bar of the kernel."""
    return Bar(label, row, side, is_ours=True)


def peer(label: str, row: str, side: str = "peer") -> Bar:
    """Return a bar of another system."""
    return Bar(label, row, side)


_KINDS = (
    ("autoack", "no acknowledgements"),
    ("acks", "acknowledged by the consumer"),
    ("confirms", "confirmed to the publisher"),
    ("durable", "persistent, confirmed and acknowledged"),
)
_MULTICAST = (("pgm_100B", "multicast (PGM over UDP)"), ("pgm_100B_loss", "multicast, 1 % of packets lost"))

CHARTS = (
    Chart(
        "one_way",
        "One way over TCP, messages of 100 B: more is better",
        "million messages a second",
        1e6,
        (
            (
                "one call a message",
                (
                    ours("kernel", "oneway_100B_single"),
                    peer("pyzmq", "oneway_100B_single"),
                ),
            ),
            (
                "batches of 1000 (the others have none)",
                (
                    ours("kernel", "oneway_100B_batch"),
                    peer("libzmq, in C", "oneway_100B_batch_libzmq_c"),
                    peer("pyzmq", "oneway_100B_batch"),
                ),
            ),
        ),
    ),
    Chart(
        "round_trips",
        "Round trip of a small message, median: less is better",
        "microseconds (µs)",
        1.0,
        (
            (
                "between applications, 64 B",
                (
                    ours("kernel, spin", "roundtrip_64B_poll_p50"),
                    ours("kernel, default", "roundtrip_64B_poll_p50", "kernel, poll threads by default"),
                    peer("pyzmq", "roundtrip_64B_poll_p50"),
                ),
            ),
            (
                "without a thread of the kernel's, 64 B",
                (
                    ours("kernel", "roundtrip_64B_xmode_p50"),
                    peer("bare sockets", "roundtrip_64B_xmode_p50"),
                ),
            ),
            (
                "through an AMQP broker, 100 B",
                (
                    ours("kernel, spin", "amqp_roundtrip_p50"),
                    ours("kernel, default", "amqp_roundtrip_p50", "kernel, as it is by default"),
                    peer("RabbitMQ", "amqp_roundtrip_p50"),
                ),
            ),
        ),
    ),
    Chart(
        "amqp_rates",
        "AMQP from publisher to consumer, messages of 100 B: more is better",
        "thousand messages a second",
        1e3,
        tuple(
            (
                text,
                (
                    ours("kernel, its client", f"amqp_{kind}_rabbitmq"),
                    ours("kernel, amqplib", f"amqp_amqplib_{kind}"),
                    peer("RabbitMQ, best client", f"amqp_{kind}_rabbitmq"),
                ),
            )
            for kind, text in _KINDS
        ),
    ),
    Chart(
        "amqp_processor_time",
        "Processor time of the broker for an AMQP message of 100 B: less is better",
        "microseconds (µs) a message",
        1.0,
        tuple(
            (text, (ours("kernel", f"amqp_{kind}_cost"), peer("RabbitMQ", f"amqp_{kind}_cost")))
            for kind, text in _KINDS
        ),
    ),
    Chart(
        "multicast_and_sctp",
        "Multicast and SCTP, messages of 100 B: more is better",
        "thousand messages a second",
        1e3,
        (
            *(
                (
                    text,
                    (ours("kernel", row), peer("libzmq", row), peer("OpenPGM", f"{row}_openpgm")),
                )
                for row, text in _MULTICAST
            ),
            (
                "SCTP over UDP",
                (
                    ours("kernel", "sctp_100"),
                    peer("usrsctp", "sctp_100"),
                    peer("aiortc", "sctp_100_aiortc"),
                ),
            ),
        ),
    ),
)


def draw(rows: Sequence[Mapping[str, Any]], folder: Path = FOLDER) -> list[tuple[str, str]]:
    """Write the charts; return the title and the path of each, for the page beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {row["name"]: row for row in rows}
    drawn = []
    for chart in CHARTS:
        path = folder / f"{chart.name}.svg"
        path.write_text("\n".join(_svg(chart, named)) + "\n", encoding="utf-8")
        drawn.append((chart.title, f"{folder.name}/{path.name}"))
    return drawn


def value_of(bar: Bar, rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return what a bar shows, in the row's unit; None if it was not measured."""
    row = rows.get(bar.row, {})
    value = row.get(bar.side) if bar.side in ("ours", "peer") else row.get("also", {}).get(bar.side)
    return None if value is None else float(value)


_WIDTH, _LEFT, _RIGHT = 760, 168, 88
_LINE, _GROUP, _TOP, _BOTTOM = 22, 26, 44, 52
_STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .title { font-size: 16px; font-weight: 600 }
  .group { font-weight: 600 }
  .axis { fill: #52606d; font-size: 12px }
  .page { fill: #ffffff }
  .grid { stroke: #d9dee4 }
  .ours { fill: #1f6fa8 }
  .peer { fill: #9aa5b1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb }
    .axis { fill: #b5bec8 }
    .page { fill: #161b22 }
    .grid { stroke: #3a434e }
    .ours { fill: #58a6dc }
    .peer { fill: #76818d }
  }"""


def _svg(chart: Chart, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    lines = sum(len(bars) for _, bars in chart.groups)
    bottom = _TOP + lines * _LINE + len(chart.groups) * _GROUP + 6
    height = bottom + _BOTTOM
    values = [value_of(bar, rows) or 0.0 for _, bars in chart.groups for bar in bars]
    ticks = _ticks(max(values, default=0.0) / chart.scale)
    across = (_WIDTH - _LEFT - _RIGHT) / (ticks[-1] or 1.0)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">'
    )
    yield f"<title>{escape(chart.title)}</title>"
    yield f"<style>\n{_STYLE}\n</style>"
    yield f'<rect class="page" width="{_WIDTH}" height="{height}" rx="6"/>'
    yield f'<text class="title" x="16" y="28">{escape(chart.title)}</text>'
    for tick in ticks:
        x = f"{_LEFT + tick * across:.1f}"
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP + 4}" y2="{bottom}"/>'
        yield f'<text class="axis" x="{x}" y="{bottom + 17}" text-anchor="middle">{tick:g}</text>'
    middle = _LEFT + ticks[-1] * across / 2
    yield f'<text class="axis" x="{middle:.1f}" y="{bottom + 37}" text-anchor="middle">{chart.unit}</text>'
    y = _TOP
    for text, bars in chart.groups:
        y += _GROUP
        yield f'<text class="group" x="16" y="{y - 7}">{escape(text)}</text>'
        for bar in bars:
            yield from _bar(bar, value_of(bar, rows), chart, y, across)
            y += _LINE
    yield "</svg>"


def _bar(bar: Bar, value: float | None, chart: Chart, y: float, across: float) -> Iterator[str]:
    middle = y + _LINE / 2 + 2
    yield f'<text x="{_LEFT - 8}" y="{middle:.1f}" text-anchor="end">{escape(bar.label)}</text>'
    width = 0.0 if value is None else value / chart.scale * across
    if value is not None:
        look = "ours" if bar.is_ours else "peer"
        # At least a pixel: a small value is not none.
        size = f'width="{max(width, 1.0):.1f}" height="{_LINE - 6}"'
        yield f'<rect class="{look}" x="{_LEFT}" y="{y}" {size} rx="2"/>'
    said = "not measured" if value is None else _digits(value / chart.scale)
    yield f'<text x="{_LEFT + width + 6:.1f}" y="{middle:.1f}">{said}</text>'


def _digits(value: float) -> str:
    """Return a value with two digits that count, three from 100 on, and all of them from 1000 on."""
    if value >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.{max(0, 1 - floor(log10(value)))}f}" if value > 0 else "0"


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 on, the last of which is not less than ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    unit = 10.0 ** floor(log10(most))
    step = next(size * unit for size in (0.2, 0.5, 1.0, 2.0) if most <= 6 * size * unit)
    count = int(-(-most // step))
    return [step * number for number in range(count + 1)]
