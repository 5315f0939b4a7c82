"""Message reader: returns messages one by one, or many at a time, from batches, without copying the rest.

A handler of a signal may raise anywhere in it, and no message is lost or returned twice.  What is returned is
made first, and then taken away from what is left, without a call in between and up to the return: items are
deleted with ``del``, and iterators are advanced by a display (``[*rest]``), where CPython does not look for
signals.  A single message is taken first, and given back if something raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from operator import length_hint
from typing import Any

from kernel.contracts.message import PLAIN, Batch, Envelope, Message, batch_of
from kernel.contracts.mixed_batch import Entry, EnvelopesByKey, MixedBatch, mixed_batch


class MessageReader:
    """Batches that were received and not read yet.  One thread."""

    __slots__ = ("_by_key", "_entries", "_envelope", "_multipart", "_raw", "batches", "bodies")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        """Those of which nothing was read yet.  None is empty."""
        self._raw: Iterator[Any] = iter(())
        """The rest of the batch that is being read.  The same object until the next one: others are in the
        middle of it."""
        self._envelope: Envelope = PLAIN
        self._multipart = False
        self._entries: Sequence[Entry] | None = None
        """Those of the mixed batch that is being read; None: it is another one."""
        self._by_key = EnvelopesByKey()
        self.bodies: Iterator[Any] = self._raw
        """The rest of the batch that is being read, body by body; the parts of a multi-part message are
        joined."""

    def add(self, batches: Sequence[Batch]) -> None:
        """Append batches."""
        if len(batches) == 1 and batches[0].bodies:
            self.batches.append(batches[0])
            return
        # Empty batches would make ``__bool__`` true without a message.
        self.batches.extend(batch for batch in batches if batch.bodies)

    def __bool__(self) -> bool:
        # A list iterator knows how many items are left, so nothing has to be counted for each message.
        return length_hint(self._raw) > 0 or bool(self.batches)

    def more(self) -> bool:
        """Whether there is a batch after the one that is being read."""
        return bool(self.batches)

    def __len__(self) -> int:
        return length_hint(self._raw) + sum(map(len, self.batches))

    def next_batch(self) -> None:
        """Begin to read the next batch, which has to exist; the rest of the present one is skipped."""
        batch = self.batches[0]
        items, multipart = batch.bodies, batch.multipart
        entries = batch.entries if type(batch) is MixedBatch else None
        raw = iter(items)
        # Joined when they are read: ``message`` returns the parts instead.
        bodies = map(b"".join, raw) if multipart else raw
        self._raw, self.bodies, self._multipart = raw, bodies, multipart
        self._envelope, self._entries = batch.envelope, entries
        del self.batches[0]

    def drop(self) -> None:
        """Forget what was not read, also for somebody who is in the middle of ``bodies``."""
        self.batches.clear()
        deque(self._raw, 0)

    def take(self, most: int) -> list[Any]:
        """Return the bodies of the next messages, ``most`` at the most; the parts of one are joined."""
        left = length_hint(self._raw)
        batches = self.batches
        # What there is most often: one batch, and all of it is wanted.
        if not left and len(batches) == 1 and len(batches[0].bodies) <= most and not batches[0].multipart:
            bodies = list(batches[0].bodies)
            del batches[0]
            return bodies
        if left > most:
            bodies = self._next_bodies(left, most)
            first = islice(self._raw, most)
            _ = [*first]
            return bodies
        bodies = self._next_bodies(left, left)
        behind = batches.copy()
        while behind and len(bodies) < most:
            batch = behind[0]
            if len(bodies) + len(batch.bodies) > most:
                return self._take_partly(bodies, behind, most - len(bodies))
            bodies += map(b"".join, batch.bodies) if batch.multipart else batch.bodies
            behind.popleft()
        _ = [*self._raw]
        self.batches = behind
        return bodies

    def _next_bodies(self, left: int, count: int) -> list[Any]:
        """Return the bodies of ``count`` of the ``left`` messages of the present batch."""
        if not left:
            return []
        items, start = _rest(self._raw)
        items = items[start : start + count]
        return list(map(b"".join, items) if self._multipart else items)

    def _take_partly(self, bodies: list[Any], behind: deque[Batch], count: int) -> list[Any]:
        """Return ``bodies``, and the first ``count`` ones of ``behind``; begin to read this batch."""
        reader = MessageReader()
        reader.batches = behind
        reader.next_batch()
        bodies += reader.take(count)
        _ = [*self._raw]
        self._raw, self.bodies, self._multipart = reader._raw, reader.bodies, reader._multipart
        self._envelope, self._entries, self.batches = reader._envelope, reader._entries, behind
        return bodies

    def run(self, most: int) -> Batch:
        """Return the next messages under one envelope, ``most`` at the most; there has to be one."""
        if not length_hint(self._raw):
            first = self.batches[0]
            # A whole batch is passed on as it is: no list is made and no body is touched.
            if len(first) <= most and type(first) is Batch:
                del self.batches[0]
                return first
            self.next_batch()
        items, start = _rest(self._raw)
        if self._entries is not None:
            entry = self._entries[start]
            equal = takewhile(lambda other: other == entry, islice(self._entries, start, start + most))
            most = len(list(equal))
            batch = batch_of(list(items[start : start + most]), self._by_key.of(entry))
        else:
            batch = batch_of(list(items[start : start + most]), self._envelope, multipart=self._multipart)
        taken = islice(self._raw, most)
        _ = [*taken]
        return batch

    def message(self) -> Message:
        """Return the next message, which has to exist."""
        if not length_hint(self._raw):
            self.next_batch()
        for item in self._raw:  # noqa: B007 - used below; ``next`` is a call
            break
        try:
            if self._multipart:
                message = Message(b"".join(item), self._envelope, tuple(item))
            elif self._entries is None:
                message = Message(item, self._envelope)
            else:
                # The list iterator knows how many messages are left.
                message = Message(item, self._by_key.of(self._entries[-1 - length_hint(self._raw)]))
        except BaseException:
            self._give_back(item)
            raise
        return message

    def _give_back(self, item: Any) -> None:
        """Put the message that was taken last before the rest of its batch."""
        items = [item, *self._raw]
        if self._entries is None:
            batch = batch_of(items, self._envelope, multipart=self._multipart)
        else:
            batch = mixed_batch(items, self._entries[-len(items) :])
        self.batches.appendleft(batch)


def _rest(iterator: Any) -> tuple[Sequence[Any], int]:
    """Return what an iterator of a list or a tuple goes through, and where it is; it has something left.

    Nobody but the iterator refers to the list, so that bodies are freed when the last of them is taken.
    """
    _, (items,), at = iterator.__reduce__()
    return items, at
