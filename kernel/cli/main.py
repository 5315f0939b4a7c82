"""The ``kernel`` command: finds its subcommands, and turns errors into lines for people and exit codes.

There are three sorts of subcommands, and in this order of precedence: those of this package, those that
plugins register, and one for each table that an engine kind announces (``EngineKind.tables``), which prints
the rows of a running system.

A subcommand's module is imported when it is used or its own help is wanted, so that ``kernel --help`` and
shell completion stay quick.

An error that a user can do something about is one line without a traceback.  Any other exception is a mistake
in the program, and its traceback is wanted.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kernel.contracts.errors import KernelError, PlanError, nearest
from kernel.topology.collecting import begin_start

if TYPE_CHECKING:
    from kernel.contracts.kinds import Table
    from kernel.plugins import PluginRegistry

OK = 0
FAILED = 1
"""Something went wrong while running, or a check found complaints."""
USAGE = 2
"""The command line was wrong."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""

# A test compares these summaries with what the commands say of themselves.
COMMANDS: dict[str, str] = {
    "run": "Run a topology file until Ctrl-C or SIGTERM; SIGHUP applies its changes.",
    "check": "Report all mistakes of a topology file, with lines and hints.",
    "prove": "Say what an acknowledgement means to each publisher of a topology file.",
    "dry-run": "Open every endpoint, certificate and folder of a topology file; no message passes.",
    "draw": "Draw a topology file: Mermaid, SVG, or the matrix of threads.",
    "status": "Show a running system: engines, routes, pipes, threads.",
    "top": "Show what a running system does, live: engines, routes, queues, rates.",
    "tap": "Show messages as they pass, on routes and inside engines.",
    "explain": "Say who would get a message, and for those who would not, why.",
    "peek": "Look at the first messages of a queue, and leave them there.",
    "inspect": "Decode the conversations in captured packets, and count losses.",
    "plugins": "List what is installed, or show the options of one kind.",
    "new": "Write a new engine, protocol or API as an installable distribution.",
    "tour": "Follow one message through every hop.",
    "bench": "Measure this machine, in a few seconds.",
}
"""The subcommands of this package: each is ``command`` in the module ``kernel.cli.NAME``,
with ``_`` for ``-``.

The summaries stand here, so that the help of ``kernel`` imports none of these modules."""

_SECTIONS = {
    "Topology files": ("run", "check", "prove", "dry-run", "draw"),
    "A running system": ("status", "top", "tap", "explain", "peek"),
    "Tools": ("inspect", "plugins", "new", "tour", "bench"),
}
"""How the help divides them.  What plugins bring has a section of its own."""


def _module(name: str) -> str:
    return name.replace("-", "_")


class CommandGroup(click.Group):
    """Subcommands by name, imported when wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of this package's subcommands, and then the others."""
        return [*COMMANDS, *sorted({*registry().commands, *_tables()}.difference(COMMANDS))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None when there is none of that name."""
        if cmd_name in COMMANDS:
            command: click.Command = importlib.import_module(f"kernel.cli.{_module(cmd_name)}").command
            return command
        installed = registry().commands.get(cmd_name)
        if installed is not None:
            loaded: click.Command = installed.kind.load()
            return loaded
        table = _tables().get(cmd_name)
        return None if table is None else _table_command(table)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the subcommand; a misspelt one gets a hint."""
        name = args[0] if args else ""
        # Before click looks: it would say that there is no such command, and no more.
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"there is no command {name!r}; {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        summaries = {name: table.title for name, table in _tables().items()}
        summaries |= {name: installed.kind.summary for name, installed in registry().commands.items()}
        # Last, so that no plugin can change what the help says of this package's commands.
        summaries |= COMMANDS
        ours = {name for names in _SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in ours)
        for title, names in (*_SECTIONS.items(), ("What plugins bring", others)):
            with formatter.section(title):
                formatter.write_dl([(name, summaries[name]) for name in names])


@click.command(
    cls=CommandGroup, epilog="Exit status: 0 done, 1 failed or complaints, 2 wrong usage, 130 interrupted."
)
@click.version_option(package_name="messaging-kernel", prog_name="kernel")
def cli() -> None:
    """Building blocks for messaging: brokers, bridges, clients and buses from a few lines of TOML."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit.  The entry point of the distribution."""
    # First: what is imported and made from here on is what the collector should not look through.
    begin_start()
    _have_standard_streams()
    # Not standard error, which Python opens with ``backslashreplace`` anyway.
    _write_anything(sys.stdout)
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    Errors that a user can do something about have no traceback.
    """
    try:
        # ``standalone_mode`` would have click exit by itself, and print tracebacks of the errors below.
        status = cli.main(
            args=None if arguments is None else list(arguments), prog_name="kernel", standalone_mode=False
        )
        # It returns what the command has returned.  Only some commands, such as ``check``, return a status.
        return status if isinstance(status, int) else OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    # Before ``KernelError``, its base class: it has several lines, each of which begins with its place.
    except PlanError as error:
        for complaint in error.complaints:
            click.echo(complaint, err=True)
        return FAILED
    except KernelError as error:
        click.echo(f"kernel: {error}", err=True)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    # The reader of the output has gone, as in ``kernel draw | head``: nobody would read a message, either.
    except BrokenPipeError:
        _write_no_more()
        return FAILED
    # A full disk, a folder that does not exist or that may not be written.
    except OSError as error:
        _write_no_more()
        # ``fsdecode``: a name of a file need not be Unicode.
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        click.echo(f"kernel: {place}{error.strerror or error}", err=True)
        return FAILED


def _have_standard_streams() -> None:
    """Replace standard streams that were closed before the start by the null device.

    Service managers may start a program so.  Python then has None instead of a stream object.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # No ``with``: it is open until the process ends.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _write_anything(stream: Any) -> None:
    """Write escapes for characters that the encoding of the output does not have, instead of an error."""
    if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding != "utf-8"):
        stream.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """Give up what could not be written."""
    # Python flushes standard output once more when it exits, and reports the error there, too.  If a flush
    # fails now, the rest goes to the null device.
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tables() -> dict[str, Table]:
    """Return the tables that have a command: those with columns.  The others are for programs only."""
    return {name: table for name, table in registry().tables().items() if table.columns}


def _table_command(table: Table) -> click.Command:
    from kernel.cli.looking import looking, table_of

    return looking(table.name, table.title, table_of("", ("engine", *table.columns)))


def registry() -> PluginRegistry:
    """Return the plugins, loaded once for each command line."""
    # A command line needs them several times: to find the command, to list all commands, for a hint.
    context = click.get_current_context(silent=True)
    if context is None:
        return _load()
    root = context.find_root()
    if "registry" not in root.meta:
        root.meta["registry"] = _load()
    loaded: PluginRegistry = root.meta["registry"]
    return loaded


def _load() -> PluginRegistry:
    from kernel.plugins import PluginRegistry

    return PluginRegistry.load()
