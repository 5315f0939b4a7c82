"""``kernel journal replay``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from plugins.engines.journal.commands.common import filter_options, journal_argument, progress, range_options
from plugins.engines.journal.moments import Moment, offset_of
from plugins.protocols.journal_format.reader import JournalReader

_INTERVAL = 0.1
"""Seconds between two updates of the progress bar."""


@click.command("replay")
@journal_argument
@click.argument("address")
@range_options
@filter_options
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="2: twice as fast; 0: as fast as possible.",
)
@click.option(
    "--consumer", metavar="NAME", help="Store the position under this name, and continue there the next time."
)
@click.option("--into", metavar="EXCHANGE", help="With an AMQP broker: publish everything to this exchange.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new messages, until Ctrl-C.")
def replay(
    journal: Path,
    address: str,
    start: Moment,
    end: Moment,
    match: tuple[str, ...],
    exchange: str | None,
    engine: str | None,
    speed: float,
    consumer: str | None,
    into: str | None,
    follow: bool,
) -> int:
    """Send messages to ADDRESS, at the pace at which they were received, or faster.

    ADDRESS is that of a kernel (backend+tcp://host:port) or of an AMQP broker
    (amqp://user:password@host:port).  At a broker the messages are published to their original exchanges, or
    to the one that --into names.  The command ends when all messages have been confirmed.
    """
    reader = JournalReader(journal)
    first, stop = offset_of(reader, start), offset_of(reader, end)
    options: dict[str, Any] = {
        "path": str(journal), "start": first, "end": stop, "speed": speed, "match": list(match), "follow": follow,
    }  # fmt: skip
    optional = {"exchange": exchange, "engine": engine, "consumer": consumer}
    options.update({name: value for name, value in optional.items() if value})
    plan = Plan(
        engines=(EnginePlan(name="journal", kind="journal-replay", options=options), _target(address, into)),
        routes=(RoutePlan(source="journal", targets=("target",), confirm=True),),
    )
    # The route confirms, so the replay ends only when the other side has everything.
    with Kernel(plan) as kernel, progress("replaying", stop - first) as step:
        _watch(kernel, first, step)
        step(stop - first)
    click.echo(f"everything up to offset {stop} was confirmed")
    return 0


def _watch(kernel: Kernel, position: int, step: Any) -> None:
    """Show the progress until the replay ends, which is when everything has been confirmed."""
    while True:
        states = {state.name: state for state in kernel.engine_states()}
        figures = {engine.name: engine.counters for engine in kernel.statistics().engines}["journal"]
        now = figures.get("position") or position
        step(now - position)
        position = now
        state = states["journal"]
        if state.state == "ended":
            return
        # The engine would be restarted; a command ends instead.
        if state.failures:
            raise click.ClickException(state.last_failure)
        time.sleep(_INTERVAL)


def _target(address: str, into: str | None) -> EnginePlan:
    url = urlsplit(address)
    if url.scheme not in ("amqp", "amqps"):
        if into is not None:
            raise click.BadParameter(f"{address} has no exchanges", param_hint="--into")
        return EnginePlan(name="target", kind="stream", options={"address": address})
    # The registered ports of amqps and amqp.
    transport, port = ("tls", 5671) if url.scheme == "amqps" else ("tcp", 5672)
    options: dict[str, Any] = {
        "addresses": [f"amqp+{transport}://{url.hostname}:{url.port or port}"],
        "user": unquote(url.username or "guest"),
        "password": unquote(url.password or "guest"),
        "vhost": unquote(url.path[1:]) or "/",
    }
    if into is not None:
        options["exchange"] = into
    return EnginePlan(name="target", kind="amqp-client", options=options)
