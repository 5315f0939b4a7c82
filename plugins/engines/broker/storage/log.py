"""Log: records in segments, appended a group at a time.

**What is on disk.**  A log is a sequence of segments.  A segment is a file that is appended to and never
changed.  It is a sequence of records (``framing.py``), each with a checksum and with a marker that is random
for each directory.  A record stores messages (``message_records.py``), says which are acknowledged, or
defines or drops an exchange, a queue, a binding or a stored set (``definition_records.py``).  Each segment
begins with all definitions of that moment, so that it needs no segment before it.  Its first record also says
which segment was before it and how long that one was, so that recovery notices a file that is missing or cut;
of the oldest and the last one ``inventory.py`` says it.  There is no index: a queue in memory knows its
spans, and the extents of segments from which its pages are read.  To the log a stored set is one more queue,
whose positions are the numbers of the set.

**Why the order of records does not matter.**  A queue numbers its messages, and gives each number (a
position) to one message only.  A position that is acknowledged stays so.  The live messages are those that
were stored and not acknowledged, in whatever order the records are read and however often a record was
written.  Two rules keep that true when segments are deleted:

1. A record that acknowledges a message is behind every record that stores it.
2. Segments are deleted from the oldest on, and only when no message in them is live.

So a record that acknowledges a message is never deleted before one that stores it, and no
message can come back.

**What is promised when.**  What the broker tells the log in a turn is pending.  When the writer is free, all
that is pending becomes a group.  The group is written in the writer's thread, and is synced if it has a
message or if somebody demanded it.  What comes meanwhile is the next group: the slower the disk, the larger
the groups.  ``safe`` is the number of the last group that was written, and synced if necessary.  It
increases in order, and only after a whole group.  A client is told that its messages are safe when ``safe``
has reached the ``mark`` of the moment at which they were published.  A message that could not be encoded was
refused before any queue had it (``Store.check_envelope``), so nothing is left out of a group.  A group that
only acknowledges messages is written at once and need not be synced: after a loss of power those messages
come again, which is allowed.  The broker's thread itself writes such a group if it is short.

**When a write fails**, the content of the file is unknown: after a failed ``fsync`` the system may have
dropped what it could not write, and the next ``fsync`` succeeds nevertheless.  So the file is not appended
to any more.  The group is written again into a new segment, with everything that was written since the last
sync, until that succeeds.  What is left in the old file behind the last safe group does no harm: it cannot
be read, or it says what the new segment says.  A segment that was created for a failed group is deleted as
soon as possible, because it could outlive the records that acknowledge its messages (rule 2).

**What recovery does** (``recovery.py``).  It reads all segments from the oldest on.  Octets that are no
record are skipped up to the next marker.  The messages in them are lost, and the damage is reported.  At the
end of the last segment such octets are a write that a crash interrupted.  Nothing was promised about it, and
it is cut off.  Bodies are not kept in memory: queues are restored as pages.  If the very last record says
that the broker was closed, it also says which messages had been delivered; otherwise every message may have
been delivered.

**Compaction** (``compactor.py``).  When most of the log is dead but the oldest segment has live messages,
these are written again with the next groups.  The old segment is deleted when the last of those groups is
safe.

**Threads.**  All methods of ``Log`` run in the broker's thread.  ``Write`` is the only object that goes to
the writer's thread; while it is there, the log does not use it, its group or its file.

The overflow log holds messages that need not survive, for want of memory.  It is never synced, and deleted
at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from kernel.contracts.counts import counted
from plugins.engines.broker.storage.compactor import Compactor
from plugins.engines.broker.storage.counters import LogCounters
from plugins.engines.broker.storage.definition_records import encode_ranges, encode_segment
from plugins.engines.broker.storage.envelopes import Codecs, Envelopes
from plugins.engines.broker.storage.files import Files, Writable
from plugins.engines.broker.storage.framing import Damage, Kind
from plugins.engines.broker.storage.group import Group, Moved
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.inventory import Inventory
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
        inventory: Inventory | None,
        sync: bool,
        segment_bytes: int,
        clock_ahead: float,
        preamble: Preamble,
        on_done: Callable[[], None],
        report: Callable[[str, str], None],
    ) -> None:
        """``inventory``: of the durable log; the overflow log has none, since nothing of it is needed again.

        ``clock_ahead``: what to add to a span's times for those on disk (``disk_clock.py``).
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
        self.durable = inventory is not None
        self.inventory = inventory
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
        # Groups that were written and not synced.  They have ACKNOWLEDGED records only, so they are
        # short, and there are no more of them than one second brings.  They are repeated if the sync that
        # covers them fails.
        self._unsynced: list[Group] = []
        # Whether a group is being written.  There is one at a time: what comes meanwhile waits and shares the
        # next sync, and a failed group has no successor that would have to be undone.
        self._busy = False
        # Whether a file could not be deleted.  It is tried again with the next group and not at once;
        # otherwise ``flush`` would submit one empty group after the other.
        self._cannot_remove = False
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
        self._pending.acknowledging.pop(stored, None)
        stored.live = Intervals()

    def note(self, kind: Kind, payload: bytes) -> None:
        """Write a definition with the next group.

        It is written twice: if it is damaged, the messages of the queue are lost.
        """
        self._pending.notes += ((kind, payload), (kind, payload))

    def keep(self, stored: StoredQueue, span: Span) -> None:
        """Store messages of a queue with the next group."""
        # A batch that was published to several queues arrives here once for each of them, one after the
        # other.  It becomes one record with an entry for each queue, so that its bodies are written once.
        batch = span.batch
        pending = self._pending
        if batch is not pending.last_batch:
            pending.last_batch = batch
            pending.batches.append((batch, [], Location(self.durable)))
            self.waiting_bytes += batch.size
        _, entries, location = pending.batches[-1]
        base, start, stop = span.base, span.start, span.stop
        # Times in the broker are those of a monotonic clock, which begins anew with each process.
        expires = 0.0 if span.expires_at is None else span.expires_at + self.clock_ahead
        entries.append((stored, Entry(stored.number, base, start, stop, expires)))
        # All spans of the batch share this object.  It gets its segment and its offsets when the group is
        # written; until then the span cannot be paged out.
        span.location = location
        # The messages are live before they are written.  A message that is acknowledged before that is not
        # written at all (``Pending.joined``).
        stored.live.add(base + start, base + stop)

    def keep_whole(self, stored: StoredQueue, span: Span) -> None:
        """Store messages of a set, in one record with all that queues have of the batch in the next group."""
        self._pending.shared.add(id(span.batch))
        self.keep(stored, span)

    def acknowledge(self, stored: StoredQueue, first: int, stop: int) -> None:
        """Write that messages are acknowledged, or dropped: they are not needed any more."""
        stored.live.remove(first, stop)
        # Consumers acknowledge mostly in order, so most calls extend the last range.
        acknowledged = stored.acknowledged
        if acknowledged and acknowledged[-1][1] == first:
            acknowledged[-1] = acknowledged[-1][0], stop
        else:
            acknowledged.append((first, stop))
            self._pending.acknowledging[stored] = None

    @property
    def mark(self) -> int:
        """The number of the group that has everything up to now, see ``Store.mark``."""
        return self._next_group if self.dirty else self._next_group - 1

    def demand(self) -> int:
        """Return ``mark``, and have everything up to now synced.

        That includes groups that were written without a sync.
        """
        self._pending.demanded = True
        return self.mark

    @property
    def dirty(self) -> bool:
        """Whether something is to be written or synced that is in no group yet."""
        return bool(self._pending) or (self._pending.demanded and bool(self._unsynced))

    # Groups

    def flush(self) -> None:
        """Write what is pending as a group.

        If the writer is busy, it is written with the next group.
        """
        if self._busy:
            return  # ``_on_written`` calls this again
        compacting = self.compactor.wanted(closing=self.closing)
        # An empty group is written, too: it carries a sync that was demanded for earlier groups, or removals.
        if not (self.dirty or compacting or (self._removals and not self._cannot_remove)):
            return
        group = Group(self._next_group, self.marker)
        self._next_group += 1
        self._take_pending(group)
        # After ``_take_pending``: what this group acknowledges is not live any more, so that no message is
        # written again behind the record that acknowledges it (rule 1).
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
        # A declaration is answered only when it is safe, so definitions are always synced.
        group.demanded = pending.demanded or bool(pending.notes)
        for kind, payload in pending.notes:
            group.add(kind, payload)
        for joined in pending.joined():
            self._add_batch(group, joined)
        # Behind the messages, because a message of this group can already be acknowledged for one of
        # its queues (rule 1).
        for stored in pending.acknowledging:
            ranges = [(stored.number, first, stop) for first, stop in Intervals(stored.acknowledged).ranges()]
            stored.acknowledged = []
            for index in range(0, len(ranges), _MOST_RANGES):
                group.add(Kind.ACKNOWLEDGED, encode_ranges(ranges[index : index + _MOST_RANGES]))

    def _add_batch(self, group: Group, joined: JoinedBatch) -> None:
        envelope = joined.batch.envelope
        # This cannot fail: ``check`` was called when the messages were published.
        octets = self.envelopes.encode(envelope)
        start, stop = group.add_messages(joined.entries, joined.batch, octets, envelope.priority)
        group.locations += [(location, start, stop) for location in joined.locations]

    def _submit(self, group: Group) -> None:
        self._busy = True
        segment, file, head, before = self._current, self._file, None, None
        # An empty group begins no segment, and a group that is larger than a segment gets one of its own.
        # The repeated definitions do not count, or a broker with very many of them would begin a segment for
        # each group.
        is_full = segment is not None and group.size and segment.content + group.size > self.segment_bytes
        if segment is None or is_full:
            segment, head = Segment(self._next_segment), Group(0, self.marker)
            self._next_segment += 1
            head.add(Kind.SEGMENT, self._first_record(segment, certain=not group.attempts))
            # The definitions as they are now, so including those of this group.  A definition may be read any
            # number of times.
            for kind, payload in self._preamble():
                head.add(kind, payload)
            # There is no current segment until this write has succeeded.  ``_on_write_done`` sets the new
            # one, and after a failure the next attempt begins yet another one.
            before, file = file, None
            self._current = self._file = None
        removals, self._removals = self._removals, []
        # ACKNOWLEDGED records that nobody waits for are synced with the next group after a second, so that a
        # loss of power brings back the messages of one second at most while there is traffic.
        late = monotonic() > self.counters.synced_at + _MOST_UNSYNCED_SECONDS
        sync = self._sync and (group.wants_sync or head is not None or bool(removals) or late)
        write = Write(self.files, group, segment, file, head, removals, before=before, sync=sync)
        if self.inventory is not None and (head is not None or removals):
            oldest = self.segments[0] if self.segments else segment
            write.note = partial(self.inventory.change, oldest=oldest.number, last=segment.number)
        # Here, in the broker's thread: waking the other thread takes longer than the write (see ``_SHORT``).
        # The call of the result is the same as the writer's thread would post.
        if group.is_short and not (sync or head or removals or group.attempts):
            write.run(self._on_write_done)()
        else:
            delay = RETRY_SECONDS if group.attempts else 0.0
            self._writer.submit(lambda: write.run(self._on_write_done), delay)

    def _first_record(self, segment: Segment, *, certain: bool) -> bytes:
        if not self.segments:
            return encode_segment(segment.number, 0, 0)
        before = self.segments[-1]
        # After a failed write it is not known how much of the segment before is on the disk.  Its groups that
        # were not synced are written again.
        return encode_segment(segment.number, before.number, before.size if certain else 0)

    def _on_write_done(self, write: Write) -> None:
        self._busy = False
        self._cannot_remove = write.error is None and bool(write.removals)
        # What could not be deleted is older than what has been added meanwhile, and segments are deleted from
        # the oldest on (rule 2).
        self._removals = write.removals + self._removals
        write.group.attempts += 1
        if write.error is not None:
            if write.head is not None:
                # Delete it as soon as possible, or it outlives the records that acknowledge its
                # messages (rule 2).
                self._removals.append(write.segment)
            self._on_failed(write.group, write.error)
            return
        segment = write.segment
        if write.head is not None:
            # The size without the group, which ``_on_written`` adds.
            segment.size = segment.head = write.head.size
            self.segments.append(segment)
            self._current = segment
            self._file = write.file
        if write.group.attempts > 1:
            self._report("can write", f"again; attempt {write.group.attempts} succeeded")
        # With ``fsync = false`` nothing is ever synced, and there is nothing to repeat.
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
            self._report("cannot write", f"{error}; publishers wait, and the write is repeated each second")
        # After a failed sync the content of the file is unknown, so it is not appended to any more.
        self._current = self._file = None
        # Behind the group's own records: ACKNOWLEDGED records may stand anywhere behind the messages that
        # they acknowledge (rule 1).  The sync that failed was to cover these groups, too.
        for unsynced in self._unsynced:
            group.repeat(unsynced)
        self._unsynced = []
        # Publishers wait, since ``safe`` does not move.  A broker that is being closed tries once more and
        # then gives up: nothing of the group was confirmed.
        if not (self.closing and group.attempts > 1):
            self._submit(group)

    def _on_written(self, group: Group, segment: Segment) -> None:
        # Offsets in a group count from its start.  Only now it is known where it begins in the segment: a
        # failed attempt may have changed the segment.
        at = segment.size
        segment.size += group.size
        self.counters.written_bytes += group.size
        for queue, first, stop in group.positions:
            segment.has(queue, first, stop)
        for location, start, stop in group.locations:
            location.segment = segment
            location.start, location.stop = at + start, at + stop
        self.safe = group.number
        # The group is written, so only what came meanwhile still waits.
        self.waiting_bytes = sum(batch.size for batch, _, _ in self._pending.batches)
        # The moved messages are safe in their new place, so their old segment may be deleted.
        moved = self.compactor.has_moved(group, segment, at)
        if moved is not None:
            self._forget(moved)
        self.forget_dead()
        # First the callbacks, which may acknowledge or store more; then the next group,
        # which takes that along.
        self._on_done()
        self.flush()

    # The end

    def close(self, last: bytes | None) -> None:
        """Write what is left, and close the files.

        ``last``: the payload of a CLEAN record, which is written last; None: no such record.
        """
        self.closing = True
        # First the group that is being written, with all that it makes follow; then what is still pending.
        self._writer.wait()
        self.flush()
        self._writer.wait()
        # Only if everything is on the disk, and as the very last record: it says which messages had been
        # delivered, and every record behind it makes it invalid.  Not with ``note``, which writes twice.
        if last is not None and not self.dirty:
            self._pending.notes.append((Kind.CLEAN, last))
            self.flush()
            self._writer.wait()
            if self._current is not None and self.inventory is not None:
                # An error costs only that a cut of the last segment is not noticed.
                with suppress(OSError):
                    first, size = self.segments[0].number, self._current.size
                    self.inventory.change(oldest=first, last=self._current.number, size=size)
        if self._file is not None:
            self._file.close()
            self._file = None
        self.files.close()

    def resume(self, segments: list[Segment]) -> None:
        """Continue after these segments, which were read from the directory."""
        # In place: the compactor has the same list.
        self.segments[:] = segments
        # A number is never used again while its file may exist, or somebody may bring it back.
        last = 0 if self.inventory is None else self.inventory.last
        self._next_segment = max(last, segments[-1].number if segments else 0) + 1

    def forget_dead(self) -> None:
        """Delete the oldest segments as far as no message in them is live."""
        for segment in self.compactor.dead():
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        """Delete a segment that has no live message, with the next group."""
        self.segments.remove(segment)
        # Spans whose location is in it are written again if they are to be paged out.
        segment.gone = True
        # The system frees the space of a deleted file only when no descriptor is left.
        self.files.end_reading(segment.name)
        self._removals.append(segment)

    def has_damage(self, segment: Segment, damage: Damage) -> None:
        """Octets of a segment are damaged.  Each damage is counted and reported once."""
        if (segment.number, damage.start) not in self.counters.damaged:
            self.counters.damaged.add((segment.number, damage.start))
            self._report("damaged", f"{segment.name}: no record in octets {damage.start} to {damage.stop}")

    def is_cut(self, segment: Segment, size: int) -> None:
        """A segment has fewer octets than it had; the file may be missing altogether.

        ``size``: what it had; 0: that is not known.
        """
        if (segment.number, segment.size) in self.counters.damaged:
            return
        self.counters.damaged.add((segment.number, segment.size))
        what = f"it ends at octet {segment.size}" if segment.size else "it is missing or empty"
        had = f", and had {size}" if size else ""
        self._report("damaged", f"{segment.name}: {what}{had}; the messages behind are lost")

    def has_lost(self, stored: StoredQueue, lost: Intervals, why: str) -> None:
        """Messages cannot be read: count and report them."""
        for first, stop in lost.ranges():
            stored.live.remove(first, stop)
        self.counters.lost_messages += len(lost)
        self._report("lost", f"{counted(len(lost), 'message')} of queue or set number {stored.number}: {why}")

    def bytes_on_disk(self) -> int:
        """Return the size of all segments."""
        return sum(segment.size for segment in self.segments)
