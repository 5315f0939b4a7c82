"""``kernel queue purge`` and ``delete``: queues of a running broker.  ``kernel queues`` lists them."""

from __future__ import annotations

from typing import Any

import click

from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError, similar
from plugins.engines.broker.commands.asking import (
    RunningBroker,
    control_option,
    engine_option,
    vhost_option,
)

_NOT_FOUND = 404
"""The code of AMQP 0-9-1 for a queue, or a virtual host, that does not exist."""


@click.group("queue")
def command() -> None:
    """Purge or delete a queue of a running broker; `kernel queues` lists them."""


@command.command("purge")
@click.argument("name")
@vhost_option
@control_option
@engine_option
def purge(name: str, vhost: str, control: str | None, engine: str | None) -> None:
    """Drop all ready messages of the queue NAME, and say how many they were.

    Messages that a consumer has and has not acknowledged stay.
    """
    count = _do("purge-queue", control, engine, {"vhost": vhost, "name": name})
    click.echo(f"queue {name!r}: {counted(count, 'message')} dropped")


@command.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Delete it only if it has no consumer.")
@click.option("--if-empty", is_flag=True, help="Delete it only if it has no ready message.")
@vhost_option
@control_option
@engine_option
def delete(
    name: str, if_unused: bool, if_empty: bool, vhost: str, control: str | None, engine: str | None
) -> None:
    """Delete the queue NAME with its messages and bindings, and say how many ready messages it had.

    Its consumers are told, if their protocol can tell them.
    """
    named = {"vhost": vhost, "name": name, "if_unused": if_unused, "if_empty": if_empty}
    count = _do("delete-queue", control, engine, named)
    click.echo(f"queue {name!r} deleted; it had {counted(count, 'ready message')}")


def _do(what: str, control: str | None, engine: str | None, named: dict[str, Any]) -> int:
    """Do it; return the number of messages.  ``KernelError`` says that nothing was changed, and why."""
    broker = RunningBroker(control, engine)
    done = broker.operate(what, named)
    if "refused" not in done:
        return int(done["messages"])
    reason = done["refused"]["reason"]
    if done["refused"]["code"] != _NOT_FOUND:
        raise KernelError(f"nothing was changed: {reason}")
    near = similar(
        named["name"], [row["name"] for row in broker.rows("queues") if row["vhost"] == named["vhost"]]
    )
    raise KernelError(f"{reason}; {f'did you mean {near!r}?' if near else '`kernel queues` lists all'}")
