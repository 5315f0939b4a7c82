"""``kernel connection close``: ends the connection of a client.  ``kernel connections`` lists them."""

from __future__ import annotations

import click

from plugins.engines.broker.commands.asking import RunningBroker, control_option, engine_option


@click.group("connection")
def command() -> None:
    """Close the connection of a client of a running broker; `kernel connections` lists them."""


@command.command("close")
@click.argument("name")
@click.option(
    "--reason",
    default="closed by an operator",
    show_default=True,
    help="What the client is told, and the log.",
)
@control_option
@engine_option
def close(name: str, reason: str, control: str | None, engine: str | None) -> None:
    """Close the connection NAME.

    Its messages that are not acknowledged return to their queues.  Most clients connect again; `kernel user
    delete` or `kernel user forbid` keeps them out.
    """
    RunningBroker(control, engine).operate("close-connection", {"name": name, "reason": reason})
