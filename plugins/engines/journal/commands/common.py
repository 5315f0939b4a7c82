"""What the commands share: the journal's argument, the range of rows, filters, times, progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from plugins.engines.journal.moments import Moment, moment_of
from plugins.engines.journal.selection import Selection
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.names import segment_names

F = TypeVar("F", bound=Callable[..., Any])


class JournalPath(click.Path):
    """A directory with at least one segment in it."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check that there is a journal."""
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        if not segment_names(path):
            self.fail(f"{path} has no journal in it: there is no .index file", param, ctx)
        return path


class MomentType(click.ParamType):  # type: ignore[type-arg]
    """An offset, a moment, ``earliest`` or ``latest``."""

    name = "offset|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Read it."""
        try:
            return value if isinstance(value, datetime) else moment_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


journal_argument = click.argument("journal", type=JournalPath())


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
        help="The first offset, or a time: 2026-11-21T12:00:00Z.",
    )(command)


def filter_options(command: F) -> F:
    """Add ``--key``, ``--exchange`` and ``--engine``."""
    command = click.option("--engine", help="Only what this engine sent.")(command)
    command = click.option("--exchange", help="Only this exchange.")(command)
    return click.option(
        "--key",
        "match",
        multiple=True,
        metavar="PATTERN",
        help="Only keys that fit, as in a route's match: weather.#",
    )(command)


def selection_of(match: tuple[str, ...], exchange: str | None, engine: str | None) -> Selection:
    """Return what the filter options say."""
    return Selection(match=match, exchange=exchange, engine=engine)


def when(micros: int) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(micros / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


class DamageTold:
    """Tells of damage on stderr as it is met, and counts it."""

    def __init__(self) -> None:
        self.places = self.rows = 0

    def __call__(self, damage: Damaged) -> None:
        self.places += 1
        self.rows += damage.stop - damage.start
        click.echo(f"kernel: {damage}", err=True)


@contextmanager
def progress(what: str, total: int, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if that is a terminal; yields what is to be called with each step."""
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
