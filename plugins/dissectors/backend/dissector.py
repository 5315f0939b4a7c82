"""The backend protocol in captures (``docs/backend_protocol.md``).

There is a line for each control frame, and one for messages that arrived together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kernel.contracts.dissecting.awaited import Awaited
from kernel.contracts.dissecting.frame_reader import Frame
from kernel.contracts.dissecting.framed import FramedDissector
from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissector import CLIENT, SERVER, Line
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Envelope
from plugins.protocols.backend.envelope_memory import NUMBER
from plugins.protocols.backend.frames import CONTROL_LIMIT, LONG, Control, split_parts
from plugins.protocols.backend.greeting import decode_envelope, decode_greeting
from plugins.protocols.backend.mixed import mixed_arrays

ENVELOPES = 65_536
"""Envelope numbers that are remembered of each side."""
_HEADER = 9
_CONTROLS = frozenset(Control)
_TEXT = {Control.SUBSCRIBE: "pattern", Control.UNSUBSCRIBE: "pattern", Control.CLOSE: "reason"}


class _Side:
    """The state of one sender."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.pending = self.pending_bytes = 0
        self.envelope: Envelope | None = PLAIN
        """The current envelope; None: it was not captured."""
        self.envelopes: Latest[int, Envelope] = Latest(ENVELOPES)
        self.awaited = Awaited()
        self.counted = True
        """Whether all messages were seen, so that it is known which of them a CONFIRM counts."""


class BackendDissector(FramedDissector):
    """The dissector of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self._sides = (_Side(), _Side())
        self._controls = 0

    def measure(self, sender: int, data: bytes, at: int) -> int:
        """Return the size of a frame."""
        if data[at] != LONG:
            return 1 + data[at]
        if len(data) < at + _HEADER:
            return 0
        # The top bit of the eight-byte size tells a control frame from a message.
        if data[at + 1] < 0x80:
            return _HEADER + int.from_bytes(data[at + 1 : at + _HEADER], "big")
        kind, size = data[at + 1] & 0x7F, int.from_bytes(data[at + 2 : at + _HEADER], "big")
        # A limit of the protocol.  It also shows that these bytes are no frame, when the position is wrong.
        if kind != Control.PARTS and size > CONTROL_LIMIT:
            raise RemoteProtocolError(f"a control frame of {size} bytes (type {kind})")
        return _HEADER + size

    def frame(self, sender: int, frame: Frame, time: float) -> list[Line]:
        """Process a frame."""
        data, side = frame.data, self._sides[sender]
        long = data[0] == LONG
        kind = data[1] & 0x7F if long and data[1] >= 0x80 else 0
        if not kind or kind == Control.PARTS:
            # Bodies are never looked at: the frame need not be whole.
            self._message(side, frame.size - (_HEADER if long else 1), time)
            if not kind:
                return []
            parts = split_parts(data[_HEADER:]) if frame.whole else ()
            if parts is None:
                raise RemoteProtocolError("parts that do not fill their frame")
            return [
                *self.end_of_segment(sender),
                Line("PARTS", {"parts": len(parts), "bytes": frame.size - _HEADER}),
            ]
        self._controls += 1
        # Messages before a control frame have their line first: the frame may change the envelope.
        before = self.end_of_segment(sender)
        if kind == Control.MIXED:
            return [*before, self._mixed(side, frame, time)]
        # Types of later versions are shown with their number.
        if kind not in _CONTROLS:
            return [*before, Line(f"control {kind}", {"bytes": frame.size - _HEADER})]
        if not frame.whole:
            _forget(side, Control(kind), data[_HEADER : _HEADER + NUMBER])
            return [*before, Line(Control(kind).name, {"bytes": frame.size - _HEADER})]
        return [*before, self._control(sender, Control(kind), data[_HEADER:], time)]

    def end_of_segment(self, sender: int) -> list[Line]:
        """Return a line for the messages that arrived together."""
        side = self._sides[sender]
        if not side.pending:
            return []
        facts = {"count": side.pending, "bytes": side.pending_bytes, **_of_envelope(side.envelope)}
        side.pending = side.pending_bytes = 0
        return [Line("messages", facts)]

    def lost(self, sender: int) -> list[Line]:
        """Forget what is valid only if everything was seen."""
        # The frame that changed the envelope may be in the gap.  The known numbers are kept, although one of
        # them may have been given anew there.
        self._sides[sender].envelope = None
        self._sides[sender].counted = False
        # A CONFIRM counts from the beginning of the conversation.  If one message was missed, nobody knows
        # which message it means, in either direction.
        for side in self._sides:
            side.awaited.forget()
        return []

    def figures(self) -> Mapping[str, Any]:
        """Return the row of the table; ``out`` is from client to server."""
        out, back = self._sides[CLIENT], self._sides[SERVER]
        return {
            "messages_out": out.messages,
            "messages_in": back.messages,
            "bytes_out": out.bytes,
            "bytes_in": back.bytes,
            "control_frames": self._controls,
            # A table row has one direction: the one with more messages.
            **(out if out.messages >= back.messages else back).awaited.durations.facts("confirm"),
            **self.own_figures(),
        }

    def _message(self, side: _Side, size: int, time: float) -> None:
        side.messages += 1
        side.bytes += size
        side.pending += 1
        side.pending_bytes += size
        if side.counted:
            side.awaited.sent(side.messages, time)

    def _mixed(self, side: _Side, frame: Frame, time: float) -> Line:
        if not frame.whole:
            # Nobody knows how many messages it has, so nobody knows what later confirmations count.
            side.counted = False
            side.awaited.forget()
            return Line("MIXED", {"bytes": frame.size - _HEADER})
        bodies, _ = mixed_arrays(frame.data[_HEADER:])
        for body in bodies:
            self._message(side, len(body), time)
        # They have this line, and no part in that of the messages around them.
        side.pending = side.pending_bytes = 0
        return Line("MIXED", {"count": len(bodies), "bytes": sum(map(len, bodies))})

    def _control(self, sender: int, control: Control, payload: bytes, time: float) -> Line:
        side = self._sides[sender]
        facts: Mapping[str, Any] = {}
        if control is Control.GREETING:
            facts = msgspec.structs.asdict(decode_greeting(payload))
        elif control is Control.ENVELOPE:
            facts = self._learn(side, payload)
        elif control is Control.USE:
            number = int.from_bytes(payload[:NUMBER], "big")
            side.envelope = side.envelopes.get(number) if payload else PLAIN
            facts = {"number": number} if payload else {"number": "none"}
        elif control is Control.CONFIRM:
            count = int.from_bytes(payload[:8], "big")
            # A CONFIRM is for what the other side has sent.
            self._sides[1 - sender].awaited.answered_up_to(count, time)
            facts = {"count": count}
        elif control is Control.SYNC:
            facts = {
                "number": int.from_bytes(payload[:8], "big"),
                "hops": int.from_bytes(payload[8:9], "big"),
            }
        elif control is Control.SYNCED:
            facts = {"number": int.from_bytes(payload[:8], "big")}
        elif control in _TEXT:
            facts = {_TEXT[control]: payload.decode(errors="replace")}
        return Line(control.name, facts)

    def _learn(self, side: _Side, payload: bytes) -> dict[str, Any]:
        number = int.from_bytes(payload[:NUMBER], "big")
        # Before decoding: if that fails, the number has no envelope at the receiver either.
        side.envelopes.pop(number)
        if len(payload) <= NUMBER:
            return {"number": number, "forgotten": True}
        # In case it cannot be decoded, which raises an error.
        side.envelope = None
        side.envelope = decode_envelope(payload[NUMBER:])
        side.envelopes.put(number, side.envelope)
        return {"number": number, **_of_envelope(side.envelope)}


def _forget(side: _Side, control: Control, number: bytes) -> None:
    """Forget the envelope that an incompletely captured frame redefines."""
    if control not in (Control.ENVELOPE, Control.USE):
        return
    side.envelope = None
    if control is Control.ENVELOPE and len(number) == NUMBER:
        side.envelopes.pop(int.from_bytes(number, "big"))
    elif control is Control.ENVELOPE:
        # The number itself was not captured: it may be any of them.
        side.envelopes = Latest(ENVELOPES)


def _of_envelope(envelope: Envelope | None) -> dict[str, Any]:
    """Return the facts of an envelope; fields that are not set are left out."""
    if envelope is None:
        return {"envelope": "not captured"}
    facts = {
        name: getattr(envelope, name)
        for name in ("key", "exchange", "reply_to", "persistent", "priority", "expiration")
    }
    facts["properties"] = dict(envelope.properties)
    return {name: value for name, value in facts.items() if value}
