"""Disk clock: the clock by which what is on disk expires.

It is the system's time of day until somebody sets that.  A machine without a battery for its clock starts
with a time that is hours or years behind, and NTP sets it a minute later.  If times on disk were times of
day, those that were written before would be wrong by as much, and at the next start messages and sessions
would have expired long ago, or would never expire.  This clock goes on as if nothing had been set
(decision 51).

The file ``clock`` has one of its times and the time of day at the same moment.  The next start adds to it
what has passed since then by the time of day.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from kernel.hosting.appending import Disk, replace_file
from plugins.engines.broker.storage.writer import Writer

SET_FROM = 1.0
"""By how many seconds the time of day has to be set for this clock to take notice.  NTP sets it by steps of
128 ms and more, and otherwise lets all clocks of the system run faster or slower."""
NOTE_PERIOD = 3600.0
"""Seconds after which the file is written again.  A machine that starts with a time of day that is behind the
file goes on at most so far behind."""
RETRY_PERIOD = 60.0
"""The same if it could not be written."""


class Note(msgspec.Struct):
    """What the file has, in seconds since 1970 UTC."""

    time: float
    """A time of this clock."""
    time_of_day: float
    """The latest time of day that was seen until then.

    Mostly that of the same moment.  A later one was seen if the time of day was set back: then it cannot be
    told how much time passes until the next start, and what passes until this time of day counts as nothing.
    """


class DiskClock:
    """The clock of one data directory."""

    def __init__(
        self,
        path: Path,
        writer: Writer,
        now: float,
        time_of_day: float,
        report: Callable[[str, str], None],
        disk: Disk | None = None,
    ) -> None:
        """``now``: the time of the broker, which nobody sets; it begins anew with each process.

        A file that cannot be read is reported, and counts as none: the clock shows the time of day then.
        """
        self._path = path
        self._writer = writer
        self._report = report
        self._disk = disk
        self._noted = self._read() or Note(time_of_day, time_of_day)
        passed = time_of_day - self._noted.time_of_day
        if passed < 0:
            report(
                "clock behind",
                f"the time of day is {-passed:,.0f} s before one that was seen here earlier, so what has passed "
                "since then does not count for what expires",
            )
        self.ahead = self._noted.time + max(passed, 0.0) - now
        """What to add to a time of the broker for one of this clock."""
        self._day_ahead = time_of_day - now
        self._looked = now
        self._next_note = now + NOTE_PERIOD
        self._writing = False

    def look(self, now: float, time_of_day: float) -> None:
        """Look whether the time of day was set, and note that on disk; and every ``NOTE_PERIOD``."""
        set_by = time_of_day - now - self._day_ahead
        if abs(set_by) >= SET_FROM:
            self._day_ahead += set_by
            self._report(
                "clock set", f"by {set_by:+,.0f} s; what is stored expires as if it had not been set"
            )
        elif now < self._next_note:
            return
        self._looked = now
        self._next_note = now + NOTE_PERIOD
        self._noted = Note(now + self.ahead, max(time_of_day, self._noted.time_of_day))
        # One at a time: the next one writes what was noted last.
        if not self._writing:
            self._writing = True
            self._writer.submit(self._write)

    def _write(self) -> Callable[[], None]:
        # In the writer's thread.
        written = self._noted
        try:
            replace_file(self._path, msgspec.json.encode(written), disk=self._disk)
        except OSError as error:
            failed = str(error)
            return lambda: self._on_written(written, failed)
        return lambda: self._on_written(written, "")

    def _on_written(self, written: Note, failed: str) -> None:
        self._writing = False
        if failed:
            self._next_note = self._looked + RETRY_PERIOD
            self._report("clock not written", f"{self._path}: {failed}")
        elif written is not self._noted:
            self._writing = True
            self._writer.submit(self._write)

    def _read(self) -> Note | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Note)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            self._report(
                "clock unread", f"{self._path}: {error}; the times on disk are taken for times of day"
            )
            return None
