"""Pipe: a one-way queue with one writing and one reading port, written and read in batches.

The queue is a ``deque``, whose append and popleft are atomic.  Each side counts what it did in
counters that only it writes; what waits is their difference, so that no lock is needed.  A pipe whose ends live
in one thread uses the same code: its ``post`` is then a plain append to that thread's own list.

Strategy for speed: the reader takes everything that has come since its last look.  ``signalled`` is
set by the writer when it posts the pipe to the reading thread and cleared by the reader before it takes, so
a pipe is posted once a batch, however many writes the batch had.

Two looks in this file cross between threads: one side sets a flag and then reads a counter, the other side changes the
counter and then reads the flag (``signalled`` with the queue, ``blocked`` with what was taken).  With the interpreter's lock
one of the two always sees the other.  Without it, a processor may delay a store beyond a later load, so that both
miss.  Between the two steps each side therefore takes the lock of the queue: the writer by its append, others by
``rotate(0)``, which changes nothing (docs/decisions/0017-flags-and-looks.md).

Besides runs the queue may hold *loose* bodies: single messages under the ``PLAIN`` envelope, appended
by an application's ``send`` without even a run around them.  ``take`` makes runs of them.  Loose bodies
are small (``WaterMarks.loose_limit``) and are counted in messages only.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec

from kernel.contracts.message import Run, run_of
from kernel.pipes.water_marks import WaterMarks

Post = Callable[[Callable[[], Any]], Any]

_LOOSE_GRANT = 1024

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether threads run without the interpreter's lock.  Only what runs once a batch asks; 25 ns are saved."""


class PipeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A pipe at one moment.  All figures are messages, but for the bytes."""

    name: str
    depth: int
    depth_bytes: int
    high: int
    written: int
    taken: int
    confirmed: int
    dropped: int
    blocked: bool
    set_aside: bool
    """Its writer no longer waits for it: what meets it full is dropped."""
    bytes: int
    """Bytes of the bodies that its reader has taken."""


class Pipe:
    """One-way queue between two ports."""

    __slots__ = (
        "_items",
        "_post_to_reader",
        "_post_to_writer",
        "_retained",
        "blocked",
        "bytes_taken",
        "confirmed",
        "confirms",
        "dropped",
        "ended",
        "engine",
        "marks",
        "name",
        "on_asked",
        "on_confirmed",
        "on_ready",
        "on_writable",
        "origin",
        "runs_taken",
        "runs_written",
        "set_aside",
        "signalled",
        "taken",
        "taken_bytes",
        "target",
        "written",
        "written_bytes",
    )

    def __init__(
        self,
        name: str,
        marks: WaterMarks,
        *,
        post_to_reader: Post,
        post_to_writer: Post,
        confirms: bool = False,
    ) -> None:
        self.name = name
        self.marks = marks
        self.confirms = confirms
        self._items: deque[Any] = deque()
        self._retained: deque[Run] = deque()  # reader's: taken, not yet confirmed
        self._post_to_reader = post_to_reader
        self._post_to_writer = post_to_writer
        self.on_ready: Callable[[], Any] = _nobody
        self.on_writable: Callable[[], Any] = _nobody
        self.on_confirmed: Callable[[], Any] = _nobody
        self.on_asked: Callable[[str, str], Any] = _nobody
        self.target = name  # the name of the port at the reading end
        self.engine = name  # of the engine that this port belongs to
        self.origin = (name, "")  # of the port at the writing end, and of the route
        # written by the writing thread
        self.written = 0
        self.written_bytes = 0
        self.runs_written = 0
        self.dropped = 0
        self.blocked = False
        self.set_aside = False
        self.ended = False
        # written by the reading thread
        self.taken = 0
        self.taken_bytes = 0  # of runs: what the marks go by
        self.bytes_taken = 0  # of all
        self.runs_taken = 0
        self.confirmed = 0
        # set by the writer, cleared by the reader
        self.signalled = False

    # ------------------------------------------------------------------ writing

    def depth(self) -> int:
        """Messages that wait, or have a place already."""
        return self.written - self.taken

    def waiting(self) -> int:
        """Messages that wait, without the places that a ``loose_grant`` has taken in advance.  Any thread; for figures."""
        return sum(len(item) if type(item) is Run else 1 for item in list(self._items))

    def full(self) -> bool:
        """Whether a high mark is reached."""
        marks = self.marks
        return (
            self.written - self.taken >= marks.high
            or self.written_bytes - self.taken_bytes >= marks.high_bytes
        )

    def write(self, run: Run) -> bool:
        """Append a run; return False when the writer should stop until ``on_writable``.

        A run that is accepted is accepted whole, so a pipe may exceed its mark by one run: nothing is
        cut in the middle.  A run that meets a full pipe is dropped or makes room as the marks say.
        """
        if self.full() and not self._make_room(run):
            return True
        self.written += len(run.bodies)
        self.written_bytes += run.size
        self.runs_written += 1  # before the append: a reader that sees the run sees the count
        self._items.append(run)
        if not self.signalled:
            self.signal()
        return not self.full() or self.marks.when_full != "block" or self._block()

    def signal(self) -> None:
        """Tell the reading thread that there is something.  After an append."""
        self.signalled = True
        self._post_to_reader(self.on_ready)

    def loose_append(self) -> Callable[[Any], None]:
        """The bare append of a loose body, for a writer that keeps to its ``loose_grant``."""
        return self._items.append

    def loose_grant(self) -> int:
        """How many loose bodies may be appended before asking again; counted as written at once.

        0: the pipe is full, and ``on_writable`` will be called.
        """
        room = min(self.marks.high - (self.written - self.taken), _LOOSE_GRANT)
        if room <= 0 or self.full():
            return 0 if not self._block() else 1
        self.written += room
        return room

    def give_back(self, grant: int) -> None:
        """Return the unused part of a grant."""
        self.written -= grant

    def end(self) -> None:
        """Append the delimiter: nothing will be written after it."""
        self.ended = True
        self._items.rotate(0)  # the reader clears ``signalled``, then looks at ``ended``
        if not self.signalled:
            self.signal()

    def _block(self) -> bool:
        """Ask for ``on_writable``; return True if there is room after all."""
        self.blocked = True
        self._items.rotate(0)  # the reader counts what it takes, then looks at ``blocked``
        if self._low():  # the reader may have taken between our look and the flag
            self.blocked = False
            return True
        return False

    def _low(self) -> bool:
        marks = self.marks
        return (
            self.written - self.taken <= marks.low
            and self.written_bytes - self.taken_bytes <= marks.low_bytes
        )

    def _make_room(self, run: Run) -> bool:
        """Apply ``when_full`` for ``run``; return whether it is to be written."""
        when_full = self.marks.when_full
        if when_full == "block" and not self.set_aside:
            return True  # the writer was told to stop and this was already on its way
        if when_full != "drop-oldest":
            self.dropped += len(run.bodies)
            return False
        while self.full():
            try:
                oldest = self._items.popleft()  # atomic: the reader and we never get the same one
            except IndexError:
                break
            if type(oldest) is Run:
                count, size = len(oldest.bodies), oldest.size
                self.runs_written -= 1
            else:  # loose: its bytes were never counted
                count, size = 1, 0
            self.written -= count
            self.written_bytes -= size
            self.dropped += count
        return True

    # ------------------------------------------------------------------ reading

    def take(self, most: int = 1 << 30) -> list[Run]:
        """Take up to about ``most`` messages (whole runs), in order; an empty list when there are none."""
        self.signalled = False
        items = self._items
        pop = items.popleft
        waiting = len(items)
        if not waiting:  # else the first pop takes the lock
            items.rotate(0)
            waiting = len(items)
        if self.marks.when_full == "drop-oldest":
            taken = self._take_singly(most, waiting)
        elif self.runs_written == self.runs_taken:  # looked at after the length: all of these are loose
            taken = [pop() for _ in range(min(most, waiting))]
        elif most >= self.written - self.taken:
            taken = [pop() for _ in range(waiting)]
        else:
            taken = self._take_singly(most, waiting)
        if not taken:
            return taken
        return self._count(taken)

    def _take_singly(self, most: int, waiting: int) -> list[Any]:
        """Take one item after the other; keep what was taken when the writer drops the rest meanwhile."""
        pop = self._items.popleft
        taken: list[Any] = []
        while most > 0 and waiting:
            try:
                item = pop()
            except IndexError:
                break
            taken.append(item)
            most -= len(item) if type(item) is Run else 1
            waiting -= 1
        return taken

    def more(self) -> bool:
        """Whether something waits."""
        return bool(self._items)

    def _count(self, items: list[Any]) -> list[Run]:
        """Make runs of what was taken and count it.  Loose bodies are counted in messages only, on both sides."""
        if self.runs_written == self.runs_taken:
            runs = [run_of(items)]
            self.taken += len(items)
            self.bytes_taken += runs[0].size
        else:
            runs = _runs_of(items)
            for run in runs:
                self.taken += len(run.bodies)
                self.bytes_taken += run.size
            for item in items:
                if type(item) is Run:
                    self.runs_taken += 1
                    self.taken_bytes += item.size
        if self.confirms:
            self._retained.extend(runs)
        if FREE_THREADED:
            self._items.rotate(0)
        if self.blocked and self._low():
            self.blocked = False
            self._post_to_writer(self.on_writable)
        return runs

    def confirm(self, count: int) -> None:
        """The reader takes the responsibility for ``count`` more messages; tells the writer."""
        if not self.confirms:
            return
        self.confirmed += count
        retained = self._retained
        while count and retained:
            first = retained[0]
            if len(first) <= count:
                count -= len(first)
                retained.popleft()
            else:
                retained[0] = first.slice(count, len(first))
                count = 0
        self._post_to_writer(self.on_confirmed)

    def ask_writer(self, verb: str, pattern: str) -> None:
        """Have the writing thread ``subscribe`` or ``unsubscribe`` this pipe."""
        self._post_to_writer(lambda: self.on_asked(verb, pattern))

    def unconfirmed(self) -> list[Run]:
        """What was taken and not confirmed: what a new conversation has to send again, in order."""
        return list(self._retained)

    def settled(self) -> bool:
        """Whether it has ended and all is confirmed.  Any thread."""
        return self.ended and self.confirmed >= self.written

    def drain(self) -> list[Run]:
        """Take out all that was not confirmed, taken or not, to be handed over to somebody else.  No way back."""
        runs = [*self._retained, *_runs_of([self._items.popleft() for _ in range(len(self._items))])]
        self._retained.clear()
        return runs

    def statistics(self) -> PipeStatistics:
        """The figures of this moment.  Any thread."""
        depth = self.waiting()
        return PipeStatistics(
            name=self.name,
            depth=depth,
            depth_bytes=self.written_bytes - self.taken_bytes,
            high=self.marks.high,
            written=self.taken + depth,
            taken=self.taken,
            confirmed=self.confirmed,
            dropped=self.dropped,
            blocked=self.blocked,
            set_aside=self.set_aside,
            bytes=self.bytes_taken,
        )

    def __repr__(self) -> str:
        state = "ended" if self.ended else "blocked" if self.blocked else "open"
        return f"<Pipe {self.name} {state} {self.written - self.taken}/{self.marks.high}>"


def _runs_of(items: list[Any]) -> list[Run]:
    """Put runs around the loose bodies, in order."""
    kinds = list(map(type, items))
    loose = kinds.count(bytes)  # 12 ns an item, in C; a set of them takes 19
    if not loose:
        return items
    if loose == len(items):
        return [run_of(items)]
    runs: list[Run] = []
    for is_run, group in groupby(items, key=_is_run):
        several = list(group)
        runs += several if is_run else [run_of(several)]
    return runs


def _is_run(item: Any) -> bool:
    return type(item) is Run


def _nobody(*_: object) -> None:
    """Stand-in until a port is plugged in."""
