"""Message reader: returns messages one by one, or many at a time, from batches, without copying the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from operator import length_hint
from typing import Any

from kernel.contracts.message import PLAIN, Batch, Envelope, Message, batch_of
from kernel.contracts.mixed_batch import Entry, EnvelopesByKey, MixedBatch


class MessageReader:
    """Batches that were received and not read yet.  One thread."""

    __slots__ = ("_batches", "_by_key", "_entries", "_envelope", "_multipart", "_raw", "bodies")

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._raw: Iterator[Any] = iter(())
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
            self._batches.append(batches[0])
            return
        # Empty batches would make ``__bool__`` true without a message.
        self._batches.extend(batch for batch in batches if batch.bodies)

    def __bool__(self) -> bool:
        # A list iterator knows how many items are left, so nothing has to be counted for each message.
        return length_hint(self._raw) > 0 or bool(self._batches)

    def more(self) -> bool:
        """Whether there is a batch after the one that is being read."""
        return bool(self._batches)

    def __len__(self) -> int:
        return length_hint(self._raw) + sum(map(len, self._batches))

    def next_batch(self) -> None:
        """Begin to read the next batch, which has to exist; the rest of the present one is skipped."""
        batch = self._batches.popleft()
        self._envelope = batch.envelope
        self._multipart = batch.multipart
        self._entries = batch.entries if type(batch) is MixedBatch else None
        self._raw = iter(batch.bodies)
        # Joined when they are read: ``message`` returns the parts instead.
        self.bodies = map(b"".join, self._raw) if batch.multipart else self._raw

    def drop(self) -> None:
        """Forget what was not read, also for somebody who is in the middle of ``bodies``."""
        self._batches.clear()
        deque(self._raw, 0)

    def take_all(self) -> list[Any]:
        """Return the bodies of all messages; the parts of those of several parts are joined."""
        bodies = list(self.bodies)
        batches = self._batches
        while batches:
            batch = batches.popleft()
            bodies += map(b"".join, batch.bodies) if batch.multipart else batch.bodies
        return bodies

    def run(self, most: int) -> Batch:
        """Return the next messages under one envelope, ``most`` at the most; there has to be one."""
        if not length_hint(self._raw) and len(first := self._batches[0]) <= most and type(first) is Batch:
            # A whole batch is passed on as it is: no list is made and no body is touched.
            return self._batches.popleft()
        self._reach()
        if self._entries is not None:
            entry = self._next_entry(self._entries)
            start = len(self._entries) - length_hint(self._raw)
            equal = takewhile(lambda other: other == entry, islice(self._entries, start, start + most))
            return batch_of(list(islice(self._raw, len(list(equal)))), self._by_key.of(entry))
        return batch_of(list(islice(self._raw, most)), self._envelope, multipart=self._multipart)

    def message(self) -> Message:
        """Return the next message, which has to exist."""
        # ``_reach``, without the call.
        if not length_hint(self._raw):
            self.next_batch()
        if self._multipart:
            parts = next(self._raw)
            return Message(b"".join(parts), self._envelope, tuple(parts))
        if self._entries is not None:
            envelope = self._by_key.of(self._next_entry(self._entries))
            return Message(next(self._raw), envelope)
        return Message(next(self._raw), self._envelope)

    def _next_entry(self, entries: Sequence[Entry]) -> Entry:
        # The list iterator knows how many messages are left.
        return entries[-length_hint(self._raw)]

    def _reach(self) -> None:
        if not length_hint(self._raw):
            self.next_batch()
