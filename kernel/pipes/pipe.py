"""Pipe: a one-way queue with one writing and one reading port, written and read in batches.

One writer, one reader
----------------------
Exactly one thread writes to a pipe and exactly one reads it; they may be the same thread.  A port has a pipe
for each other port that it is connected with, so nobody ever competes for an end of a pipe.  All methods
under "writing" below belong to the writing thread, those under "reading" to the reading thread.

Counters instead of a lock
--------------------------
The queue is a ``deque``, whose append and popleft are atomic.  All else that the two sides need to know of
each other are counters that only grow, each written by one side only: ``written`` by the writer, ``taken``
and ``confirmed`` by the reader.  What waits is a difference of two counters.  A side that reads the other's
counter may see an old value; every old value is safe, because it makes the pipe look fuller to the
writer (who waits, and is told) and emptier to the reader (who is told of what it missed).  So no lock is
needed.  The one exception is ``drop-oldest``, where the writer takes from the front as well: popleft is
atomic, so the two never get the same item.

Counts are positions: message number n of a pipe is written when ``written >= n`` and safe when
``confirmed >= n`` (see ``kernel.dispatcher.ack_tracker``).

One post for many writes
------------------------
The reader takes everything that was written since it last took.  ``signalled`` is set by the writer when it
posts the pipe to the reading thread, and cleared by the reader before it takes.  So a pipe is posted only
once for all writes between two takes.  In the other direction ``blocked`` is set by a writer that has to
wait; the reader that gets down to the low mark clears it and posts ``on_writable``.  A pipe whose ends are in
one thread uses the same code: its ``post`` is then one to that thread's own mailbox.

Flags and looks
---------------
Two looks in this file cross between threads.  One side sets a flag and then reads a counter; the other
changes the counter and then reads the flag (``signalled`` with the queue, ``blocked`` with what was taken).
With the interpreter's lock one of the two always sees the other.  Without it, a processor may delay a store
beyond a later load, so that both miss.  Between the two steps each side therefore takes the lock of the
queue: the writer by its append, others by ``rotate(0)``, which changes nothing
(docs/decisions/0017-flags-and-looks.md).

Bare bodies
-----------
Besides batches the queue may hold *bare* bodies: single messages under the ``PLAIN`` envelope, appended by an
application's ``send`` without even a batch around them.  ``take`` makes batches of them.  Bare bodies are
small (``WaterMarks.bare_limit``) and are counted in messages only.  Their writer asks for credit in advance
(``credit``), so that not even a counter changes per message.

A message that has a key or an envelope of its own may be appended in the same way, together with
it (``Under``).  ``take`` makes mixed batches of these, and divides them for readers that do not
accept mixed batches.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sized
from functools import partial
from itertools import repeat, starmap
from typing import Any

import msgspec

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import MIXED, EnvelopesByKey, Under, all_divided, envelope_of
from kernel.pipes.doorbell import Doorbell
from kernel.pipes.items import batches_of, messages_in
from kernel.pipes.water_marks import WaterMarks

Post = Callable[[Callable[[], Any]], Any]

# The largest credit. All of it counts as written at once, so until it is used up the pipe looks that much
# fuller than it is.
_CREDIT = 1024

_COPIES = 10
"""How often the queue is copied while other threads change it."""

FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether threads run without the interpreter's lock.  Only what runs once a batch asks; 25 ns are saved."""

_ONCE = ((),)
"""The arguments of one call without any."""


class _Answered:
    """A gap among the retained batches: messages that the reader has confirmed or refused out of order."""

    __slots__ = ("count", "refused")

    def __init__(self, count: int, *, refused: bool) -> None:
        self.count = count
        self.refused = refused
        """Whether they were refused and the writer has not called ``refusal_known`` yet."""

    def __len__(self) -> int:
        return self.count


class PipeStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A pipe at one moment.  All figures are in messages, except the bytes."""

    name: str
    depth: int
    depth_bytes: int
    high: int
    written: int
    taken: int
    confirmed: int
    dropped: int
    refused: int
    """Messages that its reader has refused."""
    blocked: bool
    suspended: bool
    """Whether its writer no longer waits for it: messages that find it full are dropped."""
    bytes: int
    """Bytes of the bodies that its reader has taken."""


class Pipe:
    """One-way queue between two ports."""

    __slots__ = (
        "_answered",
        "_by_key",
        "_items",
        "_popped",
        "_post_to_reader",
        "_post_to_writer",
        "_retained",
        "batches_taken",
        "batches_written",
        "blocked",
        "bytes_taken",
        "called",
        "confirmed",
        "confirms",
        "dropped",
        "ended",
        "engine",
        "marks",
        "name",
        "on_answered",
        "on_asked",
        "on_confirmed",
        "on_effect",
        "on_lone",
        "on_ready",
        "on_refused",
        "on_writable",
        "origin",
        "reader_bell",
        "refused",
        "signalled",
        "suspended",
        "taken",
        "taken_bytes",
        "takes_mixed",
        "target",
        "unders",
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
        self.name: str = name
        self.marks: WaterMarks = marks
        self.confirms: bool = confirms
        self._items: deque[Any] = deque()
        # The reader's: what was popped and not counted yet.
        self._popped: list[Any] = []
        # The reader's: messages that were taken and not confirmed yet, with gaps for those that were answered
        # out of order. The first one has the number ``confirmed + 1``.
        self._retained: deque[Batch | _Answered] = deque()
        # How many items of ``_retained`` are gaps. While there are none, ``confirm_through`` need not look
        # for them.
        self._answered = 0
        self._post_to_reader = post_to_reader
        self._post_to_writer = post_to_writer
        self.on_ready: Callable[[], Any] = _ignore
        self.on_writable: Callable[[], Any] = _ignore
        self.on_confirmed: Callable[[], Any] = _ignore
        self.on_asked: Callable[[str, str], Any] = _ignore
        self.on_effect: Callable[[int, Callable[[], Any]], Any] = _answer_at_once
        self.on_lone: Callable[[], Any] = _ignore
        self.on_refused: Callable[[int, int, list[tuple[int, Batch]], str], Any] | None = None
        self.on_answered: Callable[[], Any] = _ignore
        # ``target`` is the name of the port at the reading end, ``engine`` that of the engine of this port.
        # ``origin`` names the port at the writing end, and the route.
        self.target: str = name
        self.engine: str = name
        self.origin: tuple[str, str] = (name, "")
        # Whether the writing thread belongs to the application: it does what is posted to
        # it in its next call.
        self.called: bool = False
        # What wakes the reading thread, for a writer that wakes it ahead (``Doorbell.ring_ahead``).
        self.reader_bell: Doorbell | None = None
        # Written by the writing thread only. ``unders``: whether there ever was an ``Under``; set
        # before it is appended.
        self.unders: bool = False
        self.written: int = 0
        self.written_bytes: int = 0
        self.batches_written: int = 0
        self.dropped: int = 0
        self.blocked: bool = False
        self.suspended: bool = False
        self.ended: bool = False
        # Written by the reading thread only. ``taken_bytes`` has the bytes of batches, as ``written_bytes``
        # has, so that the water marks can compare the two. ``bytes_taken`` has the bytes of bare bodies as
        # well.
        self.taken: int = 0
        self.taken_bytes: int = 0
        self.bytes_taken: int = 0
        self.batches_taken: int = 0
        # Whether the reader accepts mixed batches. Never set if the pipe confirms: what is
        # retained is batches.
        self.takes_mixed: bool = False
        self._by_key = EnvelopesByKey()
        self.confirmed: int = 0
        self.refused: int = 0
        # Set by the writer, cleared by the reader. ``blocked`` above also has two writers, one for each
        # value: the side that clears a flag tells the other (docs/decisions/0017-flags-and-looks.md).
        self.signalled: bool = False

    # ------------------------------------------------------------------ writing

    def depth(self) -> int:
        """Return the messages in the pipe, and those for which ``credit`` was given."""
        return self.written - self.taken

    def waiting(self) -> int:
        """Return the messages in the pipe, without those for which ``credit`` was given.

        Any thread; for statistics.
        """
        for _ in range(_COPIES):
            try:
                # A copy: a loop over the queue itself ends when another thread changes it. With the
                # interpreter's lock a copy is one step. Without it each item is one, and a
                # change ends it too.
                return sum(map(messages_in, list(self._items)))
            except RuntimeError:
                continue
        # Too busy to look into. With credit that is not used yet.
        return max(self.depth(), 0)

    def full(self) -> bool:
        """Whether a high mark is reached."""
        marks = self.marks
        return (
            self.written - self.taken >= marks.high
            or self.written_bytes - self.taken_bytes >= marks.high_bytes
        )

    def load(self) -> int:
        """Return the messages that the reader has not taken, or not confirmed if it has to."""
        return self.written - (self.confirmed if self.confirms else self.taken)

    def write(self, batch: Batch) -> bool:
        """Append a batch; return False when the writer should stop until ``on_writable``.

        A batch that is accepted is accepted whole, so a pipe may exceed its mark by one batch: nothing is
        cut in the middle.  A batch that meets a full pipe is dropped or makes room as the marks say.
        """
        marks = self.marks
        # ``full``, twice in this method, without the call: both together are a tenth of the cost of a message
        # that is written by itself.
        if (
            self.written - self.taken >= marks.high
            or self.written_bytes - self.taken_bytes >= marks.high_bytes
        ) and not self._make_room(batch):
            # True although nothing was written: the message was dropped, and a writer that drops never waits.
            return True
        count = len(batch.bodies)
        # Readers rely on it that no batch is empty.
        if not count:
            return not self.blocked
        # From here to the append there is no call: a handler of a signal would raise in it, and what was
        # counted would never be written.
        self.written += count
        self.written_bytes += batch.size
        # Before the append: a reader that sees the batch has to see the count as well. While the counts of
        # batches are equal, ``take`` treats all items as bare bodies.
        self.batches_written += 1
        try:
            self._items.append(batch)
            # After the append: the reader clears ``signalled`` and then looks at the queue. So it either sees
            # the batch now, or is posted to.
            if not self.signalled:
                self.signal()
        except BaseException:
            # The same handler, behind the append: nobody else would tell the reader.
            self.signal()
            raise
        # ``_block`` last: it also asks the reader for ``on_writable``.
        return (
            (
                self.written - self.taken < marks.high
                and self.written_bytes - self.taken_bytes < marks.high_bytes
            )
            or marks.when_full != "block"
            or self._block()
        )

    def signal(self) -> None:
        """Tell the reading thread that there is something.  To be called after the append."""
        self.signalled = True
        self._post_to_reader(self.on_ready)

    def interrupted(self, item: Any) -> None:
        """Tell the reader of ``item``: a handler of a signal has raised behind the append."""
        self.signal()

    @property
    def queue(self) -> Sized:
        """What waits in the pipe.  Always the same object; it is false while there is nothing."""
        return self._items

    def append_bare(self) -> Callable[[Any], None]:
        """Return the function that appends a bare body or an ``Under``.

        The writer may not append more than its ``credit``, and sets ``unders`` before it appends one.
        """
        return self._items.append

    def credit(self) -> int:
        """Return how many bare bodies may be appended before asking again.  They count as written at once.

        0: the pipe is full, and ``on_writable`` will be called.
        """
        room = min(self.marks.high - (self.written - self.taken), _CREDIT)
        if room <= 0 or self.full():
            if not self._block():
                return 0
            # The reader has made room meanwhile. One message is enough: the next call sees all of the room.
            room = 1
        self.written += room
        return room

    def give_back(self, grant: int) -> None:
        """Return the unused part of a credit."""
        self.written -= grant

    def end(self) -> None:
        """Mark the end: nothing will be written any more."""
        self.ended = True
        # The reader clears ``signalled``, then looks at ``ended``. The lock of the queue orders our two steps
        # against those; no append takes it here.
        self._items.rotate(0)
        if not self.signalled:
            self.signal()

    def forget_writer(self) -> None:
        """Refer to nothing of the writer any more, because it has left.

        The reader may keep the pipe for long: an application thread processes its mailbox in its next call.
        """
        self.on_writable = self.on_confirmed = self.on_asked = self.on_lone = _ignore
        self.on_effect = _answer_at_once
        self.on_refused = None

    def _block(self) -> bool:
        """Ask for ``on_writable``; return True if there is room after all."""
        self.blocked = True
        try:
            # The reader counts what it takes, then looks at ``blocked``: the same order from the other side.
            self._items.rotate(0)
            # The reader may have taken everything between our first look and the flag. Then it did not see
            # the flag, and would never tell us. If it did see it, ``on_writable`` is called once too often:
            # harmless.
            if self._low():
                self.blocked = False
                return True
        except BaseException:
            # A handler of a signal has raised before the second look.
            self.blocked = False
            raise
        return False

    def _low(self) -> bool:
        marks = self.marks
        return (
            self.written - self.taken <= marks.low
            and self.written_bytes - self.taken_bytes <= marks.low_bytes
        )

    def _make_room(self, batch: Batch) -> bool:
        """Apply ``when_full`` for ``batch``; return whether it is to be written."""
        when_full = self.marks.when_full
        if when_full == "block" and not self.suspended:
            # The writer was told to stop, but this message was already on its way: an engine may have parsed
            # several messages from one read. ``block`` promises that none is dropped.
            return True
        if when_full != "drop-oldest":
            self.dropped += len(batch.bodies)
            return False
        while self.full():
            try:
                # Atomic: the reader takes from the same end, and the two never get the same item.
                oldest = self._items.popleft()
            except IndexError:
                # The reader has taken the rest, and has not counted it yet. So ``full`` was an old answer.
                break
            if isinstance(oldest, Batch):
                count, size = len(oldest.bodies), oldest.size
                self.batches_written -= 1
            else:
                # A bare body, whose bytes were not counted when it was written.
                count, size = 1, 0
            # Like ``give_back``, this takes back what the writer has counted. These counters are the writer's
            # own, so the reader never writes to them at the same time.
            self.written -= count
            self.written_bytes -= size
            self.dropped += count
        return True

    # ------------------------------------------------------------------ reading

    def take(self, most: int = 1 << 30) -> list[Batch]:
        """Take up to about ``most`` messages (whole batches), in order; an empty list when there are none."""
        batches = self.take_quietly(most)
        if batches and (self.blocked or FREE_THREADED):
            self.look_at_writer()
        return batches

    def look_at_writer(self) -> None:
        """Tell the writer that there is room, if it waits for that."""
        # Between the counts and the look at ``blocked``. With the interpreter's lock this is not needed.
        if FREE_THREADED:
            self._items.rotate(0)
        if self.blocked:
            self.unblock()

    def take_quietly(self, most: int) -> list[Batch]:
        """Do as ``take`` does, without ``look_at_writer``.

        Where nothing confirms and nothing is dropped, a handler of a signal that raises in it loses nothing:
        what is popped from the queue is noted until it is counted, and from the first count to the return
        there is no call.
        """
        # Before the look at the queue: from here on, each write posts the pipe again.
        self.signalled = False
        items = self._items
        popped = self._popped
        if popped:
            # A handler has raised in the last call. It is as if it went on.
            return self._count(popped)
        # No more than this is taken, however fast the writer is: a call does a bounded amount of work. What
        # comes later is posted, since ``signalled`` is false.
        waiting = len(items)
        if not waiting:
            # Without the interpreter's lock our store to ``signalled`` may become visible after the look. The
            # lock of the queue prevents that. Where something waits, the first pop takes it.
            items.rotate(0)
            waiting = len(items)
        if self.marks.when_full == "drop-oldest":
            self._pop_singly(most, waiting)
        elif waiting == 1:
            return self._take_lone(items[0])
        elif self.batches_written == self.batches_taken:
            # Looked at after the length, and counted by the writer before its append: so all of these items
            # are single messages, and the number of items is the number of messages.
            # One call of C pops them, 14 ns each, and notes them.
            popped.extend(starmap(items.popleft, repeat((), min(most, waiting))))
        # ``written`` may include credit that was not used yet. Then the test fails although everything would
        # fit, and the slower way below takes the same items.
        elif most >= self.written - self.taken:
            popped.extend(starmap(items.popleft, repeat((), waiting)))
        else:
            self._pop_singly(most, waiting)
        return self._count(popped) if popped else []

    def _take_lone(self, item: Any) -> list[Batch]:
        """Make a batch of the only item, and count it: what ``_count`` does, in fewer steps."""
        if type(item) is Batch:
            batch = item
            written, written_size = 1, item.size
        elif type(item) is bytes:
            size = len(item)
            batch = Batch([item], size, PLAIN, False, size)
            written = written_size = 0
        elif type(item) is Under:
            body, entry = item.body, item.entry
            size = len(body)
            envelope = entry if type(entry) is Envelope else self._by_key.of(entry)
            batch = Batch([body], size, envelope, False, size)
            written = written_size = 0
        else:
            del self._items[0]
            self._popped.append(item)
            return self._count(self._popped)
        count = len(batch.bodies)
        if self.confirms:
            self._retained.append(batch)
        # No call from here on (``take_quietly``).
        del self._items[0]
        self.batches_taken += written
        self.taken_bytes += written_size
        self.taken += count
        self.bytes_taken += batch.size
        return [batch]

    def _pop_singly(self, most: int, waiting: int) -> None:
        """Pop the items one by one.  The writer may drop items at the same time (``drop-oldest``)."""
        items, popped = self._items, self._popped
        while most > 0 and waiting:
            try:
                # Not ``append(popleft())``: between these two calls an item would be nowhere.
                popped.extend(starmap(items.popleft, _ONCE))
            except IndexError:
                break
            most -= messages_in(popped[-1])
            waiting -= 1

    def more(self) -> bool:
        """Return whether something waits."""
        return bool(self._items) or bool(self._popped)

    def _count(self, items: list[Any]) -> list[Batch]:
        """Make batches of what was popped, and count it.

        The bytes of bare bodies do not count for the marks.
        """
        if self.batches_written == self.batches_taken and not self.unders:
            # Only bare bodies: one batch of all of them, without a look at each. Their bytes are not in
            # ``written_bytes``, so they are not added to ``taken_bytes`` either.
            batches = [batch_of(items)]
            count, size = len(items), batches[0].size
            written_count = written_size = 0
        else:
            batches, written = batches_of(items)
            # Variables of this call: there may be a batch for each message, and then an attribute for each
            # would be a third of the cost.
            count = size = 0
            for batch in batches:
                count += len(batch.bodies)
                size += batch.size
            # Only what was written as a batch was counted as one.
            written_count = len(written)
            written_size = size if written is items else sum(batch.size for batch in written)
            if not self.takes_mixed and MIXED in map(envelope_of, batches):
                batches = all_divided(batches, self._by_key)
        if self.confirms:
            self._retained.extend(batches)
        # No call from here on (``take_quietly``).
        self._popped = []
        self.taken += count
        self.bytes_taken += size
        self.batches_taken += written_count
        self.taken_bytes += written_size
        return batches

    def unblock(self) -> None:
        """Let the writer go on, if there is room."""
        if self._low():
            self.blocked = False
            try:
                self._post_to_writer(self.on_writable)
            except BaseException:
                # A handler of a signal has raised in it: nobody else would tell the writer.
                self._post_to_writer(self.on_writable)
                raise

    def confirm(self, count: int) -> None:
        """Confirm ``count`` more messages, and tell the writer."""
        self.confirm_through(self.confirmed + count)

    def confirm_through(self, number: int) -> None:
        """Confirm all messages up to ``number``, and tell the writer.

        The reader takes the responsibility for them.
        """
        if not self.confirms or number <= self.confirmed:
            return
        if self._answered:
            # The gaps among the retained messages have to be merged with what is confirmed now. A message
            # that was refused stays open until the writer knows of it.
            self._answer(self.confirmed + 1, number, refused=False)
            return
        count = number - self.confirmed
        self.confirmed = number
        retained = self._retained
        while count and retained:
            # A confirmation may end in the middle of a batch. The rest of the batch stays.
            first = retained[0]
            if len(first) <= count:
                count -= len(first)
                retained.popleft()
            else:
                # There are no gaps here (``_answered`` is 0), so this is a batch.
                retained[0] = first.slice(count, len(first))  # type: ignore[union-attr]
                count = 0
        self._post_to_writer(self.on_confirmed)

    def confirm_only(self, first: int, last: int) -> None:
        """Confirm messages ``first`` to ``last`` only, out of order."""
        if self.confirms:
            self._answer(first, last, refused=False)

    def refuse(self, first: int, last: int, reason: str) -> None:
        """Refuse messages ``first`` to ``last``: the writer gets them back (``on_refused``).

        They count as confirmed when the writer has called ``refusal_known``, so that the source is not told
        too early.
        """
        if not self.confirms:
            return
        # Empty if all of these messages were confirmed or refused before: then there is nothing to give back.
        batches = self._answer(first, last, refused=True)
        if batches:
            self.refused += sum(len(batch) for _, batch in batches)
            self._post_to_writer(lambda: self._take_refused(first, last, batches, reason))

    def _take_refused(self, first: int, last: int, batches: list[tuple[int, Batch]], reason: str) -> None:
        """Take back refused messages.  In the writing thread."""
        if self.on_refused is None:
            self.refusal_known(first, last)
        else:
            self.on_refused(first, last, batches, reason)

    def refusal_known(self, first: int, last: int) -> None:
        """Take notice that the writer has processed a refusal.

        The messages now count as confirmed.  Writing thread.
        """
        self._post_to_reader(lambda: self._confirm_refused(first, last))

    def _confirm_refused(self, first: int, last: int) -> None:
        # ``at`` is the number of the last message of each item. Refused gaps are not merged with their
        # neighbours (``_pass_answered``), so each one is inside the range or outside it, never both.
        at = self.confirmed
        for item in self._retained:
            at += len(item)
            if at > last:
                break
            if type(item) is _Answered and at - len(item) >= first - 1:
                item.refused = False
        self._move_up()
        self.on_answered()

    def _answer(self, first: int, last: int, *, refused: bool) -> list[tuple[int, Batch]]:
        """Replace messages ``first`` to ``last`` by gaps.

        Return them, each batch with the number of its first message.

        The cost grows with the number of retained batches before ``last``, so it is small if answers come
        nearly in order.
        """
        retained = self._retained
        passed: list[Batch | _Answered] = []
        removed: list[tuple[int, Batch]] = []
        at = self.confirmed + 1
        while retained and at <= last:
            item = retained.popleft()
            size = len(item)
            start, stop = max(first - at, 0), min(last + 1 - at, size)
            # Answered before, or not in the range. A second answer for the same message changes nothing.
            if type(item) is _Answered or start >= size:
                passed.append(item)
            else:
                assert type(item) is Batch
                if start:
                    passed.append(item.slice(0, start))
                removed.append((at + start, item if stop - start == size else item.slice(start, stop)))
                # The gap takes the place of the messages, so that the numbers of all later ones stay the
                # same.
                self._pass_answered(passed, stop - start, refused=refused)
                if stop < size:
                    retained.appendleft(item.slice(stop, size))
                    break
            at += size
        # Everything before ``last`` was taken off the front: put it back, in order.
        retained.extendleft(reversed(passed))
        self._move_up()
        return removed

    def _pass_answered(self, passed: list[Batch | _Answered], count: int, *, refused: bool) -> None:
        before = passed[-1] if passed else None
        # Neighbouring gaps become one, so that acknowledgements one by one do not make a list of gaps. A
        # refused gap stays by itself, because ``_confirm_refused`` has to find it again.
        if type(before) is _Answered and not refused and not before.refused:
            before.count += count
        else:
            passed.append(_Answered(count, refused=refused))
            self._answered += 1

    def _move_up(self) -> None:
        """Remove the gaps at the front, count them as confirmed, and tell the writer."""
        before, retained = self.confirmed, self._retained
        while retained:
            item = retained[0]
            # Confirmations are cumulative. So ``confirmed`` stops at the first message that is not answered,
            # and at one whose refusal the writer does not know of yet: it could otherwise tell its source
            # that the message is safe before it has passed it on to the dead letters.
            if type(item) is not _Answered or item.refused:
                break
            self.confirmed += item.count
            self._answered -= 1
            retained.popleft()
        if self.confirmed != before:
            self._post_to_writer(self.on_confirmed)

    def ask_writer(self, verb: str, pattern: str) -> None:
        """Have the writing thread apply ``subscribe`` or ``unsubscribe``."""
        self._post_to_writer(partial(self._asked, verb, pattern))

    def _asked(self, verb: str, pattern: str) -> None:
        self.on_asked(verb, pattern)

    def suggest_lease(self) -> None:
        """Tell the writing thread that its messages come one by one, so that it may ask for a lease."""
        self._post_to_writer(self._lease_suggested)

    def _lease_suggested(self) -> None:
        self.on_lone()

    def ask_effect(self, hops: int, then: Callable[[], Any]) -> None:
        """Call ``then`` in the reading thread when all that the writer was asked for is in effect.

        ``hops``: the connections that the question may still cross (``kernel.dispatcher.effect``).
        """
        # Posts keep their order, so the writer has applied all earlier subscriptions when it gets this.
        self._post_to_writer(partial(self._effect_asked, hops, then))

    def _effect_asked(self, hops: int, then: Callable[[], Any]) -> None:
        # ``on_effect`` is looked up here, in the writing thread, like ``on_asked``:
        # ``attach_out`` has set it.
        self.on_effect(hops, partial(self._post_to_reader, then))

    def unconfirmed(self) -> list[Batch]:
        """Return what was taken and not confirmed, in order.  A new conversation has to send it again."""
        return [batch for _, batch in self.numbered()]

    def numbered(self) -> Iterator[tuple[int, Batch]]:
        """Yield what ``unconfirmed`` returns, each batch with the number of its first message."""
        at = self.confirmed + 1
        for item in self._retained:
            if type(item) is Batch:
                yield at, item
            at += len(item)

    def awaits(self) -> bool:
        """Return whether something was taken and is not confirmed."""
        return bool(self._retained)

    def all_confirmed(self) -> bool:
        """Return whether the pipe has ended and everything written was confirmed.  Any thread."""
        return self.ended and self.confirmed >= self.written

    def drain(self) -> list[Batch]:
        """Remove and return everything that is not confirmed, taken or not, for another destination.

        Called in the writing thread, after the reader has left.
        """
        # ``_retained`` is the reader's. It may be used here, because the reader has left: its last post to
        # this thread says so, and it does not touch the pipe afterwards.
        batches = [
            *self.unconfirmed(),
            *all_divided(
                batches_of(self._popped + [self._items.popleft() for _ in range(len(self._items))])[0],
                self._by_key,
            ),
        ]
        self._popped = []
        self._retained.clear()
        return batches

    def statistics(self) -> PipeStatistics:
        """Return the figures of this moment.  Any thread."""
        # The counters are read one after the other while the two threads go on, so a figure may be older than
        # the next one. ``written`` is computed, because the counter includes unused credit.
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
            refused=self.refused,
            blocked=self.blocked,
            suspended=self.suspended,
            bytes=self.bytes_taken,
        )

    def __repr__(self) -> str:
        state = "ended" if self.ended else "blocked" if self.blocked else "open"
        return f"<Pipe {self.name} {state} {self.written - self.taken}/{self.marks.high}>"


def _answer_at_once(hops: int, answer: Callable[[], Any]) -> None:
    """Answer: the writer of a pipe without a port has no source behind it that could be asked."""
    answer()


def _ignore(*_: object) -> None:
    """Do nothing: what a callback is until a port sets it."""
