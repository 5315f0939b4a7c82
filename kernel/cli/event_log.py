"""The log of ``kernel run``: one line for each event, for people, or as JSON for programs.

With tracebacks, an engine that fails has more lines, which are indented; in JSON it is a key, ``trace``.

Engines report events in their own threads, so that several threads write at the same time.  A log that cannot
be written stops nothing: moving messages matters more than telling of it.
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
from typing import Any, TextIO

import click
import msgspec

from kernel.contracts.engine import EngineEvent
from kernel.inspection.printing import printable
from kernel.topology.statistics import SystemStatistics

# Events in red and green on a terminal.  Other events have no colour.
_BAD = {"failed", "refused", "login refused", "disconnected", "error"}
_GOOD = {"running", "connected", "listening", "ready"}


class EventLog:
    """Writes whole lines; events come from many threads."""

    def __init__(
        self, *, as_json: bool = False, stream: TextIO | None = None, tracebacks: bool = False
    ) -> None:
        self._json = as_json
        self._tracebacks = tracebacks
        self._stream = stream or sys.stdout
        self._colour = not self._stream.closed and self._stream.isatty()
        self._lock = threading.Lock()

    def event(self, event: EngineEvent) -> None:
        """Write an event that an engine has reported.  Any thread."""
        self.write(
            event.what,
            engine=event.engine,
            peer=event.peer,
            detail=event.detail,
            next_try=event.next_try,
            trace=event.trace if self._tracebacks else "",
        )

    def figures(self, statistics: SystemStatistics) -> None:
        """Write the figures at the end: as JSON all of them, for people a line for each route."""
        if self._json:
            self.write("figures", statistics=msgspec.to_builtins(statistics))
            return
        for route in statistics.routes:
            lost = f", {route.dropped:,} dropped" if route.dropped else ""
            lost += f", {route.unrouted:,} unrouted" if route.unrouted else ""
            self.write("routed", detail=f"{route.name}: {route.written:,} messages{lost}")
        for port in statistics.ports:
            if port.unrouted:
                self.write(
                    "unrouted",
                    engine=port.name,
                    detail=f"{port.unrouted:,} messages for which there was no route",
                )

    def write(self, what: str, **facts: Any) -> None:
        """Write one line.  Any thread."""
        now = datetime.datetime.now().astimezone()
        facts = {name: fact for name, fact in facts.items() if fact is not None and fact != ""}
        if self._json:
            line = json.dumps({"time": now.isoformat(timespec="milliseconds"), "what": what, **facts})
        else:
            line = self._for_people(now, what, facts)
        # ``print`` writes the text and the line end in two steps, between which another thread could write.
        with self._lock:
            try:
                # Flushed: a program that reads the log from a pipe waits for a line such as "ready".
                print(self._encodable(line), file=self._stream, flush=True)
            # ``OSError``: the reader of a pipe has gone, or the disk is full.  ``ValueError``: the stream is
            # closed.
            except (OSError, ValueError):
                pass

    def _encodable(self, line: str) -> str:
        """Return a line with escapes for what the stream's encoding does not have."""
        encoding = self._stream.encoding or "utf-8"
        return line.encode(encoding, "backslashreplace").decode(encoding)

    def _for_people(self, now: datetime.datetime, what: str, facts: dict[str, Any]) -> str:
        trace = facts.pop("trace", "")
        # What is left after ``engine`` and ``next_try`` are the peer and the detail, in this order.
        next_try = facts.pop("next_try", None)
        words = [str(facts.pop("engine", "kernel")), *map(str, facts.values())]
        if next_try is not None:
            words.append(f"(next try in {next_try:.1f} s)")
        state = f"{what:<12}"
        if self._colour:
            state = click.style(state, fg="red" if what in _BAD else "green" if what in _GOOD else None)
        # ``printable``, because a peer may have chosen the words: an escape sequence would reach the
        # terminal, and a line end would make a line that looks like another event.
        return "\n".join(
            [
                f"{now:%H:%M:%S} {state} {printable(' '.join(words))}",
                # Indented, so that no line of it looks like an event.
                *(f"    {printable(line)}" for line in trace.splitlines()),
            ]
        )
