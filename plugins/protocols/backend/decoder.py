"""Decoder of the backend protocol: bytes to batches and control frames, in any chunking, in linear time."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of
from plugins.protocols.backend.frames import (
    CONTROL_LIMIT,
    LONG,
    LONG_BATCH_BLOCK,
    MAX_PARTS,
    Control,
    equal_bodies,
    equal_headers,
    equal_long_bodies,
    split_parts,
)

_GROWTH = 4
"""The buffer of a large frame is at most so many times as large as what has come of it."""

_BEGINNING = 4096
"""Bytes of a frame larger than a read that are read with its header."""

_POOLED = 8
"""Buffers of large frames that are kept to be used again: a new one has to be cleared, and paged in."""

_VIEW_FROM = 32 * 1024
"""Bodies from this size on are views of the buffer that they came in, not copies."""

_KNOWN = frozenset(Control)

OnControl = Callable[[Control, bytes], None]


class Decoder:
    """One direction of one connection.

    ``on_control`` gets the control frames, in their place between the messages; it may change
    ``envelope`` and must raise ``RemoteProtocolError`` for what it does not like.
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
        self._large: bytearray | None = None  # header and body of a large frame, being filled
        self._filled = 0
        self._size = 0
        self._stride = 0  # of the last large frame: its header and body
        self._pool: list[bytearray] = []
        self._batches: list[Batch] = []
        self._bodies: list[Buffer] = []
        self._equal = self._width = 0
        """How many of the bodies are known to have one size, if all of them, and that size."""

    def in_message(self) -> bool:
        """Whether the bytes so far end in the middle of a frame."""
        return bool(self._rest) or self._large is not None

    def idle(self) -> bool:
        """Whether we stand between two messages of the plain envelope."""
        return not self._rest and self._large is None and self.envelope is PLAIN

    def decode(self, data: bytes) -> list[Batch]:
        """Return the batches that ``data`` completes; a fault raises with those that came before it."""
        if self._large is not None:
            view = self.room()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            view.release()
            batches = self.filled(count)
            return self._decode_after(batches, data[count:]) if count < len(data) else batches
        if self._rest:
            data = self._rest + data
        self._rest = b""
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
        """Decode what came with the end of a large frame; a fault in it takes nothing away."""
        try:
            return batches + self.decode(data)
        except RemoteProtocolError as error:
            error.batches = [*batches, *error.batches]
            raise

    def room(self) -> memoryview:
        """Where the next bytes belong, while a large frame is being received; empty otherwise."""
        return memoryview(self._large)[self._filled :] if self._large is not None else memoryview(b"")

    def read_hint(self, usual: int) -> int:
        """How many bytes are best read next: whole large frames where they come one after the other.

        Of frames larger than a read only the beginning, because the rest is then received where it belongs.
        """
        stride = self._stride
        if not stride:
            return usual
        return (usual // stride + 1) * stride if stride <= usual else _BEGINNING

    def filled(self, count: int) -> list[Batch]:
        """The first ``count`` bytes of ``room`` have been received."""
        large = self._large
        assert large is not None
        self._filled += count
        if self._filled < len(large):
            return []
        if self._filled < self._size:  # nobody gets memory for what he has only announced
            large.extend(bytes(min(self._size, _GROWTH * len(large)) - len(large)))
            return []
        self._large = None
        if large[1] >= 0x80:
            return self.decode(bytes(large))
        self._stride = len(large)
        return [batch_of([memoryview(large)[9:].toreadonly()], self.envelope)]

    def _buffer(self, size: int, received: int) -> bytearray:
        """Return a buffer for a frame of which so much is there: a used one if nobody looks at it any more."""
        if size != self._stride:  # the first of its size: at most some times what has come
            self._pool.clear()
            return bytearray(min(size, max(_GROWTH * received, _BEGINNING)))
        for buffer in self._pool:
            if _unseen(buffer):
                return buffer
        buffer = bytearray(size)
        if len(self._pool) < _POOLED:
            self._pool.append(buffer)
        return buffer

    def _keep(self, data: bytes, position: int) -> None:
        """Keep an incomplete frame for later."""
        if data[position] == LONG and len(data) - position >= 9:
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
        """Take all whole frames; return where the first incomplete one begins."""
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
                    bodies = self._bodies
                    continue
                following = position + size + 1
                if following < end and data[following] == size:
                    stride = size + 1
                    count = equal_headers(data, position, stride, (end - position) // stride)
                    if count:
                        self._take_equal(equal_bodies(data, position, size, count), size)
                        position += count * stride
                        continue
                if following > end:
                    break
                bodies.append(data[position + 1 : following])
                position = following
        finally:
            self._end_batch()
        return position

    def _long(self, data: bytes, position: int) -> int:
        """Take one long frame, or a batch of them; return where the next frame begins, -1 when it is incomplete."""
        end = len(data)
        if position + 9 > end:
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
        elif data.startswith(data[position : position + 9], following):
            count = min((end - position) // (size + 9), LONG_BATCH_BLOCK)
            several = equal_long_bodies(data, position, size, count)
            self._take_equal(several, size)
            return position + (size + 9) * len(several)
        else:
            self._bodies.append(data[position + 9 : following])
        return following

    def _take_equal(self, bodies: list[bytes], size: int) -> None:
        """Put bodies of one size behind those that are here."""
        if self._equal == len(self._bodies) and (not self._equal or self._width == size):
            self._width = size
            self._equal += len(bodies)
        self._bodies += bodies

    def _end_batch(self) -> None:
        """What follows has another envelope, or comes later."""
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
        """Take a control frame; return where the next frame begins, -1 when this one is incomplete."""
        kind = data[position + 1] & 0x7F
        size = int.from_bytes(data[position + 2 : position + 9], "big")
        if kind == Control.PARTS:
            self._check(size)
        elif size > CONTROL_LIMIT:
            raise RemoteProtocolError(f"a control frame of {size} bytes (type {kind})")
        following = position + 9 + size
        if following > len(data):
            return -1
        self._end_batch()
        payload = data[position + 9 : following]
        if kind == Control.PARTS:
            self._parts(payload)
        elif kind in _KNOWN:  # others are of a later version, and not for us
            self._on_control(Control(kind), payload)
        return following

    def _parts(self, payload: bytes) -> None:
        parts = split_parts(payload)
        if not parts:
            raise RemoteProtocolError(
                f"a multi-part message whose parts do not fill its frame, or that has more than {MAX_PARTS} of them"
            )
        size = sum(map(len, parts))
        batches = self._batches
        if batches and batches[-1].multipart and batches[-1].envelope is self.envelope:
            batches[-1].bodies.append(parts)  # type: ignore[attr-defined]  # our own list, not yet handed out
            batches[-1].size += size
        else:
            batches.append(Batch([parts], size, self.envelope, multipart=True))


def _unseen(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: only then may it change its size."""
    try:
        buffer.append(0)
        buffer.pop()
    except BufferError:
        return False
    return True
