"""``kernel prove``: says what an acknowledgement means to the publishers of a topology."""

from __future__ import annotations

import json

import click
import msgspec

from kernel.cli.showing import json_option
from kernel.contracts.assurance import rank
from kernel.inspection.printing import printable
from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan
from kernel.topology.proving import Proof, prove


@click.command("prove")
@click.argument("file", type=click.Path())
@click.option(
    "--at-least",
    type=click.Choice(["sent", "memory", "system", "disk"]),
    help="Exit with 1 if an acknowledgement means less.",
)
@click.option(
    "--source", "sources", metavar="ENGINE", multiple=True, help="Only this source; may be repeated."
)
@json_option
def command(file: str, at_least: str | None, sources: tuple[str, ...], as_json: bool) -> int:
    """Say for each source of a topology FILE what an acknowledgement to its publisher means, hop by hop.

    From the file alone: nothing is started.  The weakest hop counts.  From weak to strong: nothing, sent,
    memory (a kill loses it), system (a loss of power loses it), disk; and peer, the word of another system,
    which counts as disk.
    """
    registry = PluginRegistry.load()
    proofs = prove(load_plan(file, registry), registry)
    unknown = set(sources) - {proof.source for proof in proofs}
    if unknown:
        known = ", ".join(proof.source for proof in proofs) or "none"
        raise click.UsageError(f"--source {min(unknown)!r} is no source of {file}; its sources: {known}")
    weak = False
    for proof in proofs:
        if sources and proof.source not in sources:
            continue
        weak = weak or (at_least is not None and rank(proof.level) < rank(at_least))  # type: ignore[arg-type]
        if as_json:
            click.echo(json.dumps(msgspec.to_builtins(proof)))
        else:
            _show(proof)
    return 1 if weak else 0


def _show(proof: Proof) -> None:
    given = f"acknowledges with {proof.acknowledges}" if proof.acknowledges else "acknowledges nothing"
    click.echo(printable(f"{proof.source}: {proof.level} ({given}; weakest: {proof.weakest})"))
    for hop in proof.hops:
        click.echo(printable(f"  {hop.level:<8}{hop.name}: {hop.why}"))
