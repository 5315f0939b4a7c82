"""``kernel journal replay``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from kernel import EnginePlan, EventLog, Kernel, Plan, RoutePlan
from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from plugins.engines.journal.commands.common import (
    confirmed_before,
    filter_options,
    journal_argument,
    progress,
    range_options,
)
from plugins.engines.journal.moments import Moment, offset_of
from plugins.protocols.journal_format.reader import JournalReader

_INTERVAL = 0.1
"""Seconds between two updates of the progress bar."""

_GOES_WELL = {"running", "connected", "ended"}
"""Events of a replay that goes well: the command prints nothing of it but its last line."""

_FOR_GOOD = {"403", "404", "530"}
"""Reply codes of AMQP (access-refused, not-found, not-allowed) with which a broker refuses a login, or the
exchange of all messages that follow.  Whoever has typed the command has to change something.  A broker that
cannot be reached is waited for."""


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
    to the one that --into names.  The command ends when all messages have been confirmed.  It waits for an
    ADDRESS that cannot be reached; a broker that refuses the login or the exchange ends it.
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
    kernel = Kernel(plan)
    with progress("replaying", stop - first) as step:
        # Within ``progress``, which replaces standard error on a terminal: lines come above its bar.
        told = _Told(EventLog(stream=sys.stderr))
        # Before the start, or the first events would be missing.
        kernel.events.append(told)
        try:
            # The route confirms, so the replay ends only when the other side has everything.
            with kernel:
                _watch(kernel, first, step, told)
                step(stop - first)
                # What connections report that are closed now is no trouble.
                kernel.events.remove(told)
        finally:
            told.log.end_second()
    click.echo(f"everything up to offset {stop} was confirmed")
    return 0


class _Told:
    """What the engines report, as ``kernel run`` prints it, but for events of a replay that goes well."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.refused: EngineEvent | None = None
        """The first refusal that no other attempt would change."""
        self._trouble = False

    def __call__(self, event: EngineEvent) -> None:
        """Take an event.  The engines' threads."""
        if event.code in _FOR_GOOD:
            self.refused = self.refused or event
        # What ends the command is its error, and there is no next try.
        if self.refused or (event.engine, event.what) == ("journal", "failed"):
            return
        # That there is a connection now is worth a line to those who have read that there was none.
        if event.what not in _GOES_WELL or (self._trouble and event.what == "connected"):
            self._trouble = True
            self.log.event(event)


def _watch(kernel: Kernel, position: int, step: Any, told: _Told) -> None:
    """Show the progress until the replay ends, which is when everything has been confirmed.

    ``KernelError`` if the target refuses the replay for good.
    """
    while True:
        # Before the figures are read, so that they have all that was confirmed before the refusal.
        refused = told.refused
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
        if refused is not None:
            confirmed = confirmed_before(figures.get("position"))
            raise KernelError(f"{refused.peer}: {refused.detail}; {confirmed}")
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
