"""Decoder of the backend protocol: bytes to runs and control frames, in any chunking, in linear time."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Buffer, Envelope, Run, run_of
from plugins.protocols.backend.frames import (
    LONG,
    LONG_RUN_BLOCK,
    Control,
    equal_bodies,
    equal_headers,
    equal_long_bodies,
    split_parts,
)

_GATHER_FROM = 8 * 1024
"""A frame of which at least this many bytes are still missing is received into a buffer of its own."""

_GROWTH = 4
"""The buffer of a large frame is at most so many times as large as what has come of it."""

_VIEW_FROM = 32 * 1024
"""Bodies from this size on are views of the buffer that they came in, not copies."""

_CONTROL_LIMIT = 1 << 20
"""No control frame but PARTS needs more bytes than this."""

_KNOWN = frozenset(Control)

OnControl = Callable[[Control, bytes], None]


class Decoder:
    """One direction of one connection.

    ``on_control`` gets the control frames, in their place between the messages; it may change
    ``envelope`` and must raise ``RemoteProtocolError`` for what it does not like.
    """

    __slots__ = (
        "_bodies",
        "_filled",
        "_large",
        "_on_control",
        "_rest",
        "_runs",
        "_size",
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
        self._runs: list[Run] = []
        self._bodies: list[Buffer] = []

    def in_message(self) -> bool:
        """Whether the bytes so far end in the middle of a frame."""
        return bool(self._rest) or self._large is not None

    def idle(self) -> bool:
        """Whether we stand between two messages of the plain envelope."""
        return not self._rest and self._large is None and self.envelope is PLAIN

    def decode(self, data: bytes) -> list[Run]:
        """Return the runs that ``data`` completes; a fault raises with those that came before it."""
        if self._large is not None:
            view = self.room()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            view.release()
            runs = self.filled(count)
            return runs + self.decode(data[count:]) if count < len(data) else runs
        if self._rest:
            data = self._rest + data
        self._rest = b""
        runs = self._runs = []
        try:
            position = self._frames(data)
        except RemoteProtocolError as error:
            error.runs = runs
            raise
        if position < len(data):
            self._keep(data, position)
        return runs

    def room(self) -> memoryview:
        """Where the next bytes belong, while a large frame is being received; empty otherwise."""
        return memoryview(self._large)[self._filled :] if self._large is not None else memoryview(b"")

    def filled(self, count: int) -> list[Run]:
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
        return [Run([memoryview(large)[9:].toreadonly()], len(large) - 9, self.envelope)]

    def _keep(self, data: bytes, position: int) -> None:
        """Keep an incomplete frame for later."""
        rest = data[position:] if position else data
        if rest[0] == LONG and len(rest) >= 9:
            size = int.from_bytes(rest[2:9], "big") + 9
            if size - len(rest) >= _GATHER_FROM:
                self._check(size - 9)
                self._size = size
                self._large = bytearray(min(size, max(_GROWTH * len(rest), _GATHER_FROM)))
                self._large[: len(rest)] = rest
                self._filled = len(rest)
                return
        self._rest = rest

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
                        bodies += equal_bodies(data, position, size, count)
                        position += count * stride
                        continue
                if following > end:
                    break
                bodies.append(data[position + 1 : following])
                position = following
        finally:
            self._end_run()
        return position

    def _long(self, data: bytes, position: int) -> int:
        """Take one long frame, or a run of them; return where the next frame begins, -1 when it is incomplete."""
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
            self._bodies.append(memoryview(data)[position + 9 : following])
        elif data.startswith(data[position : position + 9], following):
            count = min((end - position) // (size + 9), LONG_RUN_BLOCK)
            several = equal_long_bodies(data, position, size, count)
            self._bodies += several
            return position + (size + 9) * len(several)
        else:
            self._bodies.append(data[position + 9 : following])
        return following

    def _end_run(self) -> None:
        """What follows has another envelope, or comes later."""
        if self._bodies:
            self._runs.append(run_of(self._bodies, self.envelope))
            self._bodies = []

    def _check(self, size: int) -> None:
        if size > self.max_message:
            raise RemoteProtocolError(f"a message of {size} bytes; max_message is {self.max_message}")

    def _control(self, data: bytes, position: int) -> int:
        """Take a control frame; return where the next frame begins, -1 when this one is incomplete."""
        kind = data[position + 1] & 0x7F
        size = int.from_bytes(data[position + 2 : position + 9], "big")
        if kind == Control.PARTS:
            self._check(size)
        elif size > _CONTROL_LIMIT:
            raise RemoteProtocolError(f"a control frame of {size} bytes (type {kind})")
        following = position + 9 + size
        if following > len(data):
            return -1
        self._end_run()
        payload = data[position + 9 : following]
        if kind == Control.PARTS:
            self._parts(payload)
        elif kind in _KNOWN:  # others are of a later version, and not for us
            self._on_control(Control(kind), payload)
        return following

    def _parts(self, payload: bytes) -> None:
        parts = split_parts(payload)
        if not parts:
            raise RemoteProtocolError("a multi-part message whose parts do not fill its frame")
        size = sum(map(len, parts))
        runs = self._runs
        if runs and runs[-1].multipart and runs[-1].envelope is self.envelope:
            runs[-1].bodies.append(parts)  # type: ignore[attr-defined]  # our own list, not yet handed out
            runs[-1].size += size
        else:
            runs.append(Run([parts], size, self.envelope, multipart=True))
