"""``kernel journal ls``."""

from __future__ import annotations

import json
from typing import Any

import click

from plugins.engines.journal.commands.common import readable_argument, when
from plugins.engines.journal.positions import positions
from plugins.protocols.journal_format.folders import Location
from plugins.protocols.journal_format.reader import JournalReader


@click.command("ls")
@readable_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ls(journal: Location, as_json: bool) -> None:
    """List the segments of a journal, and the positions of its consumers."""
    reader = JournalReader(journal)
    bounds = reader.bounds()
    segments = [
        {
            "segment": str(segment.name),
            "from": segment.start,
            "to": segment.end,
            "rows": segment.end - segment.start,
            "batches": segment.record_batches,
            "bytes": segment.bytes,
            "in": "archive" if segment.archived else "directory",
            "first": when(segment.min_ts) if segment.record_batches else "",
            "last": when(segment.max_ts) if segment.record_batches else "",
        }
        for segment in reader.summaries()
    ]
    consumers = [
        {"consumer": name, "next_offset": offset, "lag": max(bounds.end - offset, 0)}
        for name, offset in positions(journal).items()
    ]
    if as_json:
        answer = {
            "earliest": bounds.earliest,
            "end": bounds.end,
            "segments": segments,
            "consumers": consumers,
        }
        click.echo(json.dumps(answer))
        return
    _print(f"{journal}: offsets {bounds.earliest} to {bounds.end}", segments)
    if consumers:
        _print("consumers", consumers)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=escape(title), title_justify="left", header_style="bold")
    for column, value in rows[0].items():
        table.add_column(column, justify="right" if isinstance(value, int) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(f"{value:,}" if isinstance(value, int) else value) for value in row.values()))
    console = Console(highlight=False)
    # In a pipe rich would fold the table at 80 columns.
    (console if console.is_terminal else Console(highlight=False, width=200)).print(table)
