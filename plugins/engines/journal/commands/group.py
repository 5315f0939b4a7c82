"""``kernel journal``: the group, and what its commands have in common with nobody else."""

from __future__ import annotations

import importlib
from typing import Any

import click

from plugins.engines.journal.plugin import has_pyarrow, need_pyarrow
from plugins.protocols.journal_format.errors import JournalError

COMMANDS = {
    "ls": ("listing", "List the segments of a journal, and how far its consumers are."),
    "head": ("showing", "Show the first messages."),
    "tail": ("showing", "Show the last messages; with --follow, those that come."),
    "cat": ("showing", "Show all messages, or some, as text, JSON, CSV or bare bodies."),
    "stat": ("counting", "Count messages and bytes by key, engine, or any column."),
    "replay": ("replaying", "Play messages back to an address, at the pace they had or faster."),
    "verify": ("checking", "Read everything and compare every checksum."),
    "repair": ("checking", "Make good what the data prove: lost or damaged indexes."),
    "compact": ("packing", "Make few large, compressed batches of many small ones."),
    "export": ("packing", "Write Parquet files, partitioned if you like."),
}
"""Each ``NAME`` is in the module beside this one; summaries stand here, so that help imports nothing."""


class JournalGroup(click.Group):
    """Subcommands by name, imported when wanted; what is wrong with a journal is said in a line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; without pyarrow, return one that has a help text and names the extra."""
        if cmd_name not in COMMANDS:
            return None
        module_name, summary = COMMANDS[cmd_name]
        if not has_pyarrow():
            return _without_pyarrow(cmd_name, summary)
        module = importlib.import_module(f"plugins.engines.journal.commands.{module_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except JournalError as error:
            raise click.ClickException(str(error)) from error


def _without_pyarrow(name: str, summary: str) -> click.Command:
    """Return a stand-in: the modules of the commands cannot be imported without pyarrow."""
    return click.Command(
        name,
        callback=lambda **_: need_pyarrow(),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        help=f"{summary}  It needs the extra: pip install messaging-kernel[journal]",
        context_settings={"ignore_unknown_options": True},
    )


@click.command("journal", cls=JournalGroup)
def command() -> None:
    """Look at journals, replay, check, mend, compact and export them.

    A journal is a directory that an engine of kind "journal" writes.  All commands but repair may be used while it does.
    """
