"""``kernel status``: engines, links, stores and routes of a running system.

Unlike the other tables, this one comes from the statistics of the kernel, and not from the engines' rows.
What only some engines have stands among their counters, under ``links`` or ``store``, and gets a table of its
own.
"""

from __future__ import annotations

from typing import Any

import click

from kernel.cli.looking import COUNTERS, Row, looking, print_table
from kernel.contracts.counts import counted

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
_LINK = ("engine", "link", "state", "peer", "attempts", "next_try", "last_error")
"""Columns of the connections that engines dial, which are under ``links`` among their counters."""

_STORE = (
    "engine",
    "bytes",
    "segments",
    "groups",
    "fsyncs",
    "last_fsync_seconds",
    "damaged_records",
    "lost_messages",
    "write_failures",
    "last_error",
)
"""Columns of what engines have on disk, which is under ``store`` among their counters."""


def show(answer: dict[str, Any]) -> None:
    """Print tables of engines, links, stores and routes, and the sums of threads and pipes."""
    status = answer["status"]
    # The engine's own fields win over a counter of the same name.
    engines: list[Row] = [{**engine["counters"], **engine} for engine in status["engines"]]
    routes: list[Row] = status["routes"]
    links: list[Row] = [
        {"engine": engine["name"], **row} for engine in engines for row in engine.get("links", ())
    ]
    stores: list[Row] = [
        {"engine": engine["name"], **engine["store"]} for engine in engines if "store" in engine
    ]
    # A column for alarms only while there is one.
    alarms = ("alarms",) if any(engine.get("alarms") for engine in engines) else ()
    for title, columns, rows in (
        ("Engines", (*_ENGINE, *alarms), engines),
        ("Links", _LINK, links),
        ("Stores", _STORE, stores),
        ("Routes", _ROUTE, routes),
    ):
        if not rows and title in ("Links", "Stores"):
            continue
        rates = [f"{name}/s" for name in COUNTERS if any(f"{name}/s" in row for row in rows)]
        print_table(title, (*columns, *rates), rows)
    waiting = sum(route["depth"] for route in routes)
    click.echo(
        f"{counted(len(status['threads']), 'thread')}, {counted(len(status['pipes']), 'pipe')}, with "
        f"{counted(waiting, 'message')} in them"
    )


command: click.Command = looking("status", "Show a running system: engines, routes, pipes, threads.", show)
