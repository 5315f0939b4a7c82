"""``kernel tap``: shows messages as they pass."""

from __future__ import annotations

import json
from typing import Any

import click

from kernel.cli.asking import AskingCommand
from kernel.cli.seconds import Seconds
from kernel.cli.showing import control_option, json_option, message_lines, pair_of
from kernel.inspection.printing import printable
from kernel.topology.control import find_running, watch


@click.command("tap", cls=AskingCommand, operation="tap", after="target")
@click.option(
    "--from",
    "source",
    metavar="ENGINE",
    default="",
    help="What this engine sends on its routes; with an option of its kind, what passes inside it.",
)
@click.option(
    "--to", "target", metavar="ENGINE", default="", help="What the routes bring that lead to this engine."
)
@click.option(
    "--key", "keys", metavar="PATTERN", multiple=True, help="Only keys that match, as a.* or a.#; repeatable."
)
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Only with this header; repeatable."
)
@click.option("--contains", metavar="TEXT", default="", help="Only with this text in the body.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--seconds", type=Seconds(0), help="End after so many seconds.")
@json_option
@control_option
def command(
    source: str,
    target: str,
    asked: dict[str, str],
    keys: tuple[str, ...],
    headers: tuple[str, ...],
    contains: str,
    limit: int | None,
    seconds: float | None,
    as_json: bool,
    control: str | None,
) -> None:
    """Show messages as they pass, until Ctrl-C.  They are not taken, and nobody waits for this.

    Messages that pass faster than they can be shown are dropped here, and counted.  With --json each message
    is a line, {"message": ...}; {"dropped": N} says how many were dropped so far.
    """
    if not (source or target or asked or keys):
        raise click.UsageError(
            "say what to watch: --from, --to, --key, or an option of an engine kind; --help lists them"
        )
    wanted = {
        "source": source,
        "target": target,
        "asked": asked,
        "keys": keys,
        "headers": dict(pair_of("--header", text) for text in headers),
        "contains": contains,
    }
    for answer in watch(control or find_running(), {"watch": wanted, "limit": limit, "seconds": seconds}):
        if as_json:
            click.echo(json.dumps(answer))
        else:
            _show(answer)


def _show(answer: dict[str, Any]) -> None:
    if "message" in answer:
        for line in message_lines(answer["message"]):
            click.echo(line)
    elif "end" in answer:
        click.echo(
            f"{answer['shown']} shown, {answer['dropped']} dropped: {printable(answer['end'])}", err=True
        )
    elif "dropped" in answer:
        click.echo(f"{answer['dropped']} dropped so far, because they pass too fast", err=True)
    else:
        click.echo("watching", err=True)
