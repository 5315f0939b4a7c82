"""``kernel check``: reports all mistakes of topology files."""

from __future__ import annotations

import click

from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan
from kernel.topology.plan import Plan


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path())
def command(files: tuple[str, ...]) -> int:
    """Report all mistakes of topology FILES, one a line: file, line, complaint, hint.

    The exit status is 0 if there are none, and 1 otherwise.
    """
    registry = PluginRegistry.load()
    wrong = 0
    for name in files:
        try:
            plan = load_plan(name, registry)
        except PlanError as error:
            wrong += len(error.complaints)
            # To standard output, unlike other commands: here the complaints are the result.
            for complaint in error.complaints:
                click.echo(complaint)
        else:
            click.echo(f"{name}: good: {_summary(plan)}")
    return 1 if wrong else 0


def _summary(plan: Plan) -> str:
    # A plan without threads gets one when it starts.
    counts = [(len(plan.threads) or 1, "thread"), (len(plan.engines), "engine"), (len(plan.routes), "route")]
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
