"""ZMTP in captures: greetings and commands one by one, messages together as they came.

What one side sends after the first eleven bytes depends on what the other has offered: both speak the lower
version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.dissecting.frame_reader import Frame
from kernel.contracts.dissecting.framed import FramedDissector
from kernel.contracts.dissector import CLIENT, SERVER, Line
from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.zmtp.commands import decode_metadata, split_command
from plugins.protocols.zmtp.frames import (
    COMMAND,
    LONG,
    LONG_1,
    LONG_HEADER,
    LONG_HEADER_1,
    MORE,
    RESERVED,
    SHORT_HEADER,
    measure,
    measure_1,
)
from plugins.protocols.zmtp.greeting import (
    GREETING_2_SIZE,
    GREETING_3_SIZE,
    SIGNATURE_SIZE,
    decode_greeting,
    is_version_1,
)
from plugins.protocols.zmtp.socket_types import NUMBERED, SOCKET_TYPES


def facts_of_greeting(octets: bytes) -> dict[str, Any]:
    """Return the facts of a greeting of 64 bytes."""
    greeting = decode_greeting(octets)
    return {
        "version": f"{greeting.major}.{greeting.minor}",
        "mechanism": greeting.mechanism,
        "as_server": greeting.as_server,
    }


def facts_of_command(name: str, data: bytes) -> dict[str, Any]:
    """Return the facts of a command, without passwords."""
    if name in ("READY", "INITIATE"):
        return {key: value.decode(errors="replace") for key, value in decode_metadata(data)}
    # HELLO of PLAIN (24/ZMTP-PLAIN) has two short strings that fill it exactly.
    if name == "HELLO" and data and len(data) > data[0] + 1:
        user, password = data[1 : 1 + data[0]], data[1 + data[0] :]
        if len(password) == 1 + password[0]:
            return {"username": user.decode(errors="replace"), "password": "(not shown)"}
    if name in ("SUBSCRIBE", "CANCEL"):
        return {"topic": data.decode(errors="replace")}
    if name in ("JOIN", "LEAVE"):
        return {"group": data.decode(errors="replace")}
    if name == "ERROR" and data:
        return {"reason": data[1 : 1 + data[0]].decode(errors="replace")}
    if name == "PING" and len(data) >= 2:
        # 37/ZMTP: the time to live is in tenths of a second.
        return {"ttl_seconds": int.from_bytes(data[:2], "big") / 10}
    return {"bytes": len(data)} if data else {}


_SUBSCRIBERS = tuple(name for name, each in SOCKET_TYPES.items() if each.subscribes and not each.grouped)


class _Side:
    """The state of one sender."""

    def __init__(self) -> None:
        self.offered: int | None = None
        """The highest version that it speaks: 1, 2 or 3."""
        self.greeted = False
        self.identified = False
        """Whether its identity, a frame of versions 1 and 2, has arrived."""
        self.type = ""
        self.messages = self.frames = self.bytes = 0
        self.pending = self.pending_frames = self.pending_bytes = 0


class ZmtpDissector(FramedDissector):
    """The dissector of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self._sides = (_Side(), _Side())
        self._commands = 0
        self._mechanism = ""

    # ------------------------------------------------------------------ frames

    def measure(self, sender: int, data: bytes, at: int) -> int:
        """Return the size of a greeting or frame."""
        side = self._sides[sender]
        if not side.greeted:
            size = self._measure_greeting(sender, data, at)
            # A greeting was found, or its version is not certain yet.  Otherwise this side speaks version 1,
            # which has no greeting: a frame follows.
            if size or side.offered is None or not side.greeted:
                return size
        if self._version() == 1:
            return _measure_version_1(data, at)
        # 23/ZMTP: the reserved bits are zero.  Another value mostly means that the position is wrong.
        if data[at] & RESERVED:
            raise RemoteProtocolError(f"a frame with flags {data[at]:#04x}")
        _, head, size = measure(data, at)
        return head + size if head else 0

    def frame(self, sender: int, frame: Frame, time: float) -> list[Line]:
        """Process a greeting or frame."""
        side = self._sides[sender]
        if not side.greeted:
            side.greeted = True
            return [self._greeting(side, frame.data)]
        version = self._version()
        head, flags = _head_of(frame.data, version)
        # In versions 1 and 2 the first frame is the identity; in version 3 it is metadata of READY.
        if version < 3 and not side.identified:
            side.identified = True
            return [Line("identity", {"identity": frame.data[head:].decode(errors="replace")})]
        if version == 3 and flags & COMMAND:
            return self._command(sender, frame, head)
        return self._message(sender, frame, head, bool(flags & MORE))

    def end_of_segment(self, sender: int) -> list[Line]:
        """Return a line for the messages that arrived together."""
        side = self._sides[sender]
        if not side.pending_frames:
            return []
        facts = {"count": side.pending, "frames": side.pending_frames, "bytes": side.pending_bytes}
        side.pending = side.pending_frames = side.pending_bytes = 0
        return [Line("messages", facts)]

    def lose(self, sender: int, count: int | None, time: float) -> list[Line]:
        """Skip what was not captured.  If that is the greeting, version 3 is assumed."""
        side = self._sides[sender]
        if not side.greeted:
            # Without the greeting nothing tells the version.
            side.greeted = side.identified = True
        return super().lose(sender, count, time)

    def figures(self) -> Mapping[str, Any]:
        """Return the row of the table; ``out`` is from client to server."""
        out, back = self._sides[CLIENT], self._sides[SERVER]
        return {
            "version": self._version(),
            "mechanism": self._mechanism,
            "client_type": out.type,
            "server_type": back.type,
            "messages_out": out.messages,
            "messages_in": back.messages,
            "bytes_out": out.bytes,
            "bytes_in": back.bytes,
            "commands": self._commands,
            **self.own_figures(),
        }

    # ------------------------------------------------------------------ greetings

    def _version(self) -> int:
        """Return the version that both speak, as far as is known."""
        return min(3 if side.offered is None else side.offered for side in self._sides)

    def _measure_greeting(self, sender: int, data: bytes, at: int) -> int:
        """Return the size of the greeting once it is certain; 0 and ``greeted`` if this version has none."""
        side, there = self._sides[sender], len(data) - at
        if is_version_1(data[at : at + SIGNATURE_SIZE]):
            side.offered, side.greeted = 1, True
            return 0
        # The byte behind the signature tells the version.  It never comes if the other side is of version 1.
        if there <= SIGNATURE_SIZE:
            return SIGNATURE_SIZE if self._version() == 1 and there == SIGNATURE_SIZE else 0
        side.offered = 3 if data[at + SIGNATURE_SIZE] >= 3 else 2 if data[at + SIGNATURE_SIZE] else 1
        version = self._version()
        if version == 1:
            return SIGNATURE_SIZE
        if version == 2:
            return GREETING_2_SIZE
        # Behind it comes either the rest of the 64 bytes, or what an older version of the other side demands.
        certain = self._sides[1 - sender].offered is not None or there >= GREETING_3_SIZE
        return GREETING_3_SIZE if certain else 0

    def _greeting(self, side: _Side, data: bytes) -> Line:
        if len(data) == GREETING_3_SIZE:
            facts = facts_of_greeting(data)
            self._mechanism = facts["mechanism"]
            return Line("greeting", facts)
        if len(data) == GREETING_2_SIZE:
            side.type = NUMBERED[data[11]] if data[11] < len(NUMBERED) else str(data[11])
            return Line("greeting", {"version": "2.0", "type": side.type})
        # To a peer of version 1 the signature is a frame: an identity of no bytes.
        side.identified = True
        return Line("greeting", {"version": "1.0"})

    # ------------------------------------------------------------------ what frames say

    def _command(self, sender: int, frame: Frame, head: int) -> list[Line]:
        name, data = split_command(frame.data[head:])
        # A mechanism that encrypts (CURVE) has its messages in commands of this name.
        if name == "MESSAGE":
            return self._message(sender, frame, head, more=False)
        self._commands += 1
        # The data of all other commands of CURVE are encrypted.
        sealed = self._mechanism == "CURVE" and name != "ERROR"
        facts = {"bytes": len(data)} if sealed else facts_of_command(name, data)
        if name in ("READY", "INITIATE"):
            self._sides[sender].type = str(facts.get("Socket-Type", ""))
        return [*self.end_of_segment(sender), Line(name, facts)]

    def _message(self, sender: int, frame: Frame, head: int, more: bool) -> list[Line]:
        side, body = self._sides[sender], frame.data[head:]
        # Before ZMTP 3.1 (37/ZMTP) a subscription is a message: 1 or 0, and the topic.
        if side.type in _SUBSCRIBERS and not more and body[:1] in (b"\0", b"\1"):
            name = "subscribe" if body[0] else "cancel"
            return [*self.end_of_segment(sender), Line(name, {"topic": body[1:].decode(errors="replace")})]
        size = frame.size - head
        side.messages += not more
        side.frames += 1
        side.bytes += size
        side.pending += not more
        side.pending_frames += 1
        side.pending_bytes += size
        return []


def _measure_version_1(data: bytes, at: int) -> int:
    """Return the size of a frame of 1.0."""
    _, head, size = measure_1(data, at)
    # 13/ZMTP: the length counts the flags, so that a length of 0 is wrong.
    if size < 0:
        raise RemoteProtocolError("a frame of ZMTP 1.0 with a length of 0")
    return head + size if head else 0


def _head_of(data: bytes, version: int) -> tuple[int, int]:
    """Return the offset of a frame's body, and its flags.

    Of a long frame the capture may have a part only.
    """
    if version == 1:
        head = LONG_HEADER_1 if data[0] == LONG_1 else SHORT_HEADER
        return head, data[head - 1] if len(data) >= head else 0
    return (LONG_HEADER if data[0] & LONG else SHORT_HEADER), data[0]
