"""``kernel journal``: the group of commands.  Its help works without pyarrow, and imports no command."""

from __future__ import annotations

import importlib
from typing import Any

import click

from plugins.engines.journal.plugin import PYARROW
from plugins.protocols.journal_format.errors import JournalError

COMMANDS = {
    "ls": ("listing", "List the segments of a journal, and the positions of its consumers."),
    "head": ("showing", "Show the first messages."),
    "tail": ("showing", "Show the last messages; with --follow, also new ones."),
    "cat": ("showing", "Show all messages, or some, as text, JSON, CSV or bodies only."),
    "stat": ("counting", "Count messages and bytes by key, engine or another column."),
    "replay": ("replay", "Send messages to an address, at their original pace or faster."),
    "verify": ("checking", "Read everything and check every checksum."),
    "repair": ("checking", "Rebuild lost and damaged indexes from the data."),
    "compact": ("packing", "Merge many small batches into few large, compressed ones."),
    "export": ("packing", "Write Parquet files, partitioned on request."),
}
"""By name of the command: its module in this package, and its summary.  Help uses these and imports no
command."""


class JournalGroup(click.Group):
    """A group whose commands are imported when they are used.  It prints a ``JournalError`` as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; without pyarrow, return a stand-in that says what to install."""
        if cmd_name not in COMMANDS:
            return None
        module_name, summary = COMMANDS[cmd_name]
        return load_command(cmd_name, summary, module_name, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except JournalError as error:
            raise click.ClickException(str(error)) from error


def load_command(name: str, summary: str, module_name: str, attribute: str = "command") -> click.Command:
    """Import a command of this package; without pyarrow, return a stand-in that says what to install."""
    # The modules of the commands import pyarrow at their head.
    if not PYARROW.is_installed():
        return _without_pyarrow(name, summary)
    module = importlib.import_module(f"plugins.engines.journal.commands.{module_name}")
    command: click.Command = getattr(module, attribute)
    return command


def _without_pyarrow(name: str, summary: str) -> click.Command:
    """Return a stand-in for a command, whose module cannot be imported without pyarrow."""
    return click.Command(
        name,
        callback=lambda **_: PYARROW.need(),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        help=f"{summary}  It needs the extra: pip install 'messaging-kernel[journal]'",
        context_settings={"ignore_unknown_options": True},
    )


@click.command("journal", cls=JournalGroup)
def command() -> None:
    """Show, replay, check, repair, compact and export journals.

    A journal is a directory that an engine of kind "journal" writes.  All commands except repair may be used
    while it is written.
    """
