"""``kernel rewind``: sends a stretch of a journal to an engine of a running system."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import click

from kernel import ask, engine_with, find_running
from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError
from plugins.engines.journal.commands.common import (
    confirmed_before,
    filter_options,
    json_option,
    range_options,
)
from plugins.engines.journal.moments import Moment

_INTERVAL = 0.2
"""Seconds between two looks at how far it is."""


@click.command("rewind")
@click.argument("target", metavar="ENGINE")
@range_options
@filter_options
@click.option("--journal", metavar="NAME", help="The engine that writes the journal.  Default: the only one.")
@click.option("--into", metavar="EXCHANGE", help="With a broker: publish everything to this exchange.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="1: at the pace at which they were received; 0: as fast as possible.",
)
@json_option
@click.option("--control", metavar="PATH", help="The system's control socket; default: the only one running.")
def command(
    target: str,
    start: Moment,
    end: Moment,
    match: tuple[str, ...],
    exchange: str | None,
    engine: str | None,
    journal: str | None,
    into: str | None,
    speed: float,
    as_json: bool,
    control: str | None,
) -> int:
    """Send messages of a running system's journal to ENGINE, with the envelopes that they had.

    The command ends when ENGINE has confirmed all of them.  Ctrl-C stops it, and says up to which offset
    everything is confirmed: --from that offset goes on.  Messages that come meanwhile are not held up, so
    they mix with these.
    """
    path = control or find_running()
    writer = engine_with(path, "rewind", journal, "--journal")
    wanted = {
        "target": target, "start": _text(start), "end": _text(end), "speed": speed,
        "match": match, "exchange": exchange, "engine": engine, "into": into,
    }  # fmt: skip
    named = {"name": ask(path, "rewind", engine=writer, argument=wanted)["done"]["name"]}
    try:
        state = _wait(path, writer, named)
    except KeyboardInterrupt:
        state = ask(path, "rewind-end", engine=writer, argument=named)["done"]
        state["failure"] = state["failure"] or "stopped"
    if as_json:
        click.echo(json.dumps(state))
    elif not state["failure"]:
        click.echo(f"{counted(state['sent'], 'message')} sent; {target} has confirmed all")
    if state["failure"]:
        raise KernelError(f"{state['failure']}; {confirmed_before(state['position'])}")
    return 0


def _wait(path: str, writer: str, named: dict[str, str]) -> dict[str, Any]:
    while True:
        state: dict[str, Any] = ask(path, "rewind-state", engine=writer, argument=named)["done"]
        if state["ended"]:
            return state
        time.sleep(_INTERVAL)


def _text(moment: Moment) -> int | str:
    return moment.isoformat() if isinstance(moment, datetime) else moment
