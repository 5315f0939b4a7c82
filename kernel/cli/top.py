"""``kernel top``: engines, routes and queues of a running system, with rates, in one live view.

The rows are those of ``kernel status`` and ``kernel queues``; the rates are computed from two looks.  The
busiest are shown, as many as the terminal has room for.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from kernel.cli.looking import add_rates, rows_of
from kernel.cli.seconds import Seconds
from kernel.cli.showing import control_option
from kernel.contracts.errors import KernelError
from kernel.inspection.printing import printable
from kernel.topology.control import ask, find_running

if TYPE_CHECKING:
    from rich.console import RenderableType

Row: TypeAlias = dict[str, Any]
Looks: TypeAlias = tuple[dict[str, Any], dict[str, Any] | None]
"""The answers to ``status`` and, if there is a broker, to ``queues``."""

SORTS: dict[str, tuple[str, str]] = {
    "r": ("rate", "rate"),
    "d": ("depth", "depth"),
    "l": ("dropped", "drops"),
    "n": ("name", "name"),
}
"""The keys that sort: the column of a row, and its name for people."""
_HEAD_LINES = 2


class _Part(msgspec.Struct, frozen=True):
    """One of the tables."""

    title: str
    columns: tuple[str, ...]
    rows: list[Row]


@click.command("top")
@click.option("--every", type=Seconds(0.1), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option(
    "--sort", type=click.Choice([name for _, name in SORTS.values()]), default="rate", show_default=True
)
@click.option("--once", is_flag=True, help="Print one view, without colours and keys, and end.")
@control_option
def command(every: float, sort: str, once: bool, control: str | None) -> None:
    """Show what a running system does: engines, routes and queues with rates, depths and drops.

    Keys: r, d, l, n sort by rate, depth, drops (losses) or name; q or Ctrl-C quits.
    """
    path = control or find_running()
    by = next(column for column, name in SORTS.values() if name == sort)
    before = _look(path)
    if once or not sys.stdout.isatty():
        time.sleep(every)
        _print_once(_parts(_look(path), before, by))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _live(path, before, by, every)


def _look(path: str) -> Looks:
    try:
        queues: dict[str, Any] | None = ask(path, "queues")
    except KernelError:
        # No engine has queues.  If the system has gone, the next request says so.
        queues = None
    return ask(path, "status"), queues


def _parts(looks: Looks, before: Looks, by: str) -> list[_Part]:
    """Return the tables, each sorted."""
    status, queues = looks
    add_rates(rows_of(status), rows_of(before[0]), status["at"] - before[0]["at"])
    parts = [
        _Part("Engines", ("name", "state", "connections", "in/s", "out/s"), _engines(status["status"])),
        _Part("Routes", ("name", "depth", "rate", "dropped", "unrouted", "held"), _routes(status["status"])),
    ]
    if queues is not None and queues["rows"]:
        # A broker may have been added since the look before.
        if before[1] is not None:
            add_rates(rows_of(queues), rows_of(before[1]), queues["at"] - before[1]["at"])
        parts.append(
            _Part(
                "Queues", ("name", "ready", "unacked", "consumers", "in/s", "out/s"), _queues(queues["rows"])
            )
        )
    for part in parts:
        # Names in their order, figures with the largest first.
        part.rows.sort(key=lambda row: str(row["name"]))
        if by != "name":
            # Stable: rows with equal figures stay in the order of their names, and do not jump from look to
            # look.
            part.rows.sort(key=lambda row: row.get(by) or 0, reverse=True)
    return parts


def _engines(status: Row) -> list[Row]:
    rows = []
    for engine in status["engines"]:
        counters = engine["counters"]
        row = {"name": engine["name"], "state": engine["state"], "connections": counters.get("connections")}
        rows.append({**row, **_rates(counters, "messages_in", "messages_out")})
    return rows


def _routes(status: Row) -> list[Row]:
    shown = ("name", "depth", "dropped", "unrouted", "held")
    return [{**{key: row[key] for key in shown}, "rate": row.get("written/s")} for row in status["routes"]]


def _queues(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "name": row["name"] if row["vhost"] == "/" else f"{row['vhost']} {row['name']}",
            "ready": row["messages_ready"],
            "unacked": row["messages_unacknowledged"],
            "consumers": row["consumers"],
            "depth": row["messages"],
            **_rates(row, "messages_in", "messages_out"),
        }
        for row in rows
    ]


def _rates(row: Row, came: str, went: str) -> Row:
    into, out = row.get(f"{came}/s"), row.get(f"{went}/s")
    return {"in/s": into, "out/s": out, "rate": (into or 0) + (out or 0)}


def _print_once(parts: Sequence[_Part]) -> None:
    from kernel.cli.looking import print_table

    for part in parts:
        print_table(part.title, part.columns, part.rows)


def view(parts: Sequence[_Part], by: str, width: int, height: int) -> RenderableType:
    """Return the view for a terminal of this size.

    No line is folded, and no table takes the room of all others.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    name = next(name for column, name in SORTS.values() if column == by)
    shown: list[RenderableType] = [
        Text(f"sorted by {name}   r rate  d depth  l drops  n name  q quit"[:width], style="dim"),
        Text(""),
    ]
    # A title and a heading for each table; what is left is for the rows.
    left = max(height - _HEAD_LINES - 2 * len(parts) - 1, len(parts))
    for number, part in enumerate(parts):
        # What a short table leaves over is for those below it.
        room = max(left // (len(parts) - number), 1)
        rows = part.rows[:room]
        left -= len(rows)
        hidden = len(part.rows) - len(rows)
        title = f"{part.title} ({hidden} more)" if hidden else part.title
        table = Table(
            box=None, pad_edge=False, header_style="bold", title_justify="left", title=title, width=width
        )
        for column in part.columns:
            wide = column == "name"
            table.add_column(
                column,
                no_wrap=True,
                overflow="ellipsis",
                justify="left" if wide else "right",
                ratio=1 if wide else None,
            )
        for row in rows:
            table.add_row(*(Text(printable(_cell(row.get(column)))) for column in part.columns))
        shown.append(table)
    return Group(*shown)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _live(path: str, before: Looks, by: str, every: float) -> None:
    """Show the view until the user quits."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = time.monotonic()
            looks = _look(path)
            parts = _parts(looks, before, by)
            before = looks
            live.update(view(parts, by, *console.size), refresh=True)
            # To ask takes a part of the time between two looks.
            key = pressed(max(0.0, every - (time.monotonic() - now)))
            # Ctrl-C is a signal here, and a key only on a terminal that makes no signals.
            if key in ("q", "Q", "\x03"):
                return
            by = SORTS.get(key, (by, ""))[0]


def _no_key(seconds: float) -> str:
    """Wait where there is no keyboard."""
    time.sleep(seconds)
    return ""


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key, at most so many seconds; empty if there was none."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    if not os.isatty(stdin):
        yield _no_key
        return
    before = termios.tcgetattr(stdin)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([stdin], [], [], seconds)
        # Not ``sys.stdin``: it would read more keys into its buffer, where ``select`` does not see them.
        return os.read(stdin, 1).decode("latin-1") if ready else ""

    try:
        tty.setcbreak(stdin)
        yield pressed
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
