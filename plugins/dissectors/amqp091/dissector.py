"""AMQP 0-9-1 in captures: a line for each method with its message, and the figures of a connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernel.contracts.dissecting.awaited import Awaited
from kernel.contracts.dissecting.durations import Durations
from kernel.contracts.dissecting.frame_reader import Frame
from kernel.contracts.dissecting.framed import FramedDissector
from kernel.contracts.dissector import CLIENT, SERVER, Line
from kernel.contracts.errors import RemoteProtocolError
from plugins.dissectors.amqp091.methods import Content, decode, facts_of, properties_of
from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.methods.method import Method

_TYPES = (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT)
_HEAD = frames.frame_header.size
_CANDIDATE = re.compile(rb"[\x01\x02\x03\x08]")
_BASIC = b"\x00\x3c"
_PLAUSIBLE_SIZE = 1 << 20
"""Bytes of the largest frame that is accepted when resynchronizing."""


def measure(data: bytes, at: int) -> int:
    """Return the size in bytes of the frame or protocol header at ``at``, or 0 if more bytes are needed."""
    if data[at] == frames.PROTOCOL_HEADER[0] and frames.PROTOCOL_HEADER.startswith(data[at : at + 4]):
        return len(frames.PROTOCOL_HEADER)
    # A wrong type shows at once.  The end octet can be checked only when the whole frame is there.
    if data[at] not in _TYPES:
        raise RemoteProtocolError(f"unknown frame type {data[at]}")
    if len(data) < at + _HEAD:
        return 0
    size: int = frames.OVERHEAD + int.from_bytes(data[at + 3 : at + _HEAD], "big")
    if at + size <= len(data) and data[at + size - 1] != frames.END:
        raise RemoteProtocolError(f"frame end is {data[at + size - 1]:#04x}, not 0xce")
    return size


def find_boundary(data: bytes) -> int:
    """Return the offset where a frame certainly begins, or -1."""
    if data.startswith(frames.PROTOCOL_HEADER[:5]):
        return 0
    # Bytes of a message may look like the beginning of a frame.  So each candidate has to prove itself in
    # ``_begins``.
    for match in _CANDIDATE.finditer(data):
        if _begins(data, match.start()):
            return match.start()
    return -1


def _begins(data: bytes, at: int) -> bool:
    kind, channel, size = (
        (*frames.frame_header.unpack_from(data, at),) if len(data) >= at + _HEAD else (0, 0, 0)
    )
    end = at + frames.OVERHEAD + size
    # The frame must lie whole in the segment, so that its end octet can be checked.
    if not kind or size > _PLAUSIBLE_SIZE or end > len(data) or data[end - 1] != frames.END:
        return False
    # Method and content header have known octets behind the frame header.
    if kind == frames.METHOD:
        return data[at + _HEAD : at + _HEAD + 4] in frames.METHODS
    if kind == frames.HEADER:
        return data[at + _HEAD : at + _HEAD + 4] == _BASIC + b"\0\0"
    if kind == frames.HEARTBEAT:
        return not channel and not size
    # A body may have any octets.  It counts only if the segment ends with it, or another frame begins behind
    # it.
    return end == len(data) or _begins(data, end)


_ANSWERS = ("basic.ack", "basic.nack", "basic.reject")


class _Publisher:
    """A channel in confirm mode: its messages are counted from 1."""

    def __init__(self, durations: Durations) -> None:
        self.count = 0
        self.awaited = Awaited(durations)


class Confirms:
    """The publisher confirms of a connection."""

    def __init__(self) -> None:
        self.acks = 0
        """Messages that were acknowledged and refused."""
        self.durations = Durations()
        """Time from the end of a message to its confirm."""
        self._channels: dict[int, _Publisher] = {}

    def forget(self) -> None:
        """Forget all counts: bytes are missing, so that nobody knows what a confirm counts."""
        self._channels.clear()

    def see(self, sender: int, channel: int, method: Method, time: float) -> None:
        """Process a method."""
        name = method.name
        # Counting begins with confirm.select and not with its answer: a publisher need not wait for it, and
        # with no-wait there is none.
        if name == "confirm.select":
            self._channels.setdefault(channel, _Publisher(self.durations))
        # Numbers begin again with the next confirm.select on the channel.
        elif name in ("channel.close", "channel.close-ok"):
            self._channels.pop(channel, None)
        elif name in _ANSWERS:
            self.acks += 1
            publisher = self._channels.get(channel)
            # A client's acknowledgements are for deliveries, and have nothing to do with confirms.
            if publisher is not None and sender == SERVER:
                tag = method.delivery_tag  # type: ignore[attr-defined]
                if getattr(method, "multiple", False):
                    publisher.awaited.answered_up_to(tag, time)
                else:
                    publisher.awaited.answered(tag, time)

    def published(self, channel: int, time: float) -> None:
        """Count a complete message."""
        publisher = self._channels.get(channel)
        if publisher is not None:
            publisher.count += 1
            publisher.awaited.sent(publisher.count, time)


_CONTENT_HEADER = 12
"""Class, weight and size of the body."""
_COUNTED = {
    "basic.publish": "published",
    "basic.deliver": "delivered",
    "basic.get-ok": "delivered",
    "basic.return": "returned",
}


class AmqpDissector(FramedDissector):
    """The dissector of one connection."""

    def __init__(self) -> None:
        super().__init__(find_boundary)
        self._frames = [0, 0]
        self._methods = 0
        self._messages = dict.fromkeys(_COUNTED.values(), 0)
        self._bytes = dict.fromkeys(_COUNTED.values(), 0)
        self._contents: dict[tuple[int, int], Content] = {}
        """Incomplete messages, by sender and channel: a channel has one at a time."""
        self._confirms = Confirms()
        self._channels = 0

    def measure(self, sender: int, data: bytes, at: int) -> int:
        """Return the size of a frame."""
        return measure(data, at)

    def frame(self, sender: int, frame: Frame, time: float) -> list[Line]:
        """Process a frame or the protocol header."""
        try:
            return self._frame(sender, frame, time)
        except RemoteProtocolError:
            # The frame may have been part of a message that confirms count.
            self._confirms.forget()
            raise

    def _frame(self, sender: int, frame: Frame, time: float) -> list[Line]:
        data = frame.data
        if data[0] == frames.PROTOCOL_HEADER[0]:
            return [Line("protocol header", {"version": "-".join(map(str, data[5:8]))})]
        self._frames[sender] += 1
        kind, channel, size = frames.frame_header.unpack_from(data)
        payload = data[_HEAD : _HEAD + size]
        if kind == frames.METHOD:
            return self._method(sender, channel, payload, frame, time)
        if kind == frames.HEADER:
            return self._header(sender, channel, payload, time)
        if kind == frames.BODY:
            return self._body(sender, channel, size, time)
        return [Line("heartbeat")]

    def lost(self, sender: int) -> list[Line]:
        """Drop the incomplete messages."""
        self._confirms.forget()
        keys = [key for key in self._contents if key[0] == sender]
        return [_incomplete(key[1], self._contents.pop(key)) for key in keys]

    def figures(self) -> Mapping[str, Any]:
        """Return the row of the table; ``out`` is from client to server."""
        return {
            "frames_out": self._frames[0],
            "frames_in": self._frames[1],
            "methods": self._methods,
            "channels": self._channels,
            **self._messages,
            "bytes_published": self._bytes["published"],
            "bytes_delivered": self._bytes["delivered"],
            "acks": self._confirms.acks,
            **self._confirms.durations.facts("confirm"),
            **self.own_figures(),
        }

    # ------------------------------------------------------------------ frames

    def _method(self, sender: int, channel: int, payload: bytes, frame: Frame, time: float) -> list[Line]:
        # Methods are short.  Only a frame beyond ``MAX_KEPT``, or with a gap in it, is not whole.
        if not frame.whole:
            raise RemoteProtocolError(
                f"a method of {frame.size - frames.OVERHEAD} bytes, not all of which are there"
            )
        method = decode(payload)
        self._methods += 1
        self._channels += method.name == "channel.open"
        unfinished = self._contents.pop((sender, channel), None)
        # A method in the middle of a content ends it (section 4.2.6).
        lines = [] if unfinished is None else [_incomplete(channel, unfinished)]
        self._confirms.see(sender, channel, method, time)
        if method.has_content:
            self._contents[sender, channel] = Content(method)
            return lines
        # A method with content gets its line with the last body frame, so that the line has the size.
        return [*lines, Line(method.name, {"channel": channel, **facts_of(method)})]

    def _header(self, sender: int, channel: int, payload: bytes, time: float) -> list[Line]:
        content = self._contents.get((sender, channel))
        if content is None:
            raise RemoteProtocolError(f"a content header on channel {channel}, without a method before it")
        if len(payload) < _CONTENT_HEADER + 2:
            raise RemoteProtocolError(f"a content header of {len(payload)} bytes")
        content.size = int.from_bytes(payload[4:_CONTENT_HEADER], "big")
        content.properties = properties_of(payload[_CONTENT_HEADER:])
        return self._finished(sender, channel, content, time)

    def _body(self, sender: int, channel: int, size: int, time: float) -> list[Line]:
        content = self._contents.get((sender, channel))
        if content is None or content.size is None:
            raise RemoteProtocolError(f"a body on channel {channel}, without a content header before it")
        content.got += size
        return self._finished(sender, channel, content, time)

    def _finished(self, sender: int, channel: int, content: Content, time: float) -> list[Line]:
        if not content.complete():
            return []
        del self._contents[sender, channel]
        counted = _COUNTED[content.method.name]
        self._messages[counted] += 1
        self._bytes[counted] += content.got
        # Only what a client sends is published; a server's messages are not confirmed.
        if sender == CLIENT:
            self._confirms.published(channel, time)
        return [_of_message(channel, content.method, {"bytes": content.got, **content.properties})]


def _of_message(channel: int, method: Method, more: Mapping[str, Any]) -> Line:
    return Line(method.name, {"channel": channel, **facts_of(method), **more})


def _incomplete(channel: int, content: Content) -> Line:
    return _of_message(channel, content.method, {"bytes": content.got, "incomplete": True})
