"""``kernel check``: reports all mistakes of topology files."""

from __future__ import annotations

import click

from kernel.contracts.counts import counted
from kernel.plugins import PluginRegistry
from kernel.topology.check import line_of
from kernel.topology.check_file import check_file
from kernel.topology.plan import PROCESS, Plan


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--file-only",
    is_flag=True,
    help="Do not look at the certificates and ports of this machine: the files are for another one.",
)
def command(files: tuple[str, ...], file_only: bool) -> int:
    """Report all mistakes of topology FILES, one a line: file, line, complaint, hint.

    The exit status is 0 if there are none, and 1 otherwise.  Warnings do not count: they report what is
    probably not meant, and addresses that are in use at this moment.
    """
    registry = PluginRegistry.load()
    wrong = 0
    for name in files:
        report = check_file(name, registry, machine=not file_only)
        wrong += len(report.complaints)
        # To standard output, unlike other commands: here the complaints are the result.
        for line in sorted((*report.complaints, *report.warnings), key=line_of):
            click.echo(line)
        if report.plan is not None:
            for line in report.plan.left_out:
                click.echo(line)
            click.echo(f"{name}: good: {_summary(report.plan)}")
    return 1 if wrong else 0


def _summary(plan: Plan) -> str:
    processes = sum(thread.kind == PROCESS for thread in plan.threads)
    homes = {engine.name: engine.thread for engine in plan.engines}
    apart = {thread.name for thread in plan.threads if thread.kind == PROCESS}
    crossing = sum(
        # All threads of this process are one place.
        len({home if home in apart else "" for home in map(homes.get, route.ends)}) > 1
        for route in plan.routes
    )
    counts = [
        # A plan without a thread in this process gets one when it starts.
        counted(len(plan.threads) - processes or 1, "thread"),
        *([counted(processes, "process", "processes")] if processes else []),
        counted(len(plan.engines), "engine"),
        counted(len(plan.routes), "route"),
    ]
    text = ", ".join(counts)
    return f"{text} ({crossing} between processes)" if crossing else text
