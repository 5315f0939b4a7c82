"""Splits one sender's bytes into frames, even if some were not captured.

A frame that is complete in one segment is cut out of it.  Of a frame that is not, ``_head`` keeps the
beginning, at most ``MAX_KEPT`` bytes, and ``_got`` counts all of its bytes up to ``_size``.  While ``_size``
is 0 and ``_head`` is not empty, not even the size is known.

Missing bytes inside a frame of known size are only counted: the next frame begins where it would have begun.
Missing bytes anywhere else mean that nobody knows where the next frame begins.  Then ``in_step`` is false,
and segments are skipped until ``find`` recognises the beginning of a frame in one of them.  That may be
wrong; then ``measure`` raises sooner or later, and the search begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from kernel.contracts.errors import RemoteProtocolError

# Sizes come from the network: a forged frame of 4 GiB must not make us keep as much.
MAX_KEPT = 64 * 1024
"""Bytes of a frame that are kept; the rest of a larger one is only counted."""


class Frame(msgspec.Struct, frozen=True):
    """A frame, or the beginning of a large one."""

    data: bytes
    size: int
    """Bytes on the wire."""
    whole: bool = True
    """Whether ``data`` is the whole frame."""


Measure = Callable[[bytes, int], int]
"""``measure(data, at)`` returns the size of the frame at ``at``, 0 if more bytes are needed, and raises
``RemoteProtocolError`` where no frame can begin."""
Find = Callable[[bytes], int]
"""``find(data)`` returns the offset where a frame begins, or -1.

``data`` is one TCP segment, which with most senders begins with a frame.
"""


class FrameReader:
    """Splits bytes as ``measure`` says, and resynchronizes with ``find`` after missing bytes.

    Bytes that are missing inside a frame of known size do not harm the frames after it.
    """

    def __init__(self, measure: Measure, find: Find | None = None) -> None:
        self.in_step: bool = True
        """Whether the position of the next frame is known."""
        self.skipped: int = 0
        """Bytes that were captured and could not be decoded."""
        self._measure = measure
        self._find = find or self._fits
        self._head = bytearray()
        self._size = 0
        self._got = 0

    def receive(self, data: bytes) -> Iterator[Frame]:
        """Process bytes; yield the frames that they complete.

        Raises ``RemoteProtocolError`` after the frames before the fault.
        """
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
        # A frame whose size was not known.  Its beginning goes in front of the new bytes, and is measured
        # again.
        elif self._head:
            data = bytes(self._head + data)
            self._head.clear()
        yield from self._frames(data, at)

    def lose(self, count: int | None) -> None:
        """Skip bytes that were not captured; None: nobody knows how many."""
        if count is not None and self._size and self._got + count < self._size:
            self._got += count
            return
        # The bytes that are kept of a frame that cannot be completed were captured in vain.
        self.skipped += len(self._head)
        self._forget()
        self.in_step = False

    def _frames(self, data: bytes, at: int) -> Iterator[Frame]:
        end = len(data)
        while at < end:
            try:
                size = self._measure(data, at)
            except RemoteProtocolError:
                # Where one frame is wrong, the place of the next is unknown.
                self.skipped += end - at
                self.in_step = False
                raise
            if not size:
                # Too few bytes to know the size.
                self._head += data[at:]
                return
            if at + size > end:
                self._size, self._got = size, end - at
                self._head += data[at : at + MAX_KEPT]
                return
            # A large frame that is complete is cut as one that is not, so that dissectors see the same of
            # both.
            yield Frame(data[at : at + min(size, MAX_KEPT)], size, size <= MAX_KEPT)
            at += size

    def _fill(self, data: bytes, at: int) -> int:
        """Add bytes to the incomplete frame; return the offset of the next one."""
        take = min(self._size - self._got, len(data) - at)
        # Otherwise bytes are missing before these, or enough of the frame is kept.
        if len(self._head) == self._got:
            self._head += data[at : at + min(take, MAX_KEPT - len(self._head))]
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
        """Return 0 if whole frames fill the segment exactly, else -1."""
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
