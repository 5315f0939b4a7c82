"""Shared by the commands: arguments, options for ranges and filters, times, damage reports, progress bars."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from plugins.engines.journal.moments import Moment, moment_of
from plugins.engines.journal.selection import Selection
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.folders import Files, Location, is_address
from plugins.protocols.journal_format.names import segment_names

F = TypeVar("F", bound=Callable[..., Any])

_TIME_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")


class JournalPath(click.Path):
    """A directory that contains at least one segment; with ``archives``, also the address of an archive."""

    def __init__(self, *, archives: bool = False) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)
        self._archives = archives

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Return the path or the address; fail if it has no segment."""
        if self._archives and is_address(value):
            if not Files(value).listed()[0]:
                self.fail(f"{value} is not the archive of a journal: it has no .index file", param, ctx)
            return str(value)
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if not segment_names(path):
            self.fail(f"{path} is not a journal: it has no .index file", param, ctx)
        return path


class MomentType(click.ParamType):  # type: ignore[type-arg]
    """An offset, a time, ``earliest`` or ``latest``; a time of day (``10:42``) is one of today, in UTC."""

    name = "offset|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Return the moment; fail if it cannot be parsed."""
        try:
            if isinstance(value, str) and _TIME_OF_DAY.fullmatch(value):
                value = f"{datetime.now(UTC).date()}T{value}"
            return value if isinstance(value, datetime) else moment_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


journal_argument = click.argument("journal", type=JournalPath())
readable_argument = click.argument("journal", type=JournalPath(archives=True))
"""For commands that only read."""


json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def range_options(command: F) -> F:
    """Add ``--from`` and ``--to``."""
    command = click.option(
        "--to", "end", type=MomentType(), default="latest", help="Stop before this offset or time."
    )(command)
    return click.option(
        "--from",
        "start",
        type=MomentType(),
        default="earliest",
        help="The first offset, or a time: 2026-11-21T12:00:00Z, or 12:00 of today (UTC).",
    )(command)


def filter_options(command: F) -> F:
    """Add ``--key``, ``--exchange`` and ``--engine``."""
    command = click.option("--engine", help="Only messages from this engine.")(command)
    command = click.option("--exchange", help="Only messages to this exchange.")(command)
    return click.option(
        "--key",
        "match",
        multiple=True,
        metavar="PATTERN",
        help="Only keys that match, as in a route's match: weather.#",
    )(command)


def selection_of(match: tuple[str, ...], exchange: str | None, engine: str | None) -> Selection:
    """Return the selection of the filter options."""
    return Selection(match=match, exchange=exchange, engine=engine)


def when(micros: int) -> str:
    """Return a time (microseconds since 1970 UTC) as text for people."""
    return datetime.fromtimestamp(micros / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def confirmed_before(position: int | None) -> str:
    """Return how far a replay has come, for the message of one that was ended.  ``position``: an offset."""
    if position is None:
        return "nothing is confirmed"
    return f"everything before offset {position} is confirmed"


class DamageReport:
    """An ``on_damage`` that prints damage to stderr and counts it."""

    def __init__(self) -> None:
        self.count = self.rows = 0

    def __call__(self, damage: Damaged) -> None:
        self.count += 1
        self.rows += damage.stop - damage.start
        click.echo(f"kernel: {damage}", err=True)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if that is a terminal; yield a function to call with each step's size."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} " + unit),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.update(task, advance=step)
