"""``kernel dry-run``: opens everything that topology files name, and passes no message."""

from __future__ import annotations

import json

import click
import msgspec

from kernel.cli.seconds import Seconds
from kernel.cli.showing import json_option
from kernel.inspection.printing import printable
from kernel.plugins import PluginRegistry
from kernel.topology.dry_run import dry_run

_SIGNS = {True: "ok    ", False: "FAILED", None: "-     "}


@click.command("dry-run")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--seconds", type=Seconds(0.01), default=5.0, show_default=True, help="How long each connection may take."
)
@json_option
def command(files: tuple[str, ...], seconds: float, as_json: bool) -> int:
    """Open every endpoint, certificate and folder that topology FILES name; no message passes.

    Places to listen at are bound, others are connected to, with TLS if the address says so.  Nobody logs
    in, and nothing is declared.  The exit status is 1 if anything failed, as a place does that a running
    system already uses.
    """
    registry = PluginRegistry.load()
    failed = False
    for name in files:
        for finding in dry_run(name, registry, seconds):
            # None is no failure: it was not tried.
            failed = failed or finding.ok is False
            if as_json:
                click.echo(json.dumps({"file": name, **msgspec.to_builtins(finding)}))
            else:
                click.echo(printable(f"{_SIGNS[finding.ok]} {name}: {finding.where}: {finding.text}"))
    return 1 if failed else 0
