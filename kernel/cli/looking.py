"""The common part of the commands that show a running system: ``status``, ``queues``, ``connections`` ...

Each of them asks the control socket of the system (``kernel/topology/control.py``) for a table and prints it.
With ``--watch`` it asks again and again.  The answers have counters; the rates are computed here, from two
answers and the time between them by the system's own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import click

from kernel.cli.seconds import Seconds
from kernel.inspection.printing import printable
from kernel.topology.control import ask, find_running

Row: TypeAlias = dict[str, Any]
Show: TypeAlias = Callable[[dict[str, Any]], None]

# What tells one row from another in two answers, whatever the table.
_IDENTITY = ("engine", "vhost", "name")
COUNTERS = ("messages_in", "messages_out", "recv_oct", "send_oct", "written")
"""Counters, which only grow: two answers make a rate of them."""
_ANY_WIDTH = 100_000
"""Columns: more than a row has.  Rich folds what is longer, also a heading."""


def looking(what: str, help_text: str, show: Show) -> click.Command:
    """Return the command that asks for ``what`` and shows the answer."""

    @click.command(what, help=help_text)
    @click.option(
        "--control",
        metavar="PATH",
        help="The control socket of the system.  Default: that of the only running one.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, one line for each answer.")
    @click.option(
        "--watch",
        type=Seconds(0.01),
        metavar="SECONDS",
        help="Ask again every SECONDS, and add rates.",
    )
    @click.option("--looks", type=click.IntRange(min=1), help="With --watch: stop after so many tables.")
    def command(control: str | None, as_json: bool, watch: float | None, looks: int | None) -> None:
        # Once: with ``--watch`` all tables are of one system, even if another one starts in the meantime.
        path = control or find_running()
        for answer in _answers(path, what, watch, looks):
            if as_json:
                _print_json(answer)
            else:
                show(answer)
            # To standard error, since programs read the rows.
            for complaint in answer.get("failed", ()):
                click.echo(f"kernel: {complaint}", err=True)

    return command


def table_of(title: str, columns: Sequence[str]) -> Show:
    """Return a function that prints the rows of an answer as a table: these columns, and the rates."""

    def show(answer: dict[str, Any]) -> None:
        rows = answer["rows"]
        rates = [f"{name}/s" for name in COUNTERS if any(f"{name}/s" in row for row in rows)]
        print_table(title, (*columns, *rates), rows)

    return show


def print_table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows.

    Names are shown as they are: neither the markup of rich nor escape sequences in them have an effect.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left", title=title)
    for column in columns:
        number = any(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, overflow="fold", justify="right" if number else "left")
    for row in rows:
        table.add_row(*(escape(printable(_text(row.get(column)))) for column in columns))
    # Into a pipe or a file rich would write 80 columns, and fold what programs such as grep want in one line.
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=_ANY_WIDTH)).print(table)


def add_rates(rows: list[Row], before: list[Row], seconds: float) -> None:
    """Write into each row how fast its counters grew since the look before."""
    known = {_identity(row): row for row in before}
    for row in rows:
        earlier = known.get(_identity(row))
        if earlier is None or seconds <= 0:
            continue
        for name in COUNTERS:
            # A smaller value: the engine has failed and begins to count anew.  There is no rate until the
            # next look.
            if name in row and name in earlier and row[name] >= earlier[name]:
                row[f"{name}/s"] = round((row[name] - earlier[name]) / seconds, 1)


def rows_of(answer: dict[str, Any]) -> list[Row]:
    """Return all rows that may have rates, of any answer, in one list."""
    # The list is new and the rows are those of the answer, so that ``add_rates`` writes into the answer.
    if "rows" in answer:
        return list(answer["rows"])
    status = answer["status"]
    return [*(engine["counters"] for engine in _named(status["engines"])), *status["routes"]]


def _named(engines: list[Row]) -> Iterator[Row]:
    for engine in engines:
        # Counters have no name of their own, and ``_identity`` has to tell those of two engines apart.
        engine["counters"]["name"] = engine["name"]
        yield engine


def _answers(path: str, what: str, watch: float | None, looks: int | None) -> Iterator[dict[str, Any]]:
    """Ask once, or every ``watch`` seconds.  The first answer is then not shown, as it has no rates."""
    answer = ask(path, what)
    if watch is None:
        yield answer
        return
    shown = 0
    while looks is None or shown < looks:
        before = answer
        time.sleep(watch)
        answer = ask(path, what)
        add_rates(rows_of(answer), rows_of(before), answer["at"] - before["at"])
        yield answer
        shown += 1


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in _IDENTITY)


def _print_json(answer: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(answer.get("status", answer.get("rows"))))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return "" if value is None else str(value)
