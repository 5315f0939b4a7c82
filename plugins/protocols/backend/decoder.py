"""Decoder of the backend protocol: bytes to batches and control frames, in any chunking, in linear time.

Three kinds of frames are decoded in three ways:

* Small frames (``_frames``): consecutive frames of one size are cut in C, as one batch; others one by one.
* Frames of at least ``_VIEW_FROM`` bytes that are incomplete at the end of a read (``_keep``): they get a
  buffer of their own, and the rest is received directly into it.  The host asks ``room`` for the free part,
  reads from the socket into it and calls ``filled``.  So the body is not copied again.
* Control frames (``_control``): they end the batch, because an ENVELOPE or USE changes ``envelope``.

Invariant: of ``_rest`` (bytes of an incomplete small frame) and ``_large`` (an incomplete large one) at most
one is set between two calls.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of
from kernel.contracts.strides import cut
from plugins.protocols.backend.frames import (
    CONTROL_LIMIT,
    LONG,
    LONG_HEADER,
    MAX_PARTS,
    Control,
    equal_headers,
    equal_long_headers,
    split_parts,
)

_GROWTH = 4
"""The buffer of a large frame is at most this many times as large as what has come of the frame.  So a peer
cannot make us allocate memory by only announcing a large message."""

_BEGINNING = 4096
"""Bytes to read together with the header of a frame that is larger than a read."""

_POOLED = 8
"""Buffers of large frames that are kept for reuse: a new buffer has to be cleared and paged in."""
_POOLED_BYTES, _MOST_POOLED = 16 * 1024 * 1024, 32
"""More are kept while they have no more than so many bytes together.  Their number is limited, since each is
looked at to find a free one."""

_VIEW_FROM = 32 * 1024
"""Bytes.  Bodies of at least this size are views of the buffer in which they came; smaller ones are
copies."""

_KNOWN = frozenset(Control)

OnControl = Callable[[Control, bytes], None]


class Decoder:
    """Decodes what one connection receives.

    ``on_control`` is called with type and payload of each control frame, in order with the messages.  It may
    change ``envelope``, which applies to the messages that follow, and raises ``RemoteProtocolError`` for an
    invalid frame.
    """

    __slots__ = (
        "_batches",
        "_bodies",
        "_equal",
        "_filled",
        "_large",
        "_on_control",
        "_pool",
        "_rest",
        "_size",
        "_stride",
        "_width",
        "envelope",
        "max_message",
    )

    def __init__(self, max_message: int, on_control: OnControl) -> None:
        self.max_message = max_message
        self.envelope: Envelope = PLAIN
        self._on_control = on_control
        self._rest: bytes = b""
        self._large: bytearray | None = None
        """Header and body of a large frame, as far as they have come."""
        self._filled = 0
        self._size = 0
        self._stride = 0
        """Bytes of the last large frame, header and body.  0: there was none."""
        self._pool: list[bytearray] = []
        self._batches: list[Batch] = []
        self._bodies: list[Buffer] = []
        self._equal = self._width = 0
        """``_equal``: how many of the first bodies are known to have one size, which is ``_width``."""

    def in_message(self) -> bool:
        """Whether the bytes so far end in the middle of a frame."""
        return bool(self._rest) or self._large is not None

    def idle(self) -> bool:
        """Whether no frame is incomplete and the empty envelope applies."""
        return not self._rest and self._large is None and self.envelope is PLAIN

    def decode(self, data: bytes) -> list[Batch]:
        """Return the batches that ``data`` completes.

        Raises ``RemoteProtocolError``, whose ``batches`` are those that were complete before the error.
        """
        if self._large is not None:
            # A wire that cannot receive into ``room``, such as TLS, brings the bytes here.  They are copied
            # into the same buffer.
            view = self.room()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            # Before ``filled``: a bytearray cannot be resized while there is a view of it.
            view.release()
            batches = self.filled(count)
            return self._decode_after(batches, data[count:]) if count < len(data) else batches
        # The rest is shorter than ``_VIEW_FROM``, or the beginning of a header, so joining costs little.
        if self._rest:
            data = self._rest + data
            self._rest = b""
        size = len(data) - 1
        # One whole short frame and nothing else: what ``_frames`` makes of it, in fewer steps.
        if 0 <= size < LONG and data[0] == size:
            return [Batch([data[1:]], size, self.envelope, False, size)]
        batches = self._batches = []
        try:
            position = self._frames(data)
        except RemoteProtocolError as error:
            error.batches = batches
            raise
        if position < len(data):
            self._keep(data, position)
        return batches

    def _decode_after(self, batches: list[Batch], data: bytes) -> list[Batch]:
        """Decode what came behind a large frame.  If it has an error, the error gets ``batches``, too."""
        try:
            return batches + self.decode(data)
        except RemoteProtocolError as error:
            error.batches = [*batches, *error.batches]
            raise

    def insert(self, batches: list[Batch]) -> None:
        """Insert batches that a control frame has brought.  For ``on_control``."""
        self._batches += batches

    def room(self) -> memoryview:
        """Return the free part of the buffer while a large frame is incomplete; else an empty view."""
        return memoryview(self._large)[self._filled :] if self._large is not None else memoryview(b"")

    def read_hint(self, usual: int) -> int:
        """Return how many bytes to read next.  ``usual``: the size that would be read otherwise.

        While large frames of one size follow each other, a read should end at the end of a frame.  If they
        are larger than a read, only the beginning of the next frame is read; the rest is then received into
        its own buffer.  0: the next bytes are for ``room``.
        """
        if self._large is not None:
            return 0
        stride = self._stride
        if not stride:
            return usual
        return (usual // stride + 1) * stride if stride <= usual else _BEGINNING

    def filled(self, count: int) -> list[Batch]:
        """``count`` bytes were received into ``room``; return the batches that they complete."""
        large = self._large
        assert large is not None
        self._filled += count
        if self._filled < len(large):
            return []
        # The buffer grows with what has come, not with what was announced: see ``_GROWTH``.
        if self._filled < self._size:
            large.extend(bytes(min(self._size, _GROWTH * len(large)) - len(large)))
            return []
        self._large = None
        # The parts of a PARTS frame are copied out of it, so the buffer need not live on.
        if large[1] >= 0x80:
            return self.decode(bytes(large))
        self._stride = len(large)
        return [batch_of([memoryview(large)[9:].toreadonly()], self.envelope)]

    def _buffer(self, size: int, received: int) -> bytearray:
        """Return a buffer for a frame of ``size`` bytes, ``received`` of which have come.

        If the last large frame had the same size, a buffer of the pool is used again, provided no view of it
        is left.
        """
        # Only the first frame of a size has to grow.  A peer that has sent one frame of this size may have
        # the memory for the next at once.
        if size != self._stride:
            self._pool.clear()
            return bytearray(min(size, max(_GROWTH * received, _BEGINNING)))
        for buffer in self._pool:
            # The bodies that are passed on are views of these buffers.  A buffer is free when all its readers
            # are done.
            if _has_no_views(buffer):
                return buffer
        buffer = bytearray(size)
        if len(self._pool) < max(_POOLED, min(_POOLED_BYTES // size, _MOST_POOLED)):
            self._pool.append(buffer)
        return buffer

    def _keep(self, data: bytes, position: int) -> None:
        """Keep the incomplete frame at ``position`` until the next call."""
        # Nine bytes of header, or the size is not known yet and the frame is kept as a small one.
        if data[position] == LONG and len(data) - position >= 9:
            # Seven bytes of size serve both kinds.  A control frame has only these.  In a message the eighth
            # is 0: ``_long`` has compared the size with ``max_message``, which is less than 2**56.
            size = int.from_bytes(data[position + 2 : position + 9], "big") + 9
            if size >= _VIEW_FROM:
                self._check(size - 9)
                received = len(data) - position
                self._size = size
                self._large = self._buffer(size, received)
                self._large[:received] = memoryview(data)[position:]
                self._filled = received
                return
        self._rest = data[position:] if position else data

    def _frames(self, data: bytes) -> int:
        """Decode all complete frames; return the position of the first incomplete one."""
        position, end = 0, len(data)
        bodies = self._bodies = []
        try:
            while position < end:
                size = data[position]
                if size == LONG:
                    following = self._long(data, position)
                    if following < 0:
                        break
                    position = following
                    # ``_long`` may have ended the batch, and so replaced the list.
                    bodies = self._bodies
                    continue
                following = position + size + 1
                # The next frame has the same size: count how many do, and cut them together.
                if following < end and data[following] == size:
                    stride = size + 1
                    count = equal_headers(data, position, stride, (end - position) // stride)
                    if count:
                        self._take_equal(cut(data, position, (1, size), count), size)
                        position += count * stride
                        continue
                if following > end:
                    break
                bodies.append(data[position + 1 : following])
                position = following
        # Also after an error: the messages before the faulty frame count as received.
        finally:
            self._end_batch()
        return position

    def _long(self, data: bytes, position: int) -> int:
        """Decode one or several long frames; return the position behind them, -1 if incomplete."""
        end = len(data)
        if position + 9 > end:
            # The header is incomplete, but its first bytes may already say that the message is too large.
            if position + 1 < end and data[position + 1] < 0x80:
                self._check(int.from_bytes(data[position + 1 : end], "big"))
            return -1
        if data[position + 1] >= 0x80:
            return self._control(data, position)
        size = int.from_bytes(data[position + 1 : position + 9], "big")
        self._check(size)
        following = position + 9 + size
        if following > end:
            return -1
        if size >= _VIEW_FROM:
            self._stride = size + 9
            self._bodies.append(memoryview(data)[position + 9 : following])
        # The next frame has the same header: a batch of equal long messages.
        elif data.startswith(data[position : position + 9], following):
            stride = LONG_HEADER + size
            count = equal_long_headers(data, position, stride, (end - position) // stride)
            self._take_equal(cut(data, position, (LONG_HEADER, size), count), size)
            return position + stride * count
        else:
            self._bodies.append(data[position + 9 : following])
        return following

    def _take_equal(self, bodies: list[bytes], size: int) -> None:
        """Append bodies that all have this size."""
        # Only if all bodies before these have the same size, too, does the batch have a width.
        if self._equal == len(self._bodies) and (not self._equal or self._width == size):
            self._width = size
            self._equal += len(bodies)
        self._bodies += bodies

    def _end_batch(self) -> None:
        """Make a batch of the bodies so far: the envelope may change, or the data ends."""
        bodies = self._bodies
        if not bodies:
            return
        if self._equal == len(bodies):
            self._batches.append(Batch(bodies, self._equal * self._width, self.envelope, False, self._width))
        else:
            self._batches.append(batch_of(bodies, self.envelope))
        self._bodies = []
        self._equal = 0

    def _check(self, size: int) -> None:
        if size > self.max_message:
            raise RemoteProtocolError(f"a message of {size} bytes; max_message is {self.max_message}")

    def _control(self, data: bytes, position: int) -> int:
        """Process a control frame; return the position behind it, -1 if it is incomplete."""
        kind = data[position + 1] & 0x7F
        size = int.from_bytes(data[position + 2 : position + 9], "big")
        if kind == Control.PARTS:
            self._check(size)
        elif size > CONTROL_LIMIT:
            raise RemoteProtocolError(f"a control frame of {size} bytes (type {kind})")
        following = position + 9 + size
        if following > len(data):
            return -1
        # Before the frame is processed: what came before it belongs to the old envelope.
        self._end_batch()
        payload = data[position + 9 : following]
        if kind == Control.PARTS:
            self._parts(payload)
        # Unknown types are of a later version of the extension: ignore them.
        elif kind in _KNOWN:
            self._on_control(Control(kind), payload)
        return following

    def _parts(self, payload: bytes) -> None:
        parts = split_parts(payload)
        if not parts:
            raise RemoteProtocolError(
                f"a message with no parts or more than {MAX_PARTS} of them, or whose parts do not fill its frame"
            )
        size = sum(map(len, parts))
        batches = self._batches
        # Consecutive multi-part messages become one batch, though each has a frame of its own.
        if batches and batches[-1].multipart and batches[-1].envelope is self.envelope:
            batches[-1].bodies.append(parts)  # type: ignore[attr-defined]  # a list that this call has made
            batches[-1].size += size
        else:
            batches.append(Batch([parts], size, self.envelope, multipart=True))


def _has_no_views(buffer: bytearray) -> bool:
    """Whether no memoryview of the buffer is left.  A bytearray cannot be resized while there is one."""
    try:
        buffer.append(0)
        buffer.pop()
    except BufferError:
        return False
    return True
