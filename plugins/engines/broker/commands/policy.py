"""``kernel policy set`` and ``delete``: policies of a running broker.  ``kernel policies`` lists them."""

from __future__ import annotations

from typing import Any

import click

from kernel.contracts.errors import KernelError
from plugins.engines.broker.commands.asking import (
    RunningBroker,
    control_option,
    engine_option,
    vhost_option,
)
from plugins.engines.broker.policies import APPLY_TO, known_keys, unknown_keys


@click.group("policy")
def command() -> None:
    """Set or delete a policy of a running broker; `kernel policies` lists them.

    A policy gives arguments to all queues or exchanges whose names match.  With a data_dir it is
    kept for the next start.
    """


@command.command("set")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@click.option("--priority", default=0, show_default=True, help="Of several that match, the highest applies.")
@click.option(
    "--apply-to", type=click.Choice(APPLY_TO), default="all", show_default=True, help="To what it may apply."
)
@vhost_option
@control_option
@engine_option
def set_(
    name: str,
    pattern: str,
    definition: str,
    priority: int,
    apply_to: str,
    vhost: str,
    control: str | None,
    engine: str | None,
) -> None:
    """Set the policy NAME: queues and exchanges whose names match PATTERN get DEFINITION.

    PATTERN is a regular expression.  DEFINITION is a JSON object, as for rabbitmqctl: '{"max-length": 1000}'.
    One of this name is replaced.
    """
    policy = {
        "name": name,
        "vhost": vhost,
        "pattern": pattern,
        "definition": _read(definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    RunningBroker(control, engine).change("import-definitions", "policies", policy)


@command.command("delete")
@click.argument("name")
@vhost_option
@control_option
@engine_option
def delete(name: str, vhost: str, control: str | None, engine: str | None) -> None:
    """Delete the policy NAME, which was set or imported.

    One of this name in the topology file counts again.
    """
    RunningBroker(control, engine).change("delete-definitions", "policies", {"vhost": vhost, "name": name})


def _read(text: str) -> dict[str, Any]:
    import json

    try:
        definition = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KernelError(f"the definition is no JSON: {error}") from None
    if not isinstance(definition, dict) or not definition:
        raise KernelError('the definition is no JSON object with keys, such as {"max-length": 1000}')
    unknown = unknown_keys(definition)
    if unknown:
        # An import ignores them, as RabbitMQ's files have many.  Who types one expects an effect.
        raise KernelError(
            f"{', '.join(unknown)}: no such key has an effect here; those that have: {', '.join(known_keys())}"
        )
    return definition
