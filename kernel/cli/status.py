"""``kernel status``."""

from __future__ import annotations

from typing import Any

import click

from kernel.cli.looking import COUNTERS, Row, looking, print_table

_ENGINE = (
    "name",
    "state",
    "address",
    "failures",
    "last_failure",
    "connections",
    "messages_in",
    "messages_out",
)
_ROUTE = ("name", "pipes", "depth", "written", "dropped", "unrouted", "held")


def show(answer: dict[str, Any]) -> None:
    """Print a table of engines and one of routes, and sums of the rest."""
    status = answer["status"]
    engines: list[Row] = [{**engine["counters"], **engine} for engine in status["engines"]]
    routes: list[Row] = status["routes"]
    for title, columns, rows in (("Engines", _ENGINE, engines), ("Routes", _ROUTE, routes)):
        rates = [f"{name}/s" for name in COUNTERS if any(f"{name}/s" in row for row in rows)]
        print_table(title, (*columns, *rates), rows)
    waiting = sum(route["depth"] for route in routes)
    click.echo(
        f"{len(status['threads'])} threads, {len(status['pipes'])} pipes with {waiting} messages in them"
    )


command = looking("status", "Show a running system: engines, routes, pipes, threads.", show)
