"""``kernel definitions export`` and ``import``: the definitions of a running broker, in RabbitMQ's JSON form.

The import is done by the broker (``host/importing.py``).  The export is put together here, from the tables
that ``kernel queues`` and its sisters show.
"""

from __future__ import annotations

from typing import IO, Any, TypeAlias

import click

from kernel import ask, find_running
from kernel.contracts.errors import KernelError

Row: TypeAlias = dict[str, Any]

TIMEOUT = 40.0
"""Seconds that an import may take."""

_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_PERMISSION = ("user", "vhost", "configure", "write", "read")
_BINDING = {
    "source_name": "source",
    "vhost": "vhost",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "routing_key": "routing_key",
    "arguments": "arguments",
}


_POLICY = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
_control = click.option(
    "--control", metavar="PATH", help="The system's control socket; default: the only one running."
)
_engine = click.option("--engine", help="Which broker, where the system has several.")


@click.group("definitions")
def command() -> None:
    """Exchanges, queues and bindings of a running system, in RabbitMQ's JSON form."""


@command.command("export")
@_control
@_engine
@click.option("--users", is_flag=True, help="Users and permissions, too; passwords as salted hashes.")
def export(control: str | None, engine: str | None, users: bool) -> None:
    """Print the definitions; `rabbitmqctl import_definitions` takes them.

    What ends with a connection is left out.
    """
    import json

    path = control or find_running()
    # Three questions to a running system, and in this order: a binding that is asked for last may lead to
    # what has come since, and ``as_definitions`` leaves it out.
    shown = {what: _rows(path, what, engine) for what in ("exchanges", "queues", "bindings")}
    definitions = as_definitions(**shown)
    definitions["policies"] = [{key: row[key] for key in _POLICY} for row in _rows(path, "policies", engine)]
    if users:
        definitions["users"] = [_user(row) for row in _rows(path, "users", engine)]
        definitions["permissions"] = [
            {key: row[key] for key in _PERMISSION} for row in _rows(path, "permissions", engine)
        ]
    click.echo(json.dumps(definitions, indent=2))


@command.command("import")
@click.argument("file", type=click.File("rb"))
@_control
@_engine
def import_(file: IO[bytes], control: str | None, engine: str | None) -> int:
    """Create what FILE defines: `rabbitmqctl export_definitions` writes such files; "-" reads standard input.

    What exists already stays as it is.  What cannot be created is named with its place in the file, and the
    exit status is 1; the rest is created all the same.
    """
    import json

    path = control or find_running()
    try:
        definitions = json.load(file)
        # JSON may escape half a pair of surrogates, which is no text: it could not be sent on.
        json.dumps(definitions, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise KernelError(f"{file.name} is no JSON: {error}") from None
    name = engine or _only_broker(path)
    done = ask(path, "import-definitions", TIMEOUT, engine=name, argument=definitions)["done"]
    click.echo(", ".join(f"{count} {what}" for what, count in done["counts"].items() if count) or "nothing")
    for line in (*done["ignored"], *done["complaints"]):
        click.echo(f"{file.name}: {line}", err=True)
    return 1 if done["complaints"] else 0


def _only_broker(path: str) -> str:
    # Every broker has exchanges, those that begin with ``amq.`` at least.
    name: str = _rows(path, "exchanges", None)[0]["engine"]
    return name


def _user(row: Row) -> dict[str, Any]:
    return {
        "name": row["name"],
        "password_hash": row["password_hash"],
        "hashing_algorithm": f"rabbit_password_hashing_{row['hashing']}",
        "tags": row["tags"],
        "limits": {} if row["max_connections"] is None else {"max-connections": row["max_connections"]},
    }


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


def _rows(path: str, what: str, engine: str | None) -> list[Row]:
    answer = ask(path, what)
    if answer["failed"]:
        # An engine did not answer.  Half of the definitions in a file that looks whole would be worse than
        # none.
        raise KernelError("; ".join(answer["failed"]))
    rows: list[Row] = [row for row in answer["rows"] if engine in (None, row["engine"])]
    engines = sorted({row["engine"] for row in answer["rows"]})
    # Every broker has exchanges, so an engine without them is none.  One without queues may well be.
    if engine is not None and engine not in engines and what == "exchanges":
        raise KernelError(
            f"no engine {engine!r} has exchanges; those that have: {', '.join(engines) or 'none'}"
        )
    if engine is None and len(engines) > 1:
        raise KernelError(f"several engines have {what}; say which: --engine {' | '.join(engines)}")
    return rows
