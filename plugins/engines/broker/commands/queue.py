"""``kernel queue purge`` and ``delete``: queues of a running broker.  ``kernel queues`` lists them."""

from __future__ import annotations

from typing import Any

import click

from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError
from plugins.engines.broker.commands.asking import (
    RunningBroker,
    control_option,
    engine_option,
    vhost_option,
)


@click.group("queue")
def command() -> None:
    """Purge or delete a queue of a running broker; `kernel queues` lists them."""


@command.command("purge")
@click.argument("name")
@vhost_option
@control_option
@engine_option
def purge(name: str, vhost: str, control: str | None, engine: str | None) -> None:
    """Drop the messages of the queue NAME that no consumer has, and say how many they were."""
    _do("purge-queue", control, engine, {"vhost": vhost, "name": name})


@command.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only if it has no consumer.")
@click.option("--if-empty", is_flag=True, help="Only if no message is ready.")
@vhost_option
@control_option
@engine_option
def delete(
    name: str, if_unused: bool, if_empty: bool, vhost: str, control: str | None, engine: str | None
) -> None:
    """Delete the queue NAME with its messages and bindings, and say how many messages were ready.

    Its consumers are told, if they can be.
    """
    named = {"vhost": vhost, "name": name, "if_unused": if_unused, "if_empty": if_empty}
    _do("delete-queue", control, engine, named)


def _do(what: str, control: str | None, engine: str | None, named: dict[str, Any]) -> None:
    done = RunningBroker(control, engine).operate(what, named)
    if "refused" in done:
        raise KernelError(done["refused"]["reason"])
    click.echo(f"{counted(done['messages'], 'message')} dropped")
