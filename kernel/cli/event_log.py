"""The log of ``kernel run``: one line for each event, for people, or as JSON for programs.

With tracebacks, an engine that fails has more lines, which are indented; in JSON it is a key, ``trace``.

Engines report events in their own threads, so that several threads write at the same time.  A log that cannot
be written stops nothing: moving messages matters more than telling of it.  So an event that the reader of a
pipe has no room for is left out, and the next line that is read says how many are missing.

Nor does it fill the disk: ten thousand clients that connect at once are ten lines and one with the number of
the others.  Events of one engine that are of one sort are counted by the second, each sort by itself, so that
a storm of one hides no other.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

import click
import msgspec

from kernel.contracts.counts import counted
from kernel.contracts.engine import EngineEvent
from kernel.inspection.printing import printable
from kernel.topology.statistics import SystemStatistics

# Events in red and green on a terminal.  Other events have no colour.
_BAD = {"failed", "refused", "login refused", "disconnected", "error"}
_GOOD = {"running", "connected", "listening", "ready"}


RATE = 10
"""Lines a second, by default, for the events of one engine that are of one sort."""

_SECOND = 1.0


class EventLog:
    """Writes whole lines; events come from many threads.

    ``rate``: lines a second for the events of one engine that are of one sort; 0: any number.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        stream: TextIO | None = None,
        tracebacks: bool = False,
        rate: int = RATE,
        timer: Callable[[float, Callable[[], Any]], threading.Timer] = threading.Timer,
    ) -> None:
        self._rate = rate
        self._timer = timer
        self._this_second: Counter[tuple[str, str]] = Counter()
        """By engine and sort: the events of a second, which begins with the first of them."""
        self._counting: threading.Timer | None = None
        self._json = as_json
        self._tracebacks = tracebacks
        self._stream = stream or sys.stdout
        # In this order: ``isatty`` raises for a closed stream.
        self._colour = not self._stream.closed and self._stream.isatty()
        self._room = _room_of(self._stream)
        self._missing = 0
        """Lines that were left out since the last one."""
        self._lock = threading.Lock()

    def event(self, event: EngineEvent) -> None:
        """Write an event that an engine has reported.  Any thread."""
        # Events only. Lines of the program itself, such as "ready", are few, and none of them may be missing.
        if self._rate and not self._admit(event):
            return
        self._put(
            self._line(
                event.what,
                engine=event.engine,
                peer=event.peer,
                detail=event.detail,
                next_try=event.next_try,
                trace=event.trace if self._tracebacks else "",
            )
        )

    def record(self, what: str, detail: str) -> None:
        """Write what a library has to say.  Any thread."""
        self._put(self._line(what, detail=detail))

    def _admit(self, event: EngineEvent) -> bool:
        """Count an event; return whether it is written."""
        with self._lock:
            if self._counting is None:
                self._counting = self._timer(_SECOND, self.end_second)
                # A process that ends need not wait for it: ``figures`` writes what was counted.
                self._counting.daemon = True
                self._counting.start()
            # Also if it is not written: at the end of the second the number of all is known.
            self._this_second[event.engine, event.what] += 1
            return self._this_second[event.engine, event.what] <= self._rate

    def end_second(self) -> None:
        """Write how many events were not written, and count from 0 again.  Any thread."""
        with self._lock:
            counts, self._this_second = self._this_second, Counter()
            counting, self._counting = self._counting, None
        if counting is not None:
            counting.cancel()
        for (engine, what), count in counts.items():
            more = count - self._rate
            if more > 0:
                detail = f"and {more:,} more within a second"
                self._put(self._line(what, engine=engine, detail=detail, more=more))

    def figures(self, statistics: SystemStatistics) -> None:
        """Write the figures at the end: as JSON all of them, for people a line for each route."""
        self.end_second()
        if self._json:
            self.write("figures", statistics=msgspec.to_builtins(statistics))
            return
        for route in statistics.routes:
            lost = f", {route.dropped:,} dropped" if route.dropped else ""
            lost += f", {route.unrouted:,} unrouted" if route.unrouted else ""
            self.write("routed", detail=f"{route.name}: {counted(route.written, 'message')}{lost}")
        for port in statistics.ports:
            if port.unrouted:
                self.write(
                    "unrouted",
                    engine=port.name,
                    detail=f"{counted(port.unrouted, 'message')} for which there was no route",
                )

    def write(self, what: str, **facts: Any) -> None:
        """Write one line of the program itself; wait for room.  Not for an engine's thread."""
        line = self._line(what, **facts)
        # Without the lock, so that engines do not wait, too.  Not with their ``poll``: only one thread may
        # use it at a time.
        while not self._put(line, counts=False):
            room = _room_of(self._stream)
            if room is not None:
                room.poll()

    def _line(self, what: str, **facts: Any) -> str:
        # Now: the time of the event, and not of the moment at which its line can be written.
        now = datetime.datetime.now().astimezone()
        facts = {name: fact for name, fact in facts.items() if fact is not None and fact != ""}
        if self._json:
            return json.dumps({"time": now.isoformat(timespec="milliseconds"), "what": what, **facts})
        return self._for_people(now, what, facts)

    def _put(self, line: str, *, counts: bool = True) -> bool:
        """Write a line if there is room for it; return whether there was."""
        # ``print`` writes the text and the line end in two steps, between which another thread could write.
        with self._lock:
            # A system promises room for PIPE_BUF octets (POSIX), 4096 on Linux.  A longer line, such as one
            # with a traceback, may wait for a reader that has stopped just now.
            if self._room is not None and not self._room.poll(0):
                self._missing += counts
                return False
            lines = [line]
            if self._missing:
                lines_are = counted(self._missing, "line is", "lines are")
                detail = f"{lines_are} missing: nobody read in time"
                lines.insert(0, self._line("log", detail=detail, more=self._missing))
                self._missing = 0
            try:
                # Flushed: a program that reads the log from a pipe waits for a line such as "ready".
                print(*map(self._encodable, lines), sep="\n", file=self._stream, flush=True)
            # ``OSError``: the reader of a pipe has gone, or the disk is full.  ``ValueError``: the stream is
            # closed.
            except (OSError, ValueError):
                pass
            return True

    def _encodable(self, line: str) -> str:
        """Return a line with escapes for what the stream's encoding does not have."""
        encoding = self._stream.encoding or "utf-8"
        return line.encode(encoding, "backslashreplace").decode(encoding)

    def _for_people(self, now: datetime.datetime, what: str, facts: dict[str, Any]) -> str:
        trace = facts.pop("trace", "")
        facts.pop("more", None)  # the detail says it
        # What is left after ``engine`` and ``next_try`` are the peer and the detail, in this order.
        next_try = facts.pop("next_try", None)
        # Reasons that other places show as well name the peer themselves.
        if "peer" in facts and _has_word(str(facts.get("detail")), str(facts["peer"])):
            del facts["peer"]
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


def _has_word(text: str, word: str) -> bool:
    """Whether a text has this word, and not only as a part of another one, such as the port 1 of 18."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _room_of(stream: TextIO) -> select.poll | None:
    """Return what tells whether a stream has room; None: it is none of the system's."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return None
    # An error or a hang-up counts as room: the write then says what is wrong.
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    return room


class LogRecords(logging.Handler):
    """Passes on what modules and libraries write with ``logging``, so that one log has everything."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record.  Any thread."""
        try:
            self._log.record(record.levelname.lower(), f"{record.name}: {record.getMessage()}")
        except Exception:
            # A message that does not fit its arguments is a mistake of who has written it.
            self.handleError(record)
