"""AMQP 0-9-1 in captures: a line for each method, with the message that it brings, and what came of the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.dissector import CLIENT, Line
from kernel.contracts.errors import RemoteProtocolError
from kernel.inspection.frame_reader import Frame
from kernel.inspection.framed import FramedDissector
from plugins.dissectors.amqp091 import boundaries
from plugins.dissectors.amqp091.confirms import Confirms
from plugins.dissectors.amqp091.methods import Content, decode, facts_of, properties_of
from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.methods.method import Method

_HEAD = frames.frame_header.size
_CONTENT_HEADER = 12
"""Class, weight, size of the body."""
_COUNTED = {
    "basic.publish": "published",
    "basic.deliver": "delivered",
    "basic.get-ok": "delivered",
    "basic.return": "returned",
}


class AmqpDissector(FramedDissector):
    """One connection."""

    def __init__(self) -> None:
        super().__init__(boundaries.find)
        self._frames = [0, 0]
        self._methods = 0
        self._messages = dict.fromkeys(_COUNTED.values(), 0)
        self._bytes = dict.fromkeys(_COUNTED.values(), 0)
        self._contents: dict[tuple[int, int], Content] = {}
        """Messages under way, by sender and channel: a channel has one at a time."""
        self._confirms = Confirms()
        self._channels = 0

    def measure(self, sender: int, data: bytes, at: int) -> int:
        """Return the size of a frame."""
        return boundaries.measure(data, at)

    def frame(self, sender: int, frame: Frame, time: float) -> list[Line]:
        """Take a frame, or the protocol header."""
        try:
            return self._frame(sender, frame, time)
        except RemoteProtocolError:
            self._confirms.forget()  # it may have been of a message that is counted
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
        """Give up the messages that were under way."""
        self._confirms.forget()
        keys = [key for key in self._contents if key[0] == sender]
        return [_incomplete(key[1], self._contents.pop(key)) for key in keys]

    def figures(self) -> Mapping[str, Any]:
        """Return the row of the table; what goes from client to server is ``out``."""
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
        if not frame.whole:
            raise RemoteProtocolError(
                f"a method of {frame.size - frames.OVERHEAD} bytes, not all of which are there"
            )
        method = decode(payload)
        self._methods += 1
        self._channels += method.name == "channel.open"
        unfinished = self._contents.pop((sender, channel), None)
        lines = [] if unfinished is None else [_incomplete(channel, unfinished)]
        self._confirms.see(sender, channel, method, time)
        if method.has_content:
            self._contents[sender, channel] = Content(method)
            return lines
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
        if sender == CLIENT:
            self._confirms.published(channel, time)
        return [_of_message(channel, content.method, {"bytes": content.got, **content.properties})]


def _of_message(channel: int, method: Method, more: Mapping[str, Any]) -> Line:
    return Line(method.name, {"channel": channel, **facts_of(method), **more})


def _incomplete(channel: int, content: Content) -> Line:
    return _of_message(channel, content.method, {"bytes": content.got, "incomplete": True})
