"""``kernel explain``: says who would get a message, and for those who would not, why."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from kernel.cli.asking import AskingCommand
from kernel.cli.showing import Row, control_option, json_option, pair_of
from kernel.inspection.printing import printable
from kernel.topology.control import ask, find_running


@click.command("explain", cls=AskingCommand, operation="explain", after="engine")
@click.option(
    "--from",
    "engine",
    metavar="ENGINE",
    help="The engine where the message begins.  Default: the only one that can be asked so.",
)
@click.option("--key", default="", help="Its key.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; may be repeated.")
@click.option(
    "--only", type=click.Choice(["gets", "misses"]), help="Show only those who get it, or who do not."
)
@json_option
@control_option
def command(
    engine: str | None,
    asked: dict[str, str],
    key: str,
    headers: tuple[str, ...],
    only: str | None,
    as_json: bool,
    control: str | None,
) -> None:
    """Say who would get a message, on routes and inside engines; and for those who would not, why.

    Nothing is published.  "+" stands before what gets the message, and "-" before what does not.
    """
    if engine is None and not key and not asked:
        raise click.UsageError("say which message: --key, or an option of an engine kind; --help lists them")
    question = {
        "engine": engine or "",
        "key": key,
        "headers": dict(pair_of("--header", text) for text in headers),
        "asked": asked,
    }
    done = ask(control or find_running(), "explain", 60.0, argument=question)["done"]
    if as_json:
        click.echo(json.dumps(done))
        return
    for row in done["rows"]:
        for line in _lines(row, 0, only):
            click.echo(line)
    if not done["rows"]:
        click.echo(f"nobody: no route begins at {printable(done['engine'])!r}")


def _lines(row: Row, depth: int, only: str | None) -> Iterator[str]:
    below = [line for each in row["next"] for line in _lines(each, depth + 1, only)]
    # What leads to a row that is shown is shown as well.
    if only is None or row["gets"] == (only == "gets") or below:
        indent = "  " * depth
        sign = "+" if row["gets"] else "-"
        name = row["name"] or '""'
        yield printable(f"{indent}{sign} {row['what']} {name}: {row['why']}")
        for note in row["notes"]:
            yield printable(f"{indent}    {note}")
    yield from below
