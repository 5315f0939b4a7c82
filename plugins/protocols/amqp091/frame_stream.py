"""FrameStream: from chunks of any size to whole frames and whole batches.

Each octet is copied a bounded number of times, however small the chunks are: what is left of a chunk
waits in a list until the frame that it begins can be whole.  What frames mean is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kernel.contracts.message import Buffer
from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.errors import ConnectionFault
from plugins.protocols.amqp091.events import Event
from plugins.protocols.amqp091.heartbeats import Heartbeats
from plugins.protocols.amqp091.reply_codes import ReplyCode
from plugins.protocols.amqp091.states import ConnectionState


class FrameStream:
    """The receiving half of a conversation, up to the frames."""

    first_state: ClassVar[ConnectionState]

    def __init__(self, now: float) -> None:
        self.state = self.first_state
        self.frame_max = frames.INITIAL_FRAME_SIZE
        """What was negotiated; 0 means no limit."""
        self._now = now
        self._heartbeats = Heartbeats()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._needed = 0
        self._deaf = False
        """The stream lost its frame boundaries: whatever comes is not looked at."""

    # What the conversation does with it.

    def _read_protocol_header(self, octets: bytes, events: list[Event]) -> int:
        """Look at the first octets of all; return how many of them are no frame."""
        raise NotImplementedError

    def _read_batches(self, data: bytes, position: int, events: list[Event]) -> int:
        """Try the readers of whole batches; return how far they came."""
        raise NotImplementedError

    def _frame(self, data: bytes, start: int, stop: int, events: list[Event]) -> None:
        """Take the frame that reaches from ``start`` to its end octet at ``stop``."""
        raise NotImplementedError

    def _fail(self, fault: ConnectionFault, events: list[Event]) -> None:
        """Close the connection for a fault of the peer."""
        raise NotImplementedError

    def _waits_for_owner(self, data: bytes, position: int) -> bool:
        """Whether the owner is to deal with the events before the frame at ``position`` is looked at."""
        return False

    def receive_data(self, data: Buffer, now: float) -> list[Event]:
        """Take bytes from the peer; return what they mean, in order."""
        return [event for events in self.receive_in_steps(data, now) for event in events]

    def receive_in_steps(self, data: Buffer, now: float) -> Iterator[list[Event]]:
        """The same, for an owner that deals with each step's events before it asks for the next.

        What a peer sends without waiting for answers is then answered in its order: a request before the close of
        its channel that came in the same bytes.
        """
        self._now = now
        self._heartbeats.received(now)
        if self._deaf or self.state is ConnectionState.CLOSED or not data:
            return
        chunk = data if type(data) is bytes else bytes(data)
        if self._pending:
            chunk = self._with_pending(chunk)
        position = 0
        while chunk:
            events: list[Event] = []
            position, whole = self._read(chunk, position, events)
            if whole:
                rest = chunk[position:]
                self._pending = [rest] if rest else []
                self._pending_size = len(rest)
                chunk = b""
            yield events

    def _with_pending(self, chunk: bytes) -> bytes:
        """Return all that is to be read now; nothing if a frame is still not whole."""
        self._pending.append(chunk)
        self._pending_size += len(chunk)
        return b"" if self._pending_size < self._needed else b"".join(self._pending)

    def _read(self, data: bytes, position: int, events: list[Event]) -> tuple[int, bool]:
        """Read whole frames; return where they end, and whether that is all for now: if not, the owner comes first.

        ``_needed`` says when to try again.
        """
        end = len(data)
        while self.state is not ConnectionState.CLOSED and not self._deaf:
            if end - position < 8:
                self._needed = 8
                return position, True
            try:
                if self.state in (ConnectionState.AWAITING_HEADER, ConnectionState.AWAITING_START):
                    taken = self._read_protocol_header(data[position : position + 8], events)
                    if taken:
                        position += taken
                        continue
                following = self._read_batches(data, position, events)
                if following == position:
                    following = self._frame_end(data, position)
                    if following > end:
                        self._needed = following - position
                        return position, True
                    if events and self._waits_for_owner(data, position):
                        return position, False
                    start, position = position, following
                    self._frame(data, start, following - 1, events)
                position = following
            except ConnectionFault as fault:
                self._fail(fault, events)
        return end, True

    def _frame_end(self, data: bytes, position: int) -> int:
        """Return the position after the frame, which may lie beyond the data."""
        kind, _, size = frames.frame_header.unpack_from(data, position)
        if kind not in (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT):
            self._deaf = True
            raise ConnectionFault(ReplyCode.FRAME_ERROR, f"unknown frame type {kind}")
        if self.frame_max and size > self.frame_max:  # as RabbitMQ: clients forget to count the overhead
            self._deaf = True
            text = f"a frame with {size} octets of payload is larger than frame_max {self.frame_max} allows"
            raise ConnectionFault(ReplyCode.FRAME_ERROR, text)
        following: int = position + frames.OVERHEAD + size
        if following <= len(data) and data[following - 1] != frames.END:
            self._deaf = True
            raise ConnectionFault(ReplyCode.FRAME_ERROR, f"frame end is {data[following - 1]:#04x}, not 0xce")
        return following
