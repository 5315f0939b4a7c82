"""Conversation: the part of an AMQP 0-9-1 connection that is the same for server and client.

How received bytes become events
--------------------------------

1. ``receive_in_steps`` gives the chunk to the ``FrameBuffer``, which returns data that begins at a frame.
2. At each frame ``_read`` first calls ``_read_batches``.  If the frame begins a message or an acknowledgement
   on an open connection, a batch reader takes as many of them as it can (``published_batches.py``,
   ``delivered_batches.py``, ``acknowledgements.py``).  Nearly all messages of a steady flow go this way.
3. Every other frame comes to ``_frame``.  Content goes to the message assembler (``message_assembler.py``).
   A method is checked against its sender, its channel and the state tables (``states.py``) and decoded.
4. A table says what a method means: ``_channel_steps`` and ``connection_steps`` for methods that change a
   state, ``_EVENTS`` for acknowledgements.  Any other method is for the owner: ``MethodReceived``.

Errors
------

Any of these steps may raise ``ConnectionFault`` for an error of the peer.  ``_read`` catches it, and
``_fail`` turns it into connection.close and a ConnectionClosed event.  It never reaches the owner.  Errors
that concern one channel are for the owner to find, who calls ``close_channel``; the only one found here is a
content that is too large.

States
------

``self.state`` is the state of the connection, ``Channel.state`` that of a channel.  Both change only in
``_move`` or in ``Channel``, by the tables.  Two states drop what is received: CLOSING (this side has sent
close; only close and close-ok are processed) and CLOSED.  A channel that was closed stays in ``channels``:
what the owner still sends on it is dropped, whereas sending on a channel that was never opened is a mistake.

Server and client
-----------------

``ServerConnection`` and ``ClientConnection`` (``connection.py``) derive from this class.  They add the
handshake of their side as more rows of ``connection_steps``, and the calls that send messages.  Everything
else is composed: the buffer of frames, the heartbeats, the assembler and the encoder know nothing of the
conversation that owns them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.amqp091 import frames, version_0_8
from plugins.protocols.amqp091.acknowledgements import (
    ACK,
    acknowledgement_frame,
    read_acknowledgements,
)
from plugins.protocols.amqp091.channel import Channel
from plugins.protocols.amqp091.errors import BoundariesLost, ConnectionFault, MalformedField
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    Event,
    MethodReceived,
    Rejected,
)
from plugins.protocols.amqp091.frame_buffer import FrameBuffer, frame_end
from plugins.protocols.amqp091.heartbeats import Heartbeats
from plugins.protocols.amqp091.message_assembler import MessageAssembler
from plugins.protocols.amqp091.message_encoder import MessageEncoder
from plugins.protocols.amqp091.methods import basic, channel, connection
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import CommonOptions
from plugins.protocols.amqp091.reply_codes import ReplyCode, reply_text
from plugins.protocols.amqp091.states import (
    CHANNEL_CLOSING,
    CHANNEL_OPEN,
    CONNECTION,
    CONNECTION_CLOSED,
    CONNECTION_OPEN,
    EXPECTS_METHOD,
    ChannelSignal,
    ChannelState,
    ConnectionSignal,
    ConnectionState,
)

_BEFORE_THE_FIRST_FRAME = (ConnectionState.AWAITING_HEADER, ConnectionState.AWAITING_START)
"""In these states the peer may send a protocol header."""

ConnectionStep: TypeAlias = tuple[ConnectionSignal, Callable[[Any, Any, list[Event]], None]]
"""What a method on channel 0 does: the signal that changes the state, and then a method of the conversation,
which gets the conversation, the decoded method and the list of events."""

ChannelStep: TypeAlias = tuple[ChannelSignal, Callable[[Any, Channel, Any, list[Event]], None]]
"""The same for a method on another channel; the method of the conversation also gets the channel."""


class Conversation(ABC):
    """One conversation.  All calls must come from one thread; none of them waits.

    Bytes in: ``receive_data``.  Bytes out: call ``data_to_send`` after any other call.  An error of the peer
    does not raise an exception: it is answered with channel.close or connection.close and reported as an
    event.  A mistake of the owner raises ``LocalProtocolError``.  What the owner sends on a channel or
    connection that has just ended is dropped silently, because the owner may not know of the end yet.
    """

    peer: ClassVar[str] = ""
    """What the other end is: "client" or "server"."""
    silent_intervals: ClassVar[int] = 2
    """Intervals of the heartbeat after which a silent peer counts as lost (section 4.2.7)."""

    def __init__(self, options: CommonOptions, assembler: MessageAssembler, now: float) -> None:
        self.options = options
        self.speaks_0_8 = False
        """Whether this is a server whose client has asked for AMQP 0-8."""
        self.state = ConnectionState.AWAITING_HEADER
        self.channels: dict[int, Channel] = {}
        self.channel_max = options.channel_max
        """The highest channel number that was negotiated; 0 means no limit."""
        self.frame_max = frames.INITIAL_FRAME_SIZE
        """Octets: the negotiated limit.  0: no limit."""
        self.heartbeat = 0
        """The negotiated interval in seconds; 0 means none."""
        self.closed_with: str = ""
        """Code and text with which this side has closed the connection; empty: it has not."""
        self._now = now
        self._deadline: float | None = now + options.handshake_timeout
        """When the handshake, and later the closing, must be over.  None: neither is going on."""
        self._heartbeats = Heartbeats(self.silent_intervals)
        self._buffer = FrameBuffer()
        self._boundaries_lost = False
        """Nobody knows where the next frame begins: everything that still comes is ignored."""
        self._out: list[Buffer] = []
        # The encoder appends to the same list, so that messages and methods stay in order.
        self._encoder = MessageEncoder(self._out, self.frame_max)
        self._assembler = assembler
        self._reported = False

    def __repr__(self) -> str:
        open_channels = sum(item.state is CHANNEL_OPEN for item in self.channels.values())
        return f"<{type(self).__name__} {self.state.name}, {open_channels} channels open>"

    # Bytes in.

    def receive_data(self, data: Buffer, now: float) -> list[Event]:
        """Process bytes from the peer; return the events in order.  ``now``: seconds of the owner's clock."""
        return [event for events in self.receive_in_steps(data, now) for event in events]

    def receive_in_steps(self, data: Buffer, now: float) -> Iterator[list[Event]]:
        """As ``receive_data``, for an owner that processes the events of each step before the next step.

        A peer may send requests without waiting for answers.  With steps they are answered in order: a
        request, for example, before the close of its channel, even if both came in the same chunk.
        """
        self._now = now
        self._heartbeats.last_received = now
        if self._boundaries_lost or self.state is CONNECTION_CLOSED or not data:
            return
        # ``bytes``: slices of it become bodies, which outlive the buffer of the reader, and keys of
        # templates, which have to be hashable.
        if type(data) is not bytes:
            data = bytes(data)
        # Mostly the chunk before ended with a frame, and nothing has to be joined.
        if self._buffer.chunks:
            data = self._buffer.add(data)
        position = 0
        while data:
            events: list[Event] = []
            position, needed = self._read(data, position, events)
            if needed:
                if position < len(data):
                    self._buffer.keep(data[position:], needed)
                data = b""
            yield events

    def receive_eof(self, now: float) -> list[Event]:
        """The peer has closed the wire: return ConnectionClosed, unless it was reported before."""
        self._now = now
        return self._lost("the peer hung up", by_peer=True)

    def _read(self, data: bytes, position: int, events: list[Event]) -> tuple[int, int]:
        """Read whole frames; return the position behind the last one, and how many octets the next one needs.

        The second value is 0 when the owner must process the events before the next frame is read.
        """
        end = len(data)
        # Each frame may close the connection, so the state is looked at again in front of every frame.
        while self.state is not CONNECTION_CLOSED and not self._boundaries_lost:
            # Eight octets: the smallest frame, and the length of the protocol header.
            if end - position < 8:
                return position, 8
            try:
                if self.state in _BEFORE_THE_FIRST_FRAME:
                    taken = self._read_protocol_header(data[position : position + 8], events)
                    if taken:
                        position += taken
                        continue
                following = self._read_batches(data, position, events)
                # Not a batch: read one frame.
                if following == position:
                    following = frame_end(data, position, self.frame_max)
                    if following > end:
                        return position, following - position
                    if events and self._waits_for_owner(data, position):
                        return position, 0
                    # Move behind the frame first: if it is at fault, reading goes on with the next one, in
                    # which the peer may answer the close.
                    start, position = position, following
                    self._frame(data, start, following - 1, events)
                position = following
            except BoundariesLost as fault:
                # Section 4.2.3 has the connection closed without another octet.  We send close (501) first,
                # so that the peer can report what was wrong.  Its close-ok cannot be read any more, so the
                # conversation ends at the deadline of the close.
                self._boundaries_lost = True
                self._fail(fault, events)
            except ConnectionFault as fault:
                self._fail(fault, events)
        return end, 8

    @abstractmethod
    def _read_protocol_header(self, octets: bytes, events: list[Event]) -> int:
        """Check the first octets of the connection; return how many of them do not belong to a frame."""

    def _waits_for_owner(self, data: bytes, position: int) -> bool:
        """Whether the owner must process the events so far before the frame at ``position`` is read."""
        return False

    def _read_batches(self, data: bytes, position: int, events: list[Event]) -> int:
        """Let a batch reader read from ``position`` on; return the position behind what it has read."""
        if self.state is not CONNECTION_OPEN:
            return position
        # The type of the frame is not looked at here.  A body frame may begin with the same four octets, but
        # the readers compare the header of the frame, too, and take nothing of it.
        ids = data[position + 7 : position + 11]  # class and method id
        if ids == self._assembler.batch_ids:
            return self._assembler.batches.read(data, position, events)
        if ids == ACK:
            item = self.channels.get(int.from_bytes(data[position + 1 : position + 3], "big"))
            # The reader of acknowledgements has no templates, so the state of the channel is checked here.
            if item is not None and item.state is CHANNEL_OPEN and item.content_state is EXPECTS_METHOD:
                return read_acknowledgements(data, position, item.number, events)
        return position

    # Frames.

    def _frame(self, data: bytes, start: int, stop: int, events: list[Event]) -> None:
        kind, number, _ = frames.frame_header.unpack_from(data, start)
        payload = data[start + 7 : stop]
        if kind == frames.HEARTBEAT:
            # Section 4.2.7: a heartbeat on a channel other than zero is 501.
            if number or payload:
                raise ConnectionFault(ReplyCode.FRAME_ERROR, "a heartbeat has channel 0 and no payload")
            return
        if kind == frames.METHOD:
            self._method_frame(number, payload, data[start : stop + 1], events)
            return
        if self.state is ConnectionState.CLOSING:
            return
        if number == 0:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "content on channel 0")
        item = self._existing(
            number, ReplyCode.UNEXPECTED_FRAME, "expected method frame, got non method frame instead"
        )
        # What comes on a channel after our close belongs to the time before the peer has read it.
        if item.state is CHANNEL_CLOSING:
            return
        method = item.method
        too_large = self._assembler.frame(item, kind, payload, events)
        # 311 is a soft error, so it closes only the channel.  The body frames of the message still come; they
        # are dropped above, because the channel is CLOSING.
        if too_large is not None and method is not None:
            cause = (method.class_id, method.method_id)
            self.close_channel(number, ReplyCode.CONTENT_TOO_LARGE, too_large, *cause)
            text = reply_text(ReplyCode.CONTENT_TOO_LARGE, too_large)
            events.append(ChannelClosed(number, ReplyCode.CONTENT_TOO_LARGE, text, *cause, False))

    def _existing(self, number: int, code: int, text: str, class_id: int = 0, method_id: int = 0) -> Channel:
        """Return an open or closing channel; raise ``ConnectionFault`` with this code and text otherwise."""
        if self.state is not CONNECTION_OPEN:
            raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, f"a frame on channel {number} before open-ok")
        item = self.channels.get(number)
        if item is None or item.state is ChannelState.CLOSED:
            raise ConnectionFault(code, text, class_id, method_id)
        return item

    def _method_frame(self, number: int, payload: bytes, frame: bytes, events: list[Event]) -> None:
        kind = (version_0_8 if self.speaks_0_8 else frames).METHODS.get(payload[:4])
        # Rule "stability" of connection.close: after sending it, everything except close and close-ok is
        # dropped.  The peer may have sent it before it read our close.
        if self.state is ConnectionState.CLOSING and kind not in (connection.Close, connection.CloseOk):
            return
        if kind is None:
            if len(payload) < 4:
                raise ConnectionFault(ReplyCode.SYNTAX_ERROR, "a method frame without method")
            class_id, method_id = struct.unpack_from(">HH", payload)
            text = f"unknown method {class_id}.{method_id}"
            raise ConnectionFault(ReplyCode.NOT_IMPLEMENTED, text, class_id, method_id)
        self._check_sender_and_channel(kind, number)
        item: Channel | None = None
        if number and kind is not channel.Open:
            ids = (kind.class_id, kind.method_id)
            item = self._existing(number, ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", *ids)
            if item.state is CHANNEL_CLOSING and kind not in (channel.Close, channel.CloseOk):
                return
            # Section 4.2.6 lets a sender abort a content by sending a method.  RabbitMQ answers 505 all the
            # same, and so do we.
            if item.content_state is not EXPECTS_METHOD:
                raise item.unexpected()
        try:
            # A publisher whose messages the batch reader cannot take, for example because they have several
            # body frames, sends the same method frame each time.  Finding it costs less than decoding it.
            method = self._assembler.known(frame) or kind.decode(payload)
        except (MalformedField, IndexError, struct.error) as problem:
            text = f"{kind.name}: {problem}"
            raise ConnectionFault(ReplyCode.SYNTAX_ERROR, text, kind.class_id, kind.method_id) from problem
        # The ids of class connection and channel 0 belong together, see ``_check_sender_and_channel``.
        if not number:
            self._connection_method(method, events)
        elif item is None:
            self._channel_opening(number, events)
        else:
            self._channel_method(item, method, frame, events)

    def _check_sender_and_channel(self, kind: type[Method], number: int) -> None:
        """Raise ``ConnectionFault`` if this peer may never send this method, or not on this channel."""
        ids = (kind.class_id, kind.method_id)
        if kind.sent_by not in ("both", self.peer):
            raise ConnectionFault(
                ReplyCode.COMMAND_INVALID, f"{kind.name} is not for a {self.peer} to send", *ids
            )
        if number and kind.class_id == connection.Start.class_id:
            raise ConnectionFault(ReplyCode.COMMAND_INVALID, f"{kind.name} belongs on channel 0", *ids)
        if not number and kind.class_id != connection.Start.class_id:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, f"{kind.name} on channel 0", *ids)

    # Channels.

    def _channel_opening(self, number: int, events: list[Event]) -> None:
        """Process channel.open.  Only a server gets here: a client refuses it in the check of the sender."""
        if self.state is not CONNECTION_OPEN:
            raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, "channel.open before connection.open-ok")
        item = self.channels.get(number)
        if item is None:
            self._check_channel_count()
            item = self.channels[number] = Channel(number)
        # The peer has not answered our close yet: whatever else it sends on this channel is dropped.
        if item.state is CHANNEL_CLOSING:
            return
        # Both signals go through the table: a second channel.open on an open channel raises 504.
        item.received(ChannelSignal.OPEN)
        item.sent(ChannelSignal.OPEN_OK)
        self._queue(number, channel.OpenOk())
        events.append(ChannelOpened(number))

    def _check_channel_count(self) -> None:
        """Raise ``ConnectionFault`` if as many channels are open as were negotiated.

        As in RabbitMQ, the limit is for their number.  A client may give them any numbers.
        """
        most = self.channel_max
        # Those that were closed are in the table as well.
        if most and len(self.channels) >= most:
            opened = sum(item.state is not ChannelState.CLOSED for item in self.channels.values())
            if opened >= most:
                text = f"number of channels opened ({opened}) has reached the negotiated channel_max ({most})"
                raise ConnectionFault(ReplyCode.NOT_ALLOWED, text, 20, 10)

    def _channel_method(self, item: Channel, method: Method, frame: bytes, events: list[Event]) -> None:
        kind = type(method)
        step = self._channel_steps.get(kind)
        if step is not None:
            signal, process = step
            item.received(signal)
            process(self, item, method, events)
            return
        if item.state is not CHANNEL_OPEN:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, f"{method.name} before channel.open-ok")
        if method.has_content:
            self._assembler.begin(item, method, frame)
            return
        events.append(_EVENTS.get(kind, MethodReceived)(item.number, method))

    def _channel_opened(self, item: Channel, method: channel.OpenOk, events: list[Event]) -> None:
        events.append(ChannelOpened(item.number))

    def _channel_closed(self, item: Channel, method: channel.Close, events: list[Event]) -> None:
        self._assembler.forget(item)
        self._queue(item.number, channel.CloseOk())
        # If both sides have sent close, the channel is CLOSING still: it ends with the peer's close-ok.
        if item.state is ChannelState.CLOSED:
            cause = (method.class_id_of_cause, method.method_id_of_cause)
            events.append(ChannelClosed(item.number, method.reply_code, method.reply_text, *cause))

    def _channel_close_answered(self, item: Channel, method: channel.CloseOk, events: list[Event]) -> None:
        events.append(ChannelClosed(item.number, by_peer=False))

    _channel_steps: ClassVar[Mapping[type[Method], ChannelStep]] = {
        channel.OpenOk: (ChannelSignal.OPEN_OK, _channel_opened),
        channel.Close: (ChannelSignal.CLOSE_RECEIVED, _channel_closed),
        channel.CloseOk: (ChannelSignal.CLOSE_OK, _channel_close_answered),
    }
    """The methods that change the state of a channel which exists.  channel.open makes one, see above."""

    def close_channel(
        self, channel_number: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel.  What still comes on it is dropped until the peer's close-ok.

        The name of the code is put in front of the text, as RabbitMQ does: ``NOT_FOUND - no queue ...``.
        ``class_id`` and ``method_id``: the method that caused it; 0: none did.
        """
        # A client may close a channel that the server has not opened yet.
        item = self._sendable(channel_number, CHANNEL_OPEN, ChannelState.OPENING)
        if item is None:
            return
        item.sent(ChannelSignal.CLOSE_SENT)
        # Templates do not check the state of the channel.  Without this the batch reader would go on taking
        # messages that have to be dropped.
        self._assembler.forget(item)
        method = channel.Close(
            reply_code=code,
            reply_text=reply_text(code, text),
            class_id_of_cause=class_id,
            method_id_of_cause=method_id,
        )
        self._queue(channel_number, method)

    # The connection.

    def _connection_method(self, method: Method, events: list[Event]) -> None:
        step = self.connection_steps.get(type(method))
        if step is not None:
            signal, process = step
            if (self.state, signal) not in CONNECTION:
                raise self._unexpected(method)
            self._move(signal)
            process(self, method, events)
        elif self.state is CONNECTION_OPEN:
            events.append(MethodReceived(0, method))
        else:
            raise self._unexpected(method)

    def _closed_by_peer(self, method: connection.Close, events: list[Event]) -> None:
        self._queue(0, connection.CloseOk())
        # If both sides have sent close, the connection is CLOSING still: it ends with the peer's close-ok.
        if self.state is CONNECTION_CLOSED:
            cause = (method.class_id_of_cause, method.method_id_of_cause)
            self._report(ConnectionClosed(method.reply_code, method.reply_text, *cause), events)

    def _close_answered(self, method: connection.CloseOk, events: list[Event]) -> None:
        self._report(ConnectionClosed(by_peer=False), events)

    connection_steps: ClassVar[Mapping[type[Method], ConnectionStep]] = {
        connection.Close: (ConnectionSignal.CLOSE_RECEIVED, _closed_by_peer),
        connection.CloseOk: (ConnectionSignal.CLOSE_OK, _close_answered),
    }
    """The methods on channel 0 that change the state of the connection.  Each side adds its handshake."""

    def _unexpected(self, method: Method) -> ConnectionFault:
        text = f"unexpected method {method.name} in connection state {self.state.name}"
        return ConnectionFault(ReplyCode.COMMAND_INVALID, text, method.class_id, method.method_id)

    def _move(self, signal: ConnectionSignal) -> None:
        following = CONNECTION.get((self.state, signal))
        if following is None:
            raise LocalProtocolError(
                f"the connection is {self.state.name}: {signal.value} is not allowed now"
            )
        self.state = following
        if following is CONNECTION_OPEN:
            self._deadline = None
            # Heartbeats begin only now.  Until then the deadline of the handshake covers a silent peer.
            self._heartbeats.start(self.heartbeat, self._now)
        elif following in (ConnectionState.CLOSING, CONNECTION_CLOSED):
            # Not left to the collection of garbage: connections and their owners refer to each other, and
            # the bodies may be large.
            for number in list(self._assembler.incomplete):
                self._assembler.forget(self.channels[number])
            if following is CONNECTION_CLOSED:
                self._deadline = None
                self._heartbeats.stop()

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection.  What still comes is dropped until close-ok or ``close_timeout``.

        The arguments are as for ``close_channel``.
        """
        if self.state in (ConnectionState.CLOSING, CONNECTION_CLOSED):
            return
        if self.state in _BEFORE_THE_FIRST_FRAME:
            # No method may be sent before connection.start (grammar of class connection).
            self._move(ConnectionSignal.LOST)
            return
        self._move(ConnectionSignal.CLOSE_SENT)
        self._deadline = self._now + self.options.close_timeout
        text = reply_text(code, text)
        self.closed_with = f"{code} {text}"
        method = connection.Close(
            reply_code=code,
            reply_text=text,
            class_id_of_cause=class_id,
            method_id_of_cause=method_id,
        )
        self._queue(0, method)

    def closed(self) -> bool:
        """Whether the wire may be closed after ``data_to_send`` has been written."""
        return self.state is CONNECTION_CLOSED

    def _fail(self, fault: ConnectionFault, events: list[Event]) -> None:
        self.close(fault.reply_code, fault.text, fault.class_id, fault.method_id)
        text = reply_text(fault.reply_code, fault.text)
        # The owner learns of the end now, and not when close-ok comes: nothing that it could use comes any
        # more.
        self._report(ConnectionClosed(fault.reply_code, text, fault.class_id, fault.method_id, False), events)

    def _report(self, event: ConnectionClosed, events: list[Event]) -> None:
        # Once: after an error, close-ok and the end of the wire still come, and each of them comes here.
        if not self._reported:
            self._reported = True
            events.append(event)

    def _lost(self, text: str, *, by_peer: bool) -> list[Event]:
        events: list[Event] = []
        self._move(ConnectionSignal.LOST)
        self._report(ConnectionClosed(0, text, by_peer=by_peer), events)
        return events

    # Time.

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout``; None: never."""
        heartbeat = self._heartbeats.next_deadline()
        if self._deadline is None or heartbeat is None:
            return heartbeat if self._deadline is None else self._deadline
        return min(self._deadline, heartbeat)

    def handle_timeout(self, now: float) -> list[Event]:
        """Do what is due: send a heartbeat, or end the connection because the peer is silent or too slow."""
        self._now = now
        if self._deadline is not None and now >= self._deadline:
            closing = self.state is ConnectionState.CLOSING
            return self._lost("no close-ok in time" if closing else "handshake timeout", by_peer=False)
        if self._heartbeats.peer_is_silent(now):
            return self._lost(f"missed heartbeats from the peer, timeout {self.heartbeat}s", by_peer=False)
        # ``due`` is called first, because it also sets the time of the next check.  If octets wait to be
        # sent, they are the sign of life: section 4.2.7 takes any octet for one.
        if self._heartbeats.due(now) and not self._out:
            self._out.append(frames.HEARTBEAT_FRAME)
        return []

    def is_not_read(self, now: float) -> None:
        """The owner does not read the wire now: restart the time after which a silent peer counts as lost."""
        self._heartbeats.last_received = now

    @property
    def incomplete(self) -> Collection[int]:
        """The channels in the middle of a message.  It is always the same object."""
        return self._assembler.incomplete

    def incomplete_bytes(self) -> int:
        """Return how many octets there are of bodies that are not complete."""
        incomplete = [self.channels[number] for number in self._assembler.incomplete]
        return sum(item.size - item.remaining for item in incomplete)

    # Bytes out.

    def data_to_send(self) -> list[Buffer]:
        """Return the buffers that have to be written, and forget them."""
        # A copy, and ``clear`` instead of a new list: the encoder appends to this same list.
        out = self._out[:]
        if out:
            self._out.clear()
            self._heartbeats.sent += 1
        return out

    def send_method(self, channel_number: int, method: Method) -> None:
        """Send a method without content (queue.declare-ok, confirm.select ...)."""
        if method.has_content:
            raise LocalProtocolError(f"{method.name} carries a message: there is a call for it")
        # An owner sends only notices on channel 0, such as connection.blocked.  One that comes before open-ok
        # or after close is dropped, because it concerns an open connection.
        if channel_number == 0:
            if self.state is CONNECTION_OPEN:
                self._queue(0, method)
            return
        if self._sendable(channel_number) is not None:
            self._queue(channel_number, method)

    def send_acknowledgement(self, channel_number: int, delivery_tag: int, *, multiple: bool = False) -> None:
        """Send basic.ack, from a consumer or as a publisher confirm, without making a ``Method``."""
        if self._sendable(channel_number) is not None:
            self._out.append(acknowledgement_frame(channel_number, delivery_tag, multiple))

    def _sendable(self, number: int, *states: ChannelState) -> Channel | None:
        """Return the channel if it is in one of these states (default: open); None if it has ended.

        Raises ``LocalProtocolError`` if it was never opened.
        """
        item = self.channels.get(number)
        if item is None:
            if self.state in (ConnectionState.CLOSING, CONNECTION_CLOSED):
                return None
            raise LocalProtocolError(f"channel {number} was never opened")
        if self.state is not CONNECTION_OPEN or item.state not in (states or (CHANNEL_OPEN,)):
            return None
        return item

    def _queue(self, number: int, method: Method) -> None:
        payload = version_0_8.encode(method) if self.speaks_0_8 else method.encode()
        self._out.append(frames.method_frame(number, payload))

    def _set_limits(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        """Set the limits that connection.tune-ok has fixed."""
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        self._encoder.limit_frames(frame_max)
        self._assembler.limit_frames(frame_max)


def _acknowledged(number: int, method: basic.Ack) -> Event:
    return Acknowledged(number, method.delivery_tag, method.delivery_tag, method.multiple)


def _rejected(number: int, method: basic.Nack | basic.Reject) -> Event:
    tag = method.delivery_tag
    # basic.reject has no multiple: RabbitMQ added basic.nack for that.
    multiple = isinstance(method, basic.Nack) and method.multiple
    return Rejected(number, tag, tag, multiple, method.requeue, method.method_id)


_EVENTS: dict[type[Method], Callable[[int, Any], Event]] = {
    basic.Ack: _acknowledged,
    basic.Nack: _rejected,
    basic.Reject: _rejected,
}
"""The methods that have an event of their own.  All others are reported as they are."""
