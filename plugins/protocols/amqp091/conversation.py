"""Conversation: the part of an AMQP 0-9-1 connection that is the same for server and client.

How received bytes become events
--------------------------------

1. ``FrameStream.receive_data`` finds frame boundaries (``frame_stream.py``).
2. At each frame it first calls ``_read_batches``.  If the frame begins a message or an acknowledgement on an
   open connection, a batch reader takes as many of them as it can (``published_batches.py``,
   ``delivered_batches.py``, ``acknowledgements.py``).  Nearly all messages of a steady flow go this way.
3. Every other frame comes to ``_frame``.  Content goes to the message assembler (``message_assembler.py``).
   A method is checked against its sender, its channel and the state tables (``states.py``), decoded, and
   becomes an event or an answer.

Errors
------

Any of these steps may raise ``ConnectionFault`` for an error of the peer.  ``FrameStream._read`` catches it,
and ``_fail`` turns it into connection.close and a ConnectionClosed event.  It never reaches the owner.
Errors that concern one channel are for the owner to find, who calls ``close_channel``; the only one found
here is a content that is too large.

States
------

``self.state`` is the state of the connection, ``Channel.state`` that of a channel.  Both change only in
``_move`` or in ``Channel``, by the tables.  Two states drop what is received: CLOSING (this side has sent
close; only close and close-ok are processed) and CLOSED.  A channel that was closed stays in ``channels``:
what the owner still sends on it is dropped, whereas sending on a channel that was never opened is a mistake.

``ServerConnection`` and ``ClientConnection`` (``connection.py``) add the handshake and the messages of their
side.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Buffer
from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.acknowledgements import ACK, acknowledgement_frame, read_acknowledgements
from plugins.protocols.amqp091.channel import Channel
from plugins.protocols.amqp091.errors import ConnectionFault, MalformedField
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    Event,
    MethodReceived,
    Rejected,
)
from plugins.protocols.amqp091.frame_stream import FrameStream
from plugins.protocols.amqp091.message_assembler import MessageAssembler
from plugins.protocols.amqp091.message_encoder import MessageEncoder
from plugins.protocols.amqp091.methods import basic, channel, connection
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import CommonOptions
from plugins.protocols.amqp091.reply_codes import ReplyCode, reply_text
from plugins.protocols.amqp091.states import (
    CONNECTION,
    ChannelSignal,
    ChannelState,
    ConnectionSignal,
    ConnectionState,
    ContentState,
)

_OPEN_CHANNEL = ChannelState.OPEN


class Conversation(FrameStream):
    """One conversation.  All calls must come from one thread; none of them waits.

    Bytes in: ``receive_data``.  Bytes out: call ``data_to_send`` after any other call.  An error of the peer
    does not raise an exception: it is answered with channel.close or connection.close and reported as an
    event.  A mistake of the owner raises ``LocalProtocolError``.  What the owner sends on a channel or
    connection that has just ended is dropped silently, because the owner may not know of the end yet.
    """

    peer: ClassVar[str] = ""
    """What the other end is: "client" or "server"."""

    def __init__(self, options: CommonOptions, assembler: MessageAssembler, now: float) -> None:
        super().__init__(now)
        self.options = options
        self.channels: dict[int, Channel] = {}
        self.channel_max = options.channel_max
        """The highest channel number that was negotiated; 0 means no limit."""
        self.heartbeat = 0
        """The negotiated interval in seconds; 0 means none."""
        self._deadline: float | None = now + options.handshake_timeout
        self._out: list[Buffer] = []
        self._encoder = MessageEncoder(self._out, self.frame_max)
        self._assembler = assembler
        self._reported = False

    def __repr__(self) -> str:
        open_channels = sum(item.state is _OPEN_CHANNEL for item in self.channels.values())
        return f"<{type(self).__name__} {self.state.name}, {open_channels} channels open>"

    def receive_eof(self, now: float) -> list[Event]:
        """The peer has closed the wire: return ConnectionClosed, unless it was reported before."""
        self._now = now
        return self._lost("the peer hung up", by_peer=True)

    def _read_batches(self, data: bytes, position: int, events: list[Event]) -> int:
        """Let a batch reader read from ``position`` on; return the position behind what it has read."""
        if self.state is not ConnectionState.OPEN:
            return position
        ids = data[position + 7 : position + 11]  # class and method id, if this is a method frame
        if ids == self._assembler.batch_ids:
            return self._assembler.batches.read(data, position, events)
        if ids == ACK:
            item = self.channels.get(int.from_bytes(data[position + 1 : position + 3], "big"))
            if item is not None and item.state is _OPEN_CHANNEL and item.content_state is ContentState.METHOD:
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
        item = self._existing(number)
        if item.state is ChannelState.CLOSING:
            return
        too_large = self._assembler.frame(item, kind, payload, events)
        if too_large is not None:
            self.close_channel(number, ReplyCode.CONTENT_TOO_LARGE, too_large, 60, 40)
            text = reply_text(ReplyCode.CONTENT_TOO_LARGE, too_large)
            events.append(ChannelClosed(number, ReplyCode.CONTENT_TOO_LARGE, text, 60, 40, False))

    def _existing(self, number: int, class_id: int = 0, method_id: int = 0) -> Channel:
        if self.state is not ConnectionState.OPEN:
            raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, f"a frame on channel {number} before open-ok")
        item = self.channels.get(number)
        if item is None or item.state is ChannelState.CLOSED:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", class_id, method_id)
        return item

    def _method_frame(self, number: int, payload: bytes, frame: bytes, events: list[Event]) -> None:
        kind = frames.METHODS.get(payload[:4])
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
            item = self._existing(number, kind.class_id, kind.method_id)
            if item.state is ChannelState.CLOSING and kind not in (channel.Close, channel.CloseOk):
                return
            if item.content_state is not ContentState.METHOD:
                text = f"expected content {item.content_state.name.lower()}, got method {kind.name} instead"
                raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, text, kind.class_id, kind.method_id)
        try:
            method = self._assembler.known(frame) or kind.decode(payload)
        except (MalformedField, IndexError, struct.error) as problem:
            text = f"{kind.name}: {problem}"
            raise ConnectionFault(ReplyCode.SYNTAX_ERROR, text, kind.class_id, kind.method_id) from problem
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
        if self.state is not ConnectionState.OPEN:
            raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, "channel.open before connection.open-ok")
        item = self.channels.get(number)
        if item is None:
            if self.channel_max and number > self.channel_max:
                text = f"channel {number} is above the negotiated channel_max ({self.channel_max})"
                raise ConnectionFault(ReplyCode.NOT_ALLOWED, text, 20, 10)
            item = self.channels[number] = Channel(number)
        if item.state is ChannelState.CLOSING:
            return
        item.received(ChannelSignal.OPEN)
        item.sent(ChannelSignal.OPEN_OK)
        self._queue(number, channel.OpenOk())
        events.append(ChannelOpened(number))

    def _channel_method(self, item: Channel, method: Method, frame: bytes, events: list[Event]) -> None:
        number = item.number
        if isinstance(method, channel.Close):
            item.received(ChannelSignal.CLOSE_RECEIVED)
            self._assembler.forget(item)
            self._queue(number, channel.CloseOk())
            if item.state is ChannelState.CLOSED:
                cause = (method.class_id_of_cause, method.method_id_of_cause)
                events.append(ChannelClosed(number, method.reply_code, method.reply_text, *cause))
        elif isinstance(method, channel.CloseOk):
            item.received(ChannelSignal.CLOSE_OK)
            events.append(ChannelClosed(number, by_peer=False))
        elif isinstance(method, channel.OpenOk):
            item.received(ChannelSignal.OPEN_OK)
            events.append(ChannelOpened(number))
        elif item.state is not _OPEN_CHANNEL:
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, f"{method.name} before channel.open-ok")
        elif method.has_content:
            self._assembler.begin(item, method, frame)
        elif isinstance(method, basic.Ack):
            tag = method.delivery_tag
            events.append(Acknowledged(number, tag, tag, method.multiple))
        elif isinstance(method, basic.Nack):
            tag = method.delivery_tag
            events.append(Rejected(number, tag, tag, method.multiple, method.requeue, method.method_id))
        elif isinstance(method, basic.Reject):
            tag = method.delivery_tag
            events.append(Rejected(number, tag, tag, False, method.requeue, method.method_id))
        else:
            events.append(MethodReceived(number, method))

    def close_channel(
        self, channel_number: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel.  What still comes on it is dropped until the peer's close-ok.

        The name of the code is put in front of the text, as RabbitMQ does: ``NOT_FOUND - no queue ...``.
        ``class_id`` and ``method_id``: the method that caused it; 0: none did.
        """
        item = self._sendable(channel_number, ChannelState.OPEN, ChannelState.OPENING)
        if item is None:
            return
        item.sent(ChannelSignal.CLOSE_SENT)
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
        if isinstance(method, connection.Close):
            self._move(ConnectionSignal.CLOSE_RECEIVED)
            self._queue(0, connection.CloseOk())
            cause = (method.class_id_of_cause, method.method_id_of_cause)
            if self.state is ConnectionState.CLOSED:
                self._report(ConnectionClosed(method.reply_code, method.reply_text, *cause), events)
        elif isinstance(method, connection.CloseOk):
            self._received(ConnectionSignal.CLOSE_OK, method)
            self._report(ConnectionClosed(by_peer=False), events)
        elif not self._handshake_method(method, events):
            if self.state is not ConnectionState.OPEN:
                raise self._unexpected(method)
            events.append(MethodReceived(0, method))

    def _handshake_method(self, method: Method, events: list[Event]) -> bool:
        raise NotImplementedError

    def _received(self, signal: ConnectionSignal, method: Method) -> None:
        """Change the state for a method of the peer; raise ``ConnectionFault`` (503) if it is not allowed."""
        if (self.state, signal) not in CONNECTION:
            raise self._unexpected(method)
        self._move(signal)

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
        if following is ConnectionState.OPEN:
            self._deadline = None
            self._heartbeats.start(self.heartbeat, self._now)
        elif following is ConnectionState.CLOSED:
            self._deadline = None
            self._heartbeats.stop()

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection.  What still comes is dropped until close-ok or ``close_timeout``.

        The arguments are as for ``close_channel``.
        """
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        if self.state in (ConnectionState.AWAITING_HEADER, ConnectionState.AWAITING_START):
            self._move(ConnectionSignal.LOST)  # no method may be sent yet
            return
        self._move(ConnectionSignal.CLOSE_SENT)
        self._deadline = self._now + self.options.close_timeout
        method = connection.Close(
            reply_code=code,
            reply_text=reply_text(code, text),
            class_id_of_cause=class_id,
            method_id_of_cause=method_id,
        )
        self._queue(0, method)

    def closed(self) -> bool:
        """Whether the wire may be closed after ``data_to_send`` has been written."""
        return self.state is ConnectionState.CLOSED

    def _fail(self, fault: ConnectionFault, events: list[Event]) -> None:
        self.close(fault.reply_code, fault.text, fault.class_id, fault.method_id)
        text = reply_text(fault.reply_code, fault.text)
        self._report(ConnectionClosed(fault.reply_code, text, fault.class_id, fault.method_id, False), events)

    def _report(self, event: ConnectionClosed, events: list[Event]) -> None:
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
        if self._heartbeats.due(now) and not self._out:
            self._out.append(frames.HEARTBEAT_FRAME)
        return []

    def is_not_read(self, now: float) -> None:
        """The owner does not read the wire now: restart the time after which a silent peer counts as lost."""
        self._heartbeats.received(now)

    # Bytes out.

    def data_to_send(self) -> list[Buffer]:
        """Return the buffers that have to be written, and forget them."""
        out = self._out[:]
        if out:
            self._out.clear()
            self._heartbeats.sent()
        return out

    def send_method(self, channel_number: int, method: Method) -> None:
        """Send a method without content (queue.declare-ok, confirm.select ...)."""
        if method.has_content:
            raise LocalProtocolError(f"{method.name} carries a message: there is a call for it")
        if channel_number == 0:
            if self.state is ConnectionState.OPEN:
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
            if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
                return None
            raise LocalProtocolError(f"channel {number} was never opened")
        if self.state is not ConnectionState.OPEN or item.state not in (states or (_OPEN_CHANNEL,)):
            return None
        return item

    def _queue(self, number: int, method: Method) -> None:
        self._out.append(frames.method_frame(number, method.encode()))

    def _set_limits(self, channel_max: int, frame_max: int, heartbeat: int) -> None:
        """Set the limits that connection.tune-ok has fixed."""
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        self._encoder.limit_frames(frame_max)
        self._assembler.limit_frames(frame_max)
