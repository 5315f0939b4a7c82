"""FrameStream: splits the received bytes into frames, however the transport has cut them into chunks.

The rest of a chunk that ends inside a frame waits in a list.  The list is joined only when enough bytes have
come for the frame that begins there.  So each octet is copied a bounded number of times, even if the peer
sends single octets.

This class knows frame boundaries only.  ``Conversation`` derives from it and gives frames their meaning.
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
    """The receiving half of a conversation: chunks in, frames out to the methods of a subclass."""

    first_state: ClassVar[ConnectionState]

    def __init__(self, now: float) -> None:
        self.state = self.first_state
        self.frame_max = frames.INITIAL_FRAME_SIZE
        """Octets: the negotiated limit.  0: no limit."""
        self._now = now
        self._heartbeats = Heartbeats()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._needed = 0
        """Octets that must be pending before it is worth joining and reading them."""
        self._unsynchronized = False
        """The frame boundaries are lost: everything that still comes is ignored."""

    # Implemented by the conversation.

    def _read_protocol_header(self, octets: bytes, events: list[Event]) -> int:
        """Check the first octets of the connection; return how many of them do not belong to a frame."""
        raise NotImplementedError

    def _read_batches(self, data: bytes, position: int, events: list[Event]) -> int:
        """Read whole messages or acknowledgements at once where possible; return the position behind them."""
        raise NotImplementedError

    def _frame(self, data: bytes, start: int, stop: int, events: list[Event]) -> None:
        """Process the frame that begins at ``start`` and has its end octet at ``stop``."""
        raise NotImplementedError

    def _fail(self, fault: ConnectionFault, events: list[Event]) -> None:
        """Close the connection for a fault of the peer."""
        raise NotImplementedError

    def _waits_for_owner(self, data: bytes, position: int) -> bool:
        """Whether the owner must process the events so far before the frame at ``position`` is read."""
        return False

    def receive_data(self, data: Buffer, now: float) -> list[Event]:
        """Process bytes from the peer; return the events in order.  ``now``: seconds of the owner's clock."""
        return [event for events in self.receive_in_steps(data, now) for event in events]

    def receive_in_steps(self, data: Buffer, now: float) -> Iterator[list[Event]]:
        """As ``receive_data``, for an owner that processes the events of each step before the next step.

        A peer may send requests without waiting for answers.  With steps they are answered in order: a
        request, for example, before the close of its channel, even if both came in the same chunk.
        """
        self._now = now
        self._heartbeats.received(now)
        if self._unsynchronized or self.state is ConnectionState.CLOSED or not data:
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
        """Return everything that is pending, joined; nothing while the first frame is still incomplete."""
        self._pending.append(chunk)
        self._pending_size += len(chunk)
        return b"" if self._pending_size < self._needed else b"".join(self._pending)

    def _read(self, data: bytes, position: int, events: list[Event]) -> tuple[int, bool]:
        """Read whole frames; return the position behind the last one, and whether all whole frames were read.

        The second value is False when the owner must process the events before the next frame is read.
        Otherwise ``_needed`` is set to the octets that the next, incomplete frame has, as far as that is
        known.
        """
        end = len(data)
        while self.state is not ConnectionState.CLOSED and not self._unsynchronized:
            if end - position < 8:  # the smallest frame, and the length of the protocol header
                self._needed = 8
                return position, True
            try:
                if self.state in (ConnectionState.AWAITING_HEADER, ConnectionState.AWAITING_START):
                    taken = self._read_protocol_header(data[position : position + 8], events)
                    if taken:
                        position += taken
                        continue
                following = self._read_batches(data, position, events)
                if following == position:  # not a batch: read one frame
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
        """Return the position behind the frame, which may lie beyond the data; raise ``ConnectionFault``."""
        kind, _, size = frames.frame_header.unpack_from(data, position)
        if kind not in (frames.METHOD, frames.HEADER, frames.BODY, frames.HEARTBEAT):
            self._unsynchronized = True
            raise ConnectionFault(ReplyCode.FRAME_ERROR, f"unknown frame type {kind}")
        # The specification counts the overhead of a frame into frame_max.  RabbitMQ compares only the
        # payload, because clients forget the overhead, and so do we.
        if self.frame_max and size > self.frame_max:
            self._unsynchronized = True
            text = f"a frame with {size} octets of payload is larger than frame_max {self.frame_max} allows"
            raise ConnectionFault(ReplyCode.FRAME_ERROR, text)
        following: int = position + frames.OVERHEAD + size
        if following <= len(data) and data[following - 1] != frames.END:
            self._unsynchronized = True
            raise ConnectionFault(ReplyCode.FRAME_ERROR, f"frame end is {data[following - 1]:#04x}, not 0xce")
        return following
