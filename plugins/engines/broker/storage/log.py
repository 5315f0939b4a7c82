"""Log: records in segments, appended a group at a time.

**What is on disk.**  A log is a sequence of segments, files that are appended to and never changed.  A
segment is a sequence of records (``framing.py``), each with a checksum and a marker that was chosen by
chance for the directory.  A record stores messages (``message_records.py``), says which messages are
settled, or defines or drops an exchange, a queue or a binding (``definition_records.py``).  Each segment
begins with all definitions of that moment, so that it needs no segment before it.  There is no index: a
queue in memory knows its spans, and the extents of segments that its pages are to be read from.

**Why the order of records does not matter.**  A queue numbers its messages, gives each number (a position)
to one message only, and a position that is settled is settled for ever.  What lives is what was stored less
what was settled, in whatever order the two are read, and however often the same record was written.  Two
rules keep that true when segments are deleted:

1. A record that settles a message lies behind every record that stores it.
2. Segments are deleted from the oldest on, and only when nothing in them lives.

So a record that settles a message is never deleted before one that stores it, and no message can come back.

**What is promised when.**  What the broker tells in a turn is pending.  When the writer is free, all that
is pending becomes a group, is written in the writer's thread, and is synced if a message is in it, or
somebody has demanded it.  What comes meanwhile is the next group: the slower the disk, the larger the
groups.  ``safe`` is the number of the last group that was written and synced as it had to be.  It moves
once a group, in order, and after nothing less than the whole group.  A client is told of what it published
when ``safe`` has reached the ``mark`` of that moment.  What could not be encoded has been refused before
any queue had it (``Store.check_envelope``), so that nothing is left out of a group. A group of settled
messages alone is written at once and need not be synced: after a loss of power those messages come again,
which is allowed.  Such a group, if it is short, is written by the broker's thread itself.

**When a write fails**, nobody knows what is in the file: after a failed ``fsync`` the system may have
dropped what it could not write, and the next ``fsync`` succeeds all the same.  So the file is not appended
to any more.  The group is written again, with whatever was written since the last sync, into a new segment,
until it can be.  What lies in the old file behind the last safe group does no harm: it cannot be read, or
says what the new segment says.  A segment that was made for a failed group is deleted as soon as that is
possible, or it might outlive what settles its messages (rule 2).

**What recovery does** (``recovery.py``).  It reads all segments from the oldest on.  Octets that are no
record are passed over up to the next marker; they cost the messages in them, and are reported.  At the end
of the last segment they are the write that a crash cut off, which was promised to nobody, and are cut off.
Bodies are not kept: queues come back as pages. If the last record of all says that the broker was closed,
it also says which messages had been delivered; otherwise each message may have been.

**Compaction** (``compactor.py``).  When most of the log is dead and the oldest segment is not, what lives
there is written again with the next groups.  The old segment goes when the last of those groups is safe.

The overflow log holds messages that need not survive, for want of memory.  It is never synced, and deleted
at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from plugins.engines.broker.storage.compactor import Compactor
from plugins.engines.broker.storage.counters import LogCounters
from plugins.engines.broker.storage.definition_records import encode_ranges, encode_segment
from plugins.engines.broker.storage.envelopes import Codecs, Envelopes
from plugins.engines.broker.storage.files import Files, Writable
from plugins.engines.broker.storage.framing import Damage, Kind
from plugins.engines.broker.storage.group import Group, Moved
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.location import Location
from plugins.engines.broker.storage.message_records import Entry
from plugins.engines.broker.storage.pending import JoinedBatch, Pending
from plugins.engines.broker.storage.segment import Segment
from plugins.engines.broker.storage.stored_queue import StoredQueue
from plugins.engines.broker.storage.write import Write
from plugins.engines.broker.storage.writer import Writer

if TYPE_CHECKING:
    from plugins.engines.broker.span import Span

RETRY_SECONDS = 1.0
_MOST_UNSYNCED_SECONDS = 1.0
"""As long as more comes, acknowledgements that nobody waits for are synced after so long."""
_MOST_RANGES = 1000
"""Ranges in one record.  If the record is damaged, so many are lost."""

Preamble: TypeAlias = Callable[[], Iterable[tuple[Kind, bytes]]]
"""The definitions that each segment begins with, so that it needs no segment before it."""


class Log:
    """The log of one directory.  All calls come from the broker's thread."""

    def __init__(
        self,
        files: Files,
        writer: Writer,
        marker: bytes,
        codecs: Codecs,
        *,
        durable: bool,
        sync: bool,
        segment_bytes: int,
        clock_ahead: float,
        preamble: Preamble,
        on_done: Callable[[], None],
        report: Callable[[str, str], None],
    ) -> None:
        """``durable``: this is the durable log, and not the overflow log.

        ``clock_ahead``: what to add to a span's times for the time of day.
        """
        self.files = files
        self.marker = marker
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.stored: dict[int, StoredQueue] = {}
        self.codecs = codecs
        self.envelopes = Envelopes(codecs)
        self.safe = 0
        """The last group that is written, and synced if it had to be."""
        self.waiting_bytes = 0
        """Octets of bodies that are in no group yet, or in a group that is being written."""
        self.closing = False
        self.durable = durable
        self.counters = LogCounters()
        self.compactor = Compactor(
            files,
            marker,
            self.envelopes,
            segment_bytes,
            self.segments,
            self.stored,
            self.counters,
            self.has_damage,
        )
        self._writer = writer
        self._sync = sync
        self.clock_ahead = clock_ahead
        self._preamble = preamble
        self._on_done = on_done
        self._report = report
        self._next_group = 1
        self._next_segment = 1
        self._current: Segment | None = None
        self._file: Writable | None = None
        self._unsynced: list[Group] = []  # written and not synced; they have SETTLED records only
        self._busy = False
        self._cannot_remove = False  # then it is tried again with the next group, and not at once
        self._pending = Pending()
        self._removals: list[Segment] = []

    # What the broker tells

    def open_queue(self, number: int) -> StoredQueue:
        """Return the object under which messages of a queue are stored from now on."""
        stored = self.stored[number] = StoredQueue(number, durable=self.durable)
        return stored

    def close_queue(self, stored: StoredQueue) -> None:
        """Forget a queue and all its stored messages."""
        self.stored.pop(stored.number, None)
        self._pending.settling.pop(stored, None)
        stored.live = Intervals()

    def note(self, kind: Kind, payload: bytes) -> None:
        """Write a definition with the next group.

        It is written twice: if it is damaged, the messages of the queue are lost.
        """
        self._pending.notes += ((kind, payload), (kind, payload))

    def keep(self, stored: StoredQueue, span: Span) -> None:
        """Store messages of a queue with the next group."""
        batch = span.batch
        pending = self._pending
        if batch is not pending.last_batch:
            pending.last_batch = batch
            pending.batches.append((batch, [], Location(self.durable)))
            self.waiting_bytes += batch.size
        _, entries, location = pending.batches[-1]
        base, start, stop = span.base, span.start, span.stop
        expires = 0.0 if span.expires_at is None else span.expires_at + self.clock_ahead
        entries.append((stored, Entry(stored.number, base, start, stop, expires)))
        span.location = location
        stored.live.add(base + start, base + stop)

    def settle(self, stored: StoredQueue, first: int, stop: int) -> None:
        """Write that messages are settled: acknowledged or dropped, and so not needed any more."""
        stored.live.remove(first, stop)
        settled = stored.settled
        if settled and settled[-1][1] == first:
            settled[-1] = settled[-1][0], stop
        else:
            settled.append((first, stop))
            self._pending.settling[stored] = None

    @property
    def mark(self) -> int:
        """The number of the group that has everything up to now, see ``Store.mark``."""
        return self._next_group if self.dirty else self._next_group - 1

    def demand(self) -> int:
        """Return ``mark``, and have everything up to now synced, including groups that were written without a sync."""
        self._pending.demanded = True
        return self.mark

    @property
    def dirty(self) -> bool:
        """Whether something is to be written or synced that is in no group yet."""
        return bool(self._pending) or (self._pending.demanded and bool(self._unsynced))

    # Groups

    def flush(self) -> None:
        """Write what is pending as a group, unless the writer is busy: then it is written with the next group."""
        if self._busy:
            return
        compacting = self.compactor.wanted(closing=self.closing)
        if not (self.dirty or compacting or (self._removals and not self._cannot_remove)):
            return
        group = Group(self._next_group, self.marker)
        self._next_group += 1
        self._take_pending(group)
        if compacting:
            group.compacts = True
            for survivors in self.compactor.step(group.size):
                begins = group.size
                for record in survivors.records:
                    group.add_messages(*record)
                group.moved.append(Moved(survivors.old_start, begins, group.size))
        self._submit(group)

    def _take_pending(self, group: Group) -> None:
        pending, self._pending = self._pending, Pending()
        group.demanded = pending.demanded or bool(pending.notes)
        for kind, payload in pending.notes:
            group.add(kind, payload)
        for joined in pending.joined():
            self._add_batch(group, joined)
        for stored in pending.settling:
            ranges = [(stored.number, first, stop) for first, stop in Intervals(stored.settled).ranges()]
            stored.settled = []
            for index in range(0, len(ranges), _MOST_RANGES):
                group.add(Kind.SETTLED, encode_ranges(ranges[index : index + _MOST_RANGES]))

    def _add_batch(self, group: Group, joined: JoinedBatch) -> None:
        envelope = joined.batch.envelope
        octets = self.envelopes.encode(
            envelope
        )  # cannot fail: ``check`` was called when the messages were published
        start, stop = group.add_messages(joined.entries, joined.batch, octets, envelope.priority)
        group.locations += [(location, start, stop) for location in joined.locations]

    def _submit(self, group: Group) -> None:
        self._busy = True
        segment, file, head, before = self._current, self._file, None, None
        is_full = segment is not None and group.size and segment.content + group.size > self.segment_bytes
        if segment is None or is_full:
            segment, head = Segment(self._next_segment), Group(0, self.marker)
            self._next_segment += 1
            head.add(Kind.SEGMENT, encode_segment(segment.number))
            for kind, payload in self._preamble():
                head.add(kind, payload)
            before, file = file, None
            self._current = self._file = None
        removals, self._removals = self._removals, []
        late = monotonic() > self.counters.synced_at + _MOST_UNSYNCED_SECONDS
        sync = self._sync and (group.wants_sync or head is not None or bool(removals) or late)
        write = Write(self.files, group, segment, file, head, removals, before=before, sync=sync)
        if group.is_short and not (sync or head or removals or group.attempts):
            write.run(self._on_write_done)()
        else:
            delay = RETRY_SECONDS if group.attempts else 0.0
            self._writer.submit(lambda: write.run(self._on_write_done), delay)

    def _on_write_done(self, write: Write) -> None:
        self._busy = False
        self._cannot_remove = write.error is None and bool(write.removals)
        self._removals = write.removals + self._removals
        write.group.attempts += 1
        if write.error is not None:
            if write.head is not None:
                # Delete it as soon as possible, or it outlives the records that settle its messages (rule 2).
                self._removals.append(write.segment)
            self._on_failed(write.group, write.error)
            return
        segment = write.segment
        if write.head is not None:
            segment.size = segment.head = write.head.size
            self.segments.append(segment)
            self._current = segment
            self._file = write.file
        if write.group.attempts > 1:
            self._report("can write", f"again, at attempt {write.group.attempts}")
        if self._sync and not write.sync:
            self._unsynced.append(write.group)
        if write.sync:
            self._unsynced = []
            self.counters.syncs += 1
            self.counters.synced_at = monotonic()
            self.counters.last_sync_seconds = write.seconds
        self._on_written(write.group, segment)

    def _on_failed(self, group: Group, error: OSError) -> None:
        self.counters.last_error = str(error)
        self.counters.write_failures += 1  # last: another thread that sees the new count finds the error
        if group.attempts == 1:
            self._report("cannot write", f"{error}; publishers wait, and it is tried again each second")
        # After a failed sync the content of the file is unknown, so it is not appended to any more.
        self._current = self._file = None
        for unsynced in self._unsynced:  # their sync has failed, too
            group.repeat(unsynced)
        self._unsynced = []
        if not (self.closing and group.attempts > 1):
            self._submit(group)

    def _on_written(self, group: Group, segment: Segment) -> None:
        at = segment.size
        segment.size += group.size
        self.counters.written_bytes += group.size
        for queue, first, stop in group.positions:
            segment.has(queue, first, stop)
        for location, start, stop in group.locations:
            location.segment = segment
            location.start, location.stop = at + start, at + stop
        self.safe = group.number
        self.waiting_bytes = sum(batch.size for batch, _, _ in self._pending.batches)
        moved = self.compactor.has_moved(group, segment, at)
        if moved is not None:
            self._forget(moved)
        self.forget_dead()
        self._on_done()
        self.flush()

    # The end

    def close(self, last: bytes | None) -> None:
        """Write what is left and a CLEAN record with the payload ``last`` (None: no such record), and close the files."""
        self.closing = True
        self._writer.wait()
        self.flush()
        self._writer.wait()
        if last is not None and not self.dirty:
            self._pending.notes.append((Kind.CLEAN, last))
            self.flush()
            self._writer.wait()
        if self._file is not None:
            self._file.close()
            self._file = None
        self.files.close()

    def resume(self, segments: list[Segment]) -> None:
        """Continue after these segments, which were read from the directory."""
        self.segments[:] = segments
        self._next_segment = segments[-1].number + 1 if segments else 1

    def forget_dead(self) -> None:
        """Delete the oldest segments as far as no message in them is live."""
        for segment in self.compactor.dead():
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        """Delete a segment that has no live message, with the next group."""
        self.segments.remove(segment)
        segment.gone = True
        self.files.end_reading(segment.name)
        self._removals.append(segment)

    def has_damage(self, segment: Segment, damage: Damage) -> None:
        """Octets of a segment are damaged.  Each damage is counted and reported once."""
        if (segment.number, damage.start) not in self.counters.damaged:
            self.counters.damaged.add((segment.number, damage.start))
            self._report("damaged", f"{segment.name}: no record in octets {damage.start} to {damage.stop}")

    def has_lost(self, stored: StoredQueue, lost: Intervals, why: str) -> None:
        """Messages cannot be read: count and report them."""
        for first, stop in lost.ranges():
            stored.live.remove(first, stop)
        self.counters.lost_messages += len(lost)
        self._report("lost", f"{len(lost)} messages of queue number {stored.number}: {why}")

    def bytes_on_disk(self) -> int:
        """Return the size of all segments."""
        return sum(segment.size for segment in self.segments)
