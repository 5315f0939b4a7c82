"""``kernel draw``: a topology file as a picture."""

from __future__ import annotations

import click

from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan
from kernel.topology.draw import matrix_text, mermaid
from kernel.topology.svg import svg


@click.command("draw")
@click.argument("file", type=click.Path())
@click.option(
    "--svg",
    "svg_file",
    type=click.Path(dir_okay=False),
    help="Write an SVG drawing to this file (-: standard output).",
)
@click.option("--matrix", is_flag=True, help="Print the matrix of threads and routes as a table.")
def command(file: str, svg_file: str | None, matrix: bool) -> None:
    """Draw a topology FILE: threads are boxes, engines stand in them, routes are arrows.

    Without --svg and --matrix, prints a flow chart for Mermaid.
    """
    if svg_file == "-" and matrix:
        raise click.UsageError(
            "--svg - and --matrix would both write to standard output; give --svg a file, or leave one of them out"
        )
    registry = PluginRegistry.load()
    plan = load_plan(file, registry)
    # Standard output is the drawing.
    for line in plan.left_out:
        click.echo(line, err=True)
    if svg_file is not None:
        with click.open_file(svg_file, "w", encoding="utf-8") as stream:
            stream.write(svg(plan, registry.apis))
    if matrix:
        click.echo(matrix_text(plan, registry.apis), nl=False)
    if svg_file is None and not matrix:
        click.echo(mermaid(plan, registry.apis), nl=False)
