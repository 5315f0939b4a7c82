"""Recovery: reads the segments of a log, from the oldest on.

There are two passes.  ``read`` goes through all records of all segments once and notes definitions, dropped
numbers, acknowledged ranges, and a page for each stretch of messages, without their bodies.  Then, for each
queue that is declared again, ``backlog_of`` subtracts what was acknowledged from what was stored.  The
subtraction waits until everything was read, because an ACKNOWLEDGED record may be in any later segment.

A message may be stored more than once: the compactor has moved it, or a group was written again after an
error.  All copies have the same position, so they are one message; the last copy counts.

What is written during recovery, and why a crash in between does no harm: the reserved zeros and an
interrupted write at the end of the last segment are cut off, and the CLEAN record is removed.  Both can be
repeated.  Everything else is only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from plugins.engines.broker.storage.definition_records import (
    DEFINITION_KINDS_1,
    FORMAT,
    Begins,
    Definition,
    QueueDefinition,
    SetDefinition,
    decode_definition,
    decode_definition_1,
    decode_number,
    decode_ranges,
    decode_segment,
)
from plugins.engines.broker.storage.envelopes import MissingCodec
from plugins.engines.broker.storage.framing import Damage, Kind, Record, RecordReader
from plugins.engines.broker.storage.intervals import Intervals
from plugins.engines.broker.storage.location import Extent
from plugins.engines.broker.storage.log import Log
from plugins.engines.broker.storage.message_records import MESSAGE_KINDS, decode_head
from plugins.engines.broker.storage.page import Page
from plugins.engines.broker.storage.segment import Segment, segment_numbers
from plugins.engines.broker.storage.stored_queue import StoredQueue

_HEAD_KINDS = (Kind.SEGMENT, Kind.DEFINITION, *DEFINITION_KINDS_1)


class CannotOpen(Exception):
    """The directory cannot be used.  The text says why, and what to do."""


class Recovered(msgspec.Struct):
    """What the segments say."""

    definitions: dict[int, Definition] = {}
    dropped: set[int] = set()
    acknowledged: dict[int, Intervals] = {}
    pages: dict[int, list[tuple[int, Page]]] = {}
    """By queue: priority and page, in the order of writing."""
    clean: dict[int, Intervals] | None = None
    """After a clean end: the messages that had been delivered, by queue.  None: the end was not clean."""
    records: int = 0


class Backlogs(NamedTuple):
    """The live messages of one queue."""

    pages: list[tuple[int, Page]]
    """Priority and page, in the order of positions."""
    next_position: int


class Recovery:
    """Reads a log."""

    def __init__(self, log: Log, report: Callable[[str, str], None]) -> None:
        self.log = log
        self.found = Recovered()
        self._report = report
        self._latest: dict[tuple[int, int], Page] = {}
        self._end: tuple[Segment, int] | None = None
        """Where the CLEAN record is."""
        self._before: dict[int, int] = {}
        """By number: octets that a segment has to have, as its successor says."""
        self._aside: set[int] = set()
        """Numbers of segments that were set aside."""
        self._highest: dict[int, int] = {}
        """By queue: its highest priority (x-max-priority), if its definition was read."""

    def read(self) -> None:
        """Read all segments; the log continues after them."""
        segments = [Segment(number) for number in segment_numbers(self.log.files.names())]
        for segment in segments:
            try:
                self._read_segment(segment, last=segment is segments[-1])
            except MissingCodec as missing:
                raise CannotOpen(f"{segment.name}: {missing}") from None
        segments = [segment for segment in segments if segment.number not in self._aside]
        if len(segments) > 1 and not segments[-1].size and not self._is_known(segments[-1]):
            # A killed process had created it and not written to it.  At each later start it would be taken
            # for one that somebody has emptied.
            self.log.files.remove(segments.pop().name)
        # Not a single record: the marker is wrong, or these are not our files.  To go on would mean to delete
        # them as segments without live messages.
        if any(segment.size for segment in segments) and not self.found.records:
            self._set_aside(segments)
        self._look_for_gaps(segments)
        # After everything was read without an error, so that a start that fails changes nothing.
        if self.found.clean is not None:
            self._begin_again(segments)
        self.log.resume(segments)

    def _is_known(self, segment: Segment) -> bool:
        """Whether something was written to a segment for certain."""
        inventory = self.log.inventory
        return inventory is not None and inventory.last >= segment.number

    def _look_for_gaps(self, segments: list[Segment]) -> None:
        """Report segments that are missing, or that were cut where a record ends, which leaves no damage."""
        there = {segment.number: segment for segment in segments}
        expected = dict(self._before)
        # Segments are deleted from the oldest on, so one that is older than all others may be gone.
        oldest = segments[0].number if segments else 0
        inventory = self.log.inventory
        if inventory is not None and inventory.last:
            oldest = inventory.oldest
            expected.setdefault(oldest, 0)
            expected[inventory.last] = max(expected.get(inventory.last, 0), inventory.size)
        for number, size in sorted(expected.items()):
            if number < oldest or number in self._aside:
                continue
            if number not in there or there[number].size < max(size, 1):
                self.log.is_cut(there.get(number) or Segment(number), size)

    def _begin_again(self, segments: list[Segment]) -> None:
        """Remove the CLEAN record.

        From now on, messages are delivered that a crash would not note.
        """
        assert self._end is not None, "there is a CLEAN record"
        segment, start = self._end
        # First, or the inventory would ask for a record that is not there.
        if self.log.inventory is not None:
            oldest, last = segments[0].number, segments[-1].number
            self.log.inventory.change(oldest=oldest, last=last, size=start if last == segment.number else 0)
        self.log.files.truncate(segment.name, start)
        segment.size = start

    def _set_aside(self, segments: list[Segment]) -> None:
        """No record can be read: the very first write was interrupted, or these are no segments."""
        if len(segments) > 1:
            raise CannotOpen(
                f"none of {len(segments)} segments has a record that can be read; nothing was changed. "
                "If they are not needed, delete the directory"
            )
        # Renamed and not deleted: a single segment without a record is either an interrupted first write or
        # somebody's file.
        (segment,) = segments
        self._set_one_aside(segment)
        segments.clear()

    def _set_one_aside(self, segment: Segment) -> None:
        self.log.files.set_aside(segment.name)
        self._aside.add(segment.number)
        self._report(
            "set aside", f"{segment.name}: it has no record that begins with what the file marker has"
        )

    def _read_segment(self, segment: Segment, *, last: bool) -> None:
        files = self.log.files
        size = segment.size = files.size(segment.name)
        records_before = self.found.records

        def read(offset: int, length: int) -> bytes:
            return files.read(segment.name, offset, length)

        # Damage is held back for one step: at the very end of the file it may be an interrupted write, and
        # that is known only when no record follows.
        damage: Damage | None = None
        for item in RecordReader(read, self.log.marker, 0, size):
            if damage is not None:
                self.log.has_damage(segment, damage)
                damage = None
            if isinstance(item, Damage):
                damage = item
            else:
                self.found.records += 1
                # The head is the unbroken sequence of definitions from the beginning.  A definition behind
                # other records was written by a group.
                if item.kind in _HEAD_KINDS and segment.head == item.start:
                    segment.head = item.stop
                self._take_or_report(segment, item)
        # Its successor was begun only after it was synced, so this is damage and no interrupted write.  It
        # stays as it is: nothing is appended to it any more.
        if damage is not None and not last:
            self.log.has_damage(segment, damage)
        elif damage is not None:
            self._end_last(segment, damage, has_records=self.found.records > records_before)

    def _end_last(self, segment: Segment, damage: Damage, *, has_records: bool) -> None:
        """The last segment ends with octets that are no record."""
        files = self.log.files
        octets = files.read(segment.name, damage.start, damage.stop - damage.start)
        # A killed process could not cut off the zeros that it had reserved.  Nothing was lost, so nothing is
        # reported.
        if not octets.strip(b"\0"):
            files.truncate(segment.name, damage.start)  # reserved and never written
            segment.size = damage.start
        # An interrupted first write begins with the marker.  This is the file of another directory.
        elif self.found.records and not has_records and not _may_begin_with(octets, self.log.marker):
            self._set_one_aside(segment)
        # Cut off, because the octets could otherwise be taken for damage at each later start.  Without any
        # record the file may not be ours (see ``_set_aside``).
        elif self.found.records:
            files.truncate(segment.name, damage.start)
            segment.size = damage.start
            self._report("cut", f"{segment.name} at octet {damage.start}: the write there was interrupted")

    def _take_or_report(self, segment: Segment, record: Record) -> None:
        try:
            self._take(segment, record)
        except (CannotOpen, MissingCodec):
            raise
        except Exception:
            # The checksum is right and what is in the record is not: it was not written by us, or not as it
            # should be.  One record is lost then, and not the broker.
            self.log.has_damage(segment, Damage(record.start, record.stop))

    def _take(self, segment: Segment, record: Record) -> None:
        found, kind = self.found, record.kind
        # The end is clean only if CLEAN is the last record of all.
        found.clean = None
        if kind in MESSAGE_KINDS:
            self._take_messages(segment, record)
        elif kind == Kind.ACKNOWLEDGED:
            for queue, first, stop in decode_ranges(record.payload):
                found.acknowledged.setdefault(queue, Intervals()).add(first, stop)
        elif kind == Kind.CLEAN:
            found.clean = {}
            self._end = segment, record.start
            for queue, first, stop in decode_ranges(record.payload):
                found.clean.setdefault(queue, Intervals()).add(first, stop)
        elif kind == Kind.DROP:
            found.dropped.add(decode_number(record.payload))
        elif kind == Kind.SEGMENT:
            self._take_beginning(segment, decode_segment(record.payload))
        elif kind == Kind.DEFINITION:
            self._take_definition(decode_definition(bytes(record.payload)))
        else:
            self._take_definition(decode_definition_1(kind, bytes(record.payload), self.log.codecs.format_1))

    def _take_beginning(self, segment: Segment, begins: Begins) -> None:
        if not 1 <= begins.version <= FORMAT:
            raise CannotOpen(
                f"{segment.name} has format {begins.version}; this version reads formats up to {FORMAT}"
            )
        # A segment that is deleted later than an older one would bring acknowledged messages back.
        if begins.number != segment.number:
            raise CannotOpen(
                f"{segment.name} is {Segment(begins.number).name} under another name; give each segment its own "
                "name again, or move it out of the directory; nothing was changed"
            )
        if begins.before:
            # The highest: an attempt that came after a failed write is not certain of the size.
            self._before[begins.before] = max(begins.size, self._before.get(begins.before, 0))

    def _take_definition(self, definition: Definition) -> None:
        # Definitions are repeated in each segment.  The last one counts; of a queue it has the latest
        # ``next_position``, of a set the latest ``next_number``.
        self.found.definitions[definition.number] = definition
        if isinstance(definition, QueueDefinition):
            self._highest[definition.number] = definition.arguments.get("x-max-priority", 0)
        elif isinstance(definition, SetDefinition):
            self._highest[definition.number] = 0

    def _take_messages(self, segment: Segment, record: Record) -> None:
        head = decode_head(record.payload)
        # Fail now if the codec is missing, and not when the page is read: then its messages would be lost.
        if record.kind == Kind.MESSAGES:
            self.log.codecs.require(head.codec)
        else:
            self.log.codecs.require_format_1()
        extent = Extent(segment, record.start, record.stop)
        for queue, base, start, stop, expires in head.entries:
            # Acknowledged or not: what is dead is known only at the end, and
            # ``forget_dead`` goes by ``live``.
            segment.has(queue, base + start, base + stop)
            # An estimate, since bodies may have different sizes; a batch usually goes to a queue as a whole,
            # and then it is exact.
            size = head.size * (stop - start) // head.messages
            # The queue's own limit is in its definition, which is nearly always before its messages.
            # ``backlog_of`` applies it again.
            priority = min(head.priority, self._highest.get(queue, head.priority))
            latest = self._latest.get((queue, priority))
            first, last = base + start, base + stop
            if latest is not None and latest.extend(extent, first, last, size, may_expire=bool(expires)):
                continue
            stored = self.log.stored.get(queue) or self.log.open_queue(queue)
            page = Page(
                stored,
                extent,
                [(first, last)],
                size,
                expires_at=expires - self.log.clock_ahead if expires else None,
                # Until ``_parts`` knows better.
                redelivered=True,
            )
            self._latest[queue, priority] = page
            self.found.pages.setdefault(queue, []).append((priority, page))

    def backlog_of(self, stored: StoredQueue) -> Backlogs:
        """Return the live messages of a queue, and set ``stored.live``."""
        # Grows with each page below: a position that was met counts as gone for older copies.
        gone = self.found.acknowledged.get(stored.number) or Intervals()
        highest = self._highest.get(stored.number, 0)
        living: list[tuple[int, Page]] = []
        # The latest first: if a message was written again, its last copy counts.  The segment with an older
        # copy may be deleted at any time.
        for priority, page in reversed(self.found.pages.get(stored.number, [])):
            ranges = [gap for first, stop in page.ranges for gap in gone.missing(first, stop)]
            for first, stop in page.ranges:
                gone.add(first, stop)
            living += [(min(priority, highest), part) for part in self._parts(page, ranges)]
        living.sort(key=_first)
        living = _untangled(living)
        stored.live = Intervals(sorted(one for _, page in living for one in page.ranges))
        for _, page in living:
            page.attach()
        # ``gone`` now has every position that was ever stored or acknowledged, as far as segments still tell.
        return Backlogs(living, gone.stop)

    def _parts(self, page: Page, ranges: list[tuple[int, int]]) -> list[Page]:
        """Return a page of these messages only.

        Two pages if some were delivered before and others were not.
        """
        if not ranges:
            return []
        page = page.of(ranges, redelivered=True)
        if self.found.clean is None:  # it is not known which messages clients have seen
            return [page]
        # After a clean end it is known which messages clients had seen.
        seen = self.found.clean.get(page.stored.number) or Intervals()
        again = [one for first, stop in ranges for one in seen.within(first, stop)]
        fresh = [one for first, stop in ranges for one in seen.missing(first, stop)]
        parts = [page.of(again, redelivered=True)] if again else []
        return parts + ([page.of(fresh, redelivered=False)] if fresh else [])


def _may_begin_with(octets: bytes, marker: bytes) -> bool:
    """Whether octets begin with the marker, or are the beginning of it."""
    return octets[: len(marker)] == marker[: len(octets)]


def _first(one: tuple[int, Page]) -> int:
    return one[1].first


def _untangled(pages: list[tuple[int, Page]]) -> list[tuple[int, Page]]:
    """Split pages whose ranges interleave into pages of single ranges.

    Then the pages can be sorted by position.
    """
    tangled: set[Page] = set()
    by_priority: dict[int, Page] = {}
    # Pages arrive sorted by their first position.  Within one priority a page that begins before the end of
    # the one before would bring messages out of order.
    for priority, page in pages:
        before = by_priority.get(priority)
        if before is not None and before.stop > page.first:
            tangled |= {before, page}
        # The page that reaches furthest is the one to compare with.
        if before is None or page.stop > before.stop:
            by_priority[priority] = page
    if not tangled:
        return pages
    single = [
        (priority, part)
        for priority, page in pages
        for part in (
            [page.of([one], redelivered=page.redelivered) for one in page.ranges]
            if page in tangled
            else [page]
        )
    ]
    return sorted(single, key=_first)
