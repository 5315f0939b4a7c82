"""``kernel definitions export`` and ``import``: the definitions of a running broker, in RabbitMQ's JSON form.

The import is done by the broker (``host/importing.py``).  The export is put together here, from the tables
that ``kernel queues`` and its sisters show.
"""

from __future__ import annotations

from typing import IO, Any

import click

from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError
from plugins.engines.broker.commands.asking import Row, RunningBroker, control_option, engine_option
from plugins.engines.broker.commands.user import as_user_definition

_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_PERMISSION = ("user", "vhost", "configure", "write", "read")
_TOPIC_PERMISSION = ("user", "vhost", "exchange", "write", "read")
_BINDING = {
    "source_name": "source",
    "vhost": "vhost",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "routing_key": "routing_key",
    "arguments": "arguments",
}

_POLICY = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


@click.group("definitions")
def command() -> None:
    """Exchanges, queues and bindings of a running system, in RabbitMQ's JSON form."""


@command.command("export")
@control_option
@engine_option
@click.option("--users", is_flag=True, help="Users and permissions, too; passwords as salted hashes.")
def export(control: str | None, engine: str | None, users: bool) -> None:
    """Print the definitions; `rabbitmqctl import_definitions` takes them.

    What ends with a connection is left out.
    """
    import json

    broker = RunningBroker(control, engine)
    # Three questions to a running system, and in this order: a binding that is asked for last may lead to
    # what has come since, and ``as_definitions`` leaves it out.
    shown = {what: broker.rows(what) for what in ("exchanges", "queues", "bindings")}
    definitions = as_definitions(**shown)
    definitions["policies"] = [{key: row[key] for key in _POLICY} for row in broker.rows("policies")]
    parameters = [{key: row[key] for key in ("name", "value")} for row in broker.rows("global-parameters")]
    if parameters:
        definitions["global_parameters"] = parameters
    if users:
        definitions["users"] = [as_user_definition(row) for row in broker.rows("accounts")]
        definitions["permissions"] = [
            {key: row[key] for key in _PERMISSION} for row in broker.rows("permissions")
        ]
        definitions["topic_permissions"] = [
            {key: row[key] for key in _TOPIC_PERMISSION} for row in broker.rows("topic-permissions")
        ]
    click.echo(json.dumps(definitions, indent=2))


@command.command("import")
@click.argument("file", type=click.File("rb"))
@control_option
@engine_option
def import_(file: IO[bytes], control: str | None, engine: str | None) -> int:
    """Create what FILE defines: `rabbitmqctl export_definitions` writes such files; "-" reads standard input.

    What exists already stays as it is.  What cannot be created is named with its place in the file, and the
    exit status is 1; the rest is created all the same.
    """
    import json

    from plugins.engines.broker.host.definition_forms import read_definitions

    try:
        definitions = json.load(file)
        # JSON may escape half a pair of surrogates, which is no text: it could not be sent on.
        json.dumps(definitions, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise KernelError(f"{file.name} is no JSON: {error}") from None
    # The broker reads it again.  But it does not know the name of the file.
    try:
        read_definitions(definitions)
    except KernelError as error:
        raise KernelError(f"{file.name}: {error}") from None
    done = RunningBroker(control, engine).operate("import-definitions", definitions)
    made = [_counted(count, what.replace("_", " ")) for what, count in done["counts"].items() if count]
    click.echo(", ".join(made) or "nothing")
    for line in (*done["ignored"], *done["complaints"]):
        click.echo(f"{file.name}: {line}", err=True)
    return 1 if done["complaints"] else 0


def _counted(count: int, many: str) -> str:
    return counted(count, f"{many[:-3]}y" if many.endswith("ies") else many[:-1], many)


def as_definitions(exchanges: list[Row], queues: list[Row], bindings: list[Row]) -> dict[str, Any]:
    """Return what the rows say, without what every broker has by itself and without exclusive queues.

    Bindings were asked for last: those of what has come since are left out, too.
    """
    ends = {("exchange", row["vhost"], row["name"]) for row in exchanges}
    ends |= {("queue", row["vhost"], row["name"]) for row in queues if not row["exclusive"]}
    return {
        "vhosts": [{"name": name} for name in dict.fromkeys(row["vhost"] for row in exchanges)],
        "exchanges": [
            {key: row[key] for key in _EXCHANGE}
            for row in exchanges
            # The default exchange and those of the specification: every broker has them by itself.
            if row["name"] and not row["name"].startswith("amq.")
        ],
        "queues": [{key: row[key] for key in _QUEUE} for row in queues if not row["exclusive"]],
        "bindings": [
            {theirs: row[ours] for ours, theirs in _BINDING.items()}
            for row in bindings
            if row["source_name"] and _ends(row) <= ends
        ],
    }


def _ends(binding: Row) -> set[tuple[str, str, str]]:
    """What a binding joins."""
    return {
        (binding[f"{end}_kind"], binding["vhost"], binding[f"{end}_name"])
        for end in ("source", "destination")
    }
