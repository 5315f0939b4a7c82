"""``kernel definitions export``: exchanges, queues and bindings of a running system in RabbitMQ's JSON form."""

from __future__ import annotations

from typing import Any

import click

from kernel.cli.looking import Row
from kernel.contracts.errors import KernelError
from kernel.topology.control import ask, find_running

_EXCHANGE = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
_QUEUE = ("name", "vhost", "durable", "auto_delete", "arguments")
_BINDING = {
    "source_name": "source",
    "vhost": "vhost",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    "routing_key": "routing_key",
    "arguments": "arguments",
}


@click.group("definitions")
def command() -> None:
    """Exchanges, queues and bindings of a running system, in RabbitMQ's JSON form."""


@command.command("export")
@click.option("--control", metavar="PATH", help="The system's control socket; default: the only one running.")
@click.option("--engine", help="Which broker, where the system has several.")
def export(control: str | None, engine: str | None) -> None:
    """Print the definitions; `rabbitmqctl import_definitions` takes them.

    Users are not among them, since passwords never leave the topology file; nor is what goes with a connection.
    """
    import json

    path = control or find_running()
    shown = {what: _rows(path, what, engine) for what in ("exchanges", "queues", "bindings")}
    click.echo(json.dumps(as_definitions(**shown), indent=2))


def as_definitions(exchanges: list[Row], queues: list[Row], bindings: list[Row]) -> dict[str, Any]:
    """Return what the rows say, without what every broker has by itself and without exclusive queues."""
    passing = {(row["vhost"], row["name"]) for row in queues if row["exclusive"]}
    return {
        "vhosts": [{"name": name} for name in dict.fromkeys(row["vhost"] for row in exchanges)],
        "exchanges": [
            {key: row[key] for key in _EXCHANGE}
            for row in exchanges
            if row["name"] and not row["name"].startswith("amq.")
        ],
        "queues": [{key: row[key] for key in _QUEUE} for row in queues if not row["exclusive"]],
        "bindings": [
            {theirs: row[ours] for ours, theirs in _BINDING.items()}
            for row in bindings
            if row["source_name"] and not _leads_to(row, passing)
        ],
    }


def _leads_to(binding: Row, queues: set[tuple[str, str]]) -> bool:
    return (
        binding["destination_kind"] == "queue" and (binding["vhost"], binding["destination_name"]) in queues
    )


def _rows(path: str, what: str, engine: str | None) -> list[Row]:
    answer = ask(path, what)
    if answer["failed"]:
        raise KernelError("; ".join(answer["failed"]))  # half of the definitions would be worse than none
    rows: list[Row] = [row for row in answer["rows"] if engine in (None, row["engine"])]
    engines = sorted({row["engine"] for row in answer["rows"]})
    if engine is not None and engine not in engines and what == "exchanges":
        raise KernelError(
            f"no engine {engine!r} has exchanges; those that have: {', '.join(engines) or 'none'}"
        )
    if engine is None and len(engines) > 1:
        raise KernelError(f"several engines have {what}; say which: --engine {' | '.join(engines)}")
    return rows
