"""One sender's bytes to frames, whatever was not captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from kernel.contracts.errors import RemoteProtocolError

KEPT = 64 * 1024
"""Bytes of a frame that are kept; of a larger one, the rest is only counted."""


class Frame(msgspec.Struct, frozen=True):
    """A frame, or the beginning of a large one."""

    data: bytes
    size: int
    """Bytes on the wire."""
    whole: bool = True
    """Whether ``data`` is all of it."""


Measure = Callable[[bytes, int], int]
"""``measure(data, at)`` returns the size of the frame that begins at ``at``, 0 if more has to be seen of it, and raises
``RemoteProtocolError`` where no frame can begin."""
Find = Callable[[bytes], int]
"""``find(data)`` returns where in these bytes a frame begins, -1 if that is not to be seen.  ``data`` is what one TCP segment
brought, which with most senders begins where a frame does."""


class FrameReader:
    """Cuts at what ``measure`` says; after a loss goes on where ``find`` does.

    A hole inside of a frame whose size is known does no harm to those that follow.
    """

    def __init__(self, measure: Measure, find: Find | None = None) -> None:
        self.in_step: bool = True
        """Whether it is known where frames begin."""
        self.skipped: int = 0
        """Bytes that were captured and could not be read."""
        self._measure = measure
        self._find = find or self._fits
        self._head = bytearray()
        self._size = 0
        self._got = 0

    def receive(self, data: bytes) -> Iterator[Frame]:
        """Take bytes; give the frames that they complete.  A fault raises ``RemoteProtocolError`` after those before it."""
        at = 0
        if not self.in_step:
            at = self._find(data)
            self.skipped += len(data) if at < 0 else at
            if at < 0:
                return
            self.in_step = True
        if self._size:
            at = self._fill(data, at)
            if self._got < self._size:
                return
            yield self._complete()
        elif self._head:
            data = bytes(self._head + data)
            self._head.clear()
        yield from self._frames(data, at)

    def lose(self, count: int | None) -> None:
        """Skip bytes that were not captured; None: nobody knows how many."""
        if count is not None and self._size and self._got + count < self._size:
            self._got += count
            return
        self.skipped += len(self._head)
        self._forget()
        self.in_step = False

    def _frames(self, data: bytes, at: int) -> Iterator[Frame]:
        end = len(data)
        while at < end:
            try:
                size = self._measure(data, at)
            except RemoteProtocolError:
                self.skipped += end - at
                self.in_step = False
                raise
            if not size:
                self._head += data[at:]
                return
            if at + size > end:
                self._size, self._got = size, end - at
                self._head += data[at : at + KEPT]
                return
            yield Frame(data[at : at + min(size, KEPT)], size, size <= KEPT)
            at += size

    def _fill(self, data: bytes, at: int) -> int:
        """Give the begun frame its bytes; return where the next begins."""
        take = min(self._size - self._got, len(data) - at)
        if len(self._head) == self._got:  # else there is a hole, or enough
            self._head += data[at : at + min(take, KEPT - len(self._head))]
        self._got += take
        return at + take

    def _complete(self) -> Frame:
        frame = Frame(bytes(self._head), self._size, len(self._head) == self._size)
        self._forget()
        return frame

    def _forget(self) -> None:
        self._head.clear()
        self._size = self._got = 0

    def _fits(self, data: bytes) -> int:
        """Believe that a frame begins here if whole frames fill the segment."""
        at = 0
        try:
            while at < len(data):
                size = self._measure(data, at)
                if not size:
                    return -1
                at += size
        except RemoteProtocolError:
            return -1
        return 0 if at == len(data) else -1
