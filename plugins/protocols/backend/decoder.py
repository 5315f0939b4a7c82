"""Decoder of the backend protocol: bytes to runs and control frames, in any chunking, in linear time."""

from __future__ import annotations

from collections.abc import Callable

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Buffer, Envelope, Run
from plugins.protocols.backend.frames import LONG, Control, equal_bodies, equal_headers, split_parts

_GATHER_FROM = 64 * 1024
"""A frame of which more than this many bytes are still missing is gathered in a list, not by concatenation."""

_VIEW_FROM = 32 * 1024
"""Bodies from this size on are views of the buffer that they came in, not copies."""

_CONTROL_LIMIT = 1 << 20
"""No control frame but PARTS needs more bytes than this."""

OnControl = Callable[[Control, bytes], None]


class Decoder:
    """One direction of one connection.

    ``on_control`` gets the control frames, in their place between the messages; it may change
    ``envelope`` and must raise ``RemoteProtocolError`` for what it does not like.
    """

    __slots__ = ("_gathered", "_missing", "_on_control", "_rest", "_runs", "envelope", "max_message")

    def __init__(self, max_message: int, on_control: OnControl) -> None:
        self.max_message = max_message
        self.envelope: Envelope = PLAIN
        self._on_control = on_control
        self._rest: bytes = b""
        self._gathered: list[Buffer] = []
        self._missing = 0
        self._runs: list[Run] = []

    def in_message(self) -> bool:
        """Whether the bytes so far end in the middle of a frame."""
        return bool(self._rest or self._gathered)

    def idle(self) -> bool:
        """Whether we stand between two messages of the plain envelope."""
        return not self._rest and not self._gathered and self.envelope is PLAIN

    def decode(self, data: bytes) -> list[Run]:
        """Return the runs that ``data`` completes; a fault raises with those that came before it."""
        if self._missing > len(data):
            self._missing -= len(data)
            self._gathered.append(data)
            return []
        if self._gathered:
            self._gathered.append(data)
            data = b"".join(self._gathered)
            self._gathered = []
            self._missing = 0
        elif self._rest:
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

    def _keep(self, data: bytes, position: int) -> None:
        """Keep an incomplete frame for later."""
        rest = data[position:] if position else data
        if rest[0] == LONG and len(rest) >= 9:
            size = int.from_bytes(rest[2:9], "big") + 9
            if size - len(rest) > _GATHER_FROM:
                self._missing = size - len(rest)
                self._gathered = [rest]
                return
        self._rest = rest

    def _frames(self, data: bytes) -> int:
        """Take all whole frames; return where the first incomplete one begins."""
        position, end = 0, len(data)
        bodies: list[Buffer] = []
        total = 0
        try:
            while position < end:
                size = data[position]
                if size < LONG:
                    following = position + size + 1
                    if following < end and data[following] == size:
                        stride = size + 1
                        count = equal_headers(data, position, stride, (end - position) // stride)
                        if count:
                            bodies += equal_bodies(data, position, size, count)
                            total += count * size
                            position += count * stride
                            continue
                    if following > end:
                        break
                    bodies.append(data[position + 1 : following])
                else:
                    if position + 9 > end:
                        if position + 1 < end and data[position + 1] < 0x80:
                            self._check(int.from_bytes(data[position + 1 : end], "big"))
                        break
                    if data[position + 1] >= 0x80:
                        following = self._control(data, position, bodies, total)
                        if following < 0:
                            break
                        bodies, total, position = [], 0, following
                        continue
                    size = int.from_bytes(data[position + 1 : position + 9], "big")
                    self._check(size)
                    following = position + 9 + size
                    if following > end:
                        break
                    if size < _VIEW_FROM:
                        bodies.append(data[position + 9 : following])
                    else:
                        bodies.append(memoryview(data)[position + 9 : following])
                total += size
                position = following
        finally:
            if bodies:
                self._runs.append(Run(bodies, total, self.envelope))
        return position

    def _check(self, size: int) -> None:
        if size > self.max_message:
            raise RemoteProtocolError(f"a message of {size} bytes; max_message is {self.max_message}")

    def _control(self, data: bytes, position: int, bodies: list[Buffer], total: int) -> int:
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
        if bodies:
            self._runs.append(Run(bodies[:], total, self.envelope))
            bodies.clear()
        payload = data[position + 9 : following]
        if kind == Control.PARTS:
            self._parts(payload)
            return following
        try:
            control = Control(kind)
        except ValueError:
            return following  # of a later version: not for us
        self._on_control(control, payload)
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
