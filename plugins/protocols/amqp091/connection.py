"""ServerConnection and ClientConnection: the two sides of an AMQP 0-9-1 conversation (sans-I/O).

How a connection is opened
--------------------------
Both sides go through the same states (``states.py``); the right column is the state after a step::

    client                     server
    protocol header     -->                   AWAITING_START
                        <--    start          AWAITING_START_OK
    start-ok            -->                   LOGIN
                        <--    secure         AWAITING_SECURE_OK    these two as often as
    secure-ok           -->                   LOGIN                 the mechanism needs them
                        <--    tune           AWAITING_TUNE_OK
    tune-ok             -->                   AWAITING_OPEN
    open                -->                   OPENING
                        <--    open-ok        OPEN

Two decisions are not made here: who may log in (LOGIN), and whether there is such a virtual host (OPENING).
The server's owner makes them, at once or later, and calls ``accept_login`` and ``accept_open``.  The client
decides nothing and goes on by itself; only the answer to a challenge comes from its owner.

A side that is not content closes the connection, at any of these steps.  The specification often has the wire
closed without a word there.  As RabbitMQ does, we send connection.close with the reason where a method may be
sent at all; a refused login is special (``refuse_login``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.protocols.amqp091 import acknowledgements, frames, version_0_8
from plugins.protocols.amqp091.channel import Channel
from plugins.protocols.amqp091.conversation import Conversation
from plugins.protocols.amqp091.errors import ConnectionFault
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChallengeAnswered,
    ChallengeReceived,
    ConnectionOpened,
    Event,
    LoginRequested,
    OpenRequested,
    Published,
    Rejected,
)
from plugins.protocols.amqp091.field_tables import NO_ARGUMENTS
from plugins.protocols.amqp091.message_assembler import ClientAssembler, ServerAssembler
from plugins.protocols.amqp091.message_encoder import Delivery, NotCarried
from plugins.protocols.amqp091.methods import channel, connection
from plugins.protocols.amqp091.options import ClientOptions, CommonOptions, ServerOptions
from plugins.protocols.amqp091.reply_codes import ReplyCode
from plugins.protocols.amqp091.states import (
    CHANNEL_OPEN,
    CONNECTION_CLOSED,
    CONNECTION_OPEN,
    EXPECTS_METHOD,
    ChannelSignal,
    ConnectionSignal,
    ConnectionState,
)

SERVER_CAPABILITIES: dict[str, bool] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
"""What RabbitMQ 3.10 announces.  Clients check it before they use an extension."""

CLIENT_CAPABILITIES: dict[str, bool] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


def _properties(options: CommonOptions, capabilities: dict[str, bool]) -> dict[str, Any]:
    # ``capabilities`` is RabbitMQ's: a table of the extensions that a side understands.  What the options
    # have replaces ours.
    own = {"product": options.product, "version": options.version, "platform": "Python"}
    return {**own, "capabilities": capabilities, **options.properties}


_CLOSES = (b"\x00\x14\x00\x28", b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x3c")
"""Class and method ids of channel.close and connection.close, also that of 0-8.

What came before them must be answered first: an answer on a channel that has ended would be dropped."""

_OWNER_DECIDES = (ConnectionState.LOGIN, ConnectionState.OPENING)
"""In these states the answer of the owner decides whether the next frame is allowed."""


class ServerConnection(Conversation):
    """The server's side of a connection.

    Events in their usual order: LoginRequested (answer with accept_login, refuse_login or challenge),
    OpenRequested (answer with accept_open, or close with 530), ChannelOpened, MethodReceived, Published ...
    """

    peer: ClassVar[str] = "client"
    silent_intervals: ClassVar[int] = 3
    """RabbitMQ gives a silent client up after two to three intervals, and clients are used to it: some send a
    heartbeat late."""

    def __init__(self, options: ServerOptions, now: float) -> None:
        assembler = ServerAssembler(options.max_body_size)
        super().__init__(options, assembler, now)
        self._published = assembler.batches
        self._server_options = options
        self.client_properties: Mapping[str, Any] = NO_ARGUMENTS

    def accept_keyed(self) -> None:
        """From now on report messages that differ in their keys together: as ``PublishedUnderKeys``."""
        self._published.accept_keyed()

    def receive_alone(self, data: bytes, now: float) -> Acknowledged | Published | Rejected | None:
        """Process a chunk that is one message of a known flow, or settles one, and nothing else.

        Return the only event that ``receive_data`` would.  None: it is something else, and nothing was read.
        Clients that work message by message send such chunks only, and these need no loop, no list of events
        and no look at what waits for the owner.
        """
        # In the middle of a frame, these octets are a part of it.
        if self.state is not CONNECTION_OPEN or self._buffer.chunks:
            return None
        event: Acknowledged | Published | Rejected | None = None
        if len(data) > acknowledgements.FRAME_SIZE:
            event = self._published.read_alone(data)
        elif len(data) == acknowledgements.FRAME_SIZE:
            event = self._settled_alone(data)
        if event is not None:
            self._now = now
            self._heartbeats.last_received = now
        return event

    def _settled_alone(self, data: bytes) -> Acknowledged | Rejected | None:
        event = acknowledgements.read_alone(data)
        if event is None:
            return None
        item = self.channels.get(event.channel)
        if item is None or item.state is not CHANNEL_OPEN or item.content_state is not EXPECTS_METHOD:
            return None
        return event

    def _waits_for_owner(self, data: bytes, position: int) -> bool:
        return data[position + 7 : position + 11] in _CLOSES or self.state in _OWNER_DECIDES

    def _read_protocol_header(self, octets: bytes, events: list[Event]) -> int:
        version = frames.ACCEPTED_HEADERS.get(octets)
        if version is None:
            # Section 4.2.2: answer with a protocol header that is supported, and close the wire.
            self._out.append(frames.PROTOCOL_HEADER)
            events += self._lost(f"the protocol header {octets!r} is not that of AMQP 0-9-1", by_peer=False)
            return len(octets)
        self.speaks_0_8 = octets == version_0_8.HEADER
        # Two steps at once: nobody has to decide anything between the header and start.
        self._move(ConnectionSignal.HEADER)
        self._queue(
            0,
            connection.Start(
                version_major=version[0],
                version_minor=version[1],
                server_properties=_properties(self.options, SERVER_CAPABILITIES),
                mechanisms=" ".join(self._server_options.mechanisms).encode(),
                locales=" ".join(self._server_options.locales).encode(),
            ),
        )
        self._move(ConnectionSignal.START)
        return len(octets)

    def _start_ok(self, method: connection.StartOk, events: list[Event]) -> None:
        self.client_properties = method.client_properties
        if method.mechanism not in self._server_options.mechanisms:
            # Rule "validity" of start-ok has the server close the wire without another octet.  We send close
            # first, so that the client can say what was wrong.
            text = f"unknown authentication mechanism '{method.mechanism}'"
            raise ConnectionFault(ReplyCode.COMMAND_INVALID, text, 10, 11)
        events.append(
            LoginRequested(method.mechanism, method.response, method.client_properties, method.locale)
        )

    def _challenge_answered(self, method: connection.SecureOk, events: list[Event]) -> None:
        events.append(ChallengeAnswered(method.response))

    def _tune_ok(self, method: connection.TuneOk, events: list[Event]) -> None:
        # Rules "upper-limit" of tune-ok: a client may lower the limits and not raise them.  They have the
        # server close the wire without a close; RabbitMQ sends 530 first, and so do we.  The heartbeat is no
        # limit: the client may choose any interval.
        _check_limit("channel_max", method.channel_max, 1, self.options.channel_max)
        _check_limit("frame_max", method.frame_max, frames.MINIMUM_FRAME_SIZE, self.options.frame_max)
        self._set_limits(method.channel_max, method.frame_max, method.heartbeat)

    def _open_requested(self, method: connection.Open, events: list[Event]) -> None:
        events.append(OpenRequested(method.virtual_host))

    connection_steps = {
        **Conversation.connection_steps,
        connection.StartOk: (ConnectionSignal.START_OK, _start_ok),
        connection.SecureOk: (ConnectionSignal.SECURE_OK, _challenge_answered),
        connection.TuneOk: (ConnectionSignal.TUNE_OK, _tune_ok),
        connection.Open: (ConnectionSignal.OPEN, _open_requested),
    }

    def accept_login(self) -> None:
        """Answer LoginRequested or ChallengeAnswered: the client is logged in.  Sends connection.tune."""
        if self._ended_meanwhile(ConnectionState.LOGIN):
            return
        self._move(ConnectionSignal.TUNE)
        options = self.options
        tune = connection.Tune(
            channel_max=options.channel_max, frame_max=options.frame_max, heartbeat=options.heartbeat
        )
        self._queue(0, tune)

    def refuse_login(self, text: str) -> None:
        """Answer LoginRequested or ChallengeAnswered: the login is refused.

        Sends connection.close with 403 if the client has announced that it understands it; otherwise the wire
        is closed.
        """
        if self._ended_meanwhile(ConnectionState.LOGIN):
            return
        # A wire that is closed without a word looks to the client like a problem of the network.  That is why
        # RabbitMQ has the extension authentication_failure_close.
        capabilities = self.client_properties.get("capabilities")
        if isinstance(capabilities, Mapping) and capabilities.get("authentication_failure_close"):
            self.close(ReplyCode.ACCESS_REFUSED, text)
        else:
            self._move(ConnectionSignal.LOST)

    def challenge(self, challenge: bytes) -> None:
        """Answer LoginRequested or ChallengeAnswered with connection.secure, another challenge."""
        if self._ended_meanwhile(ConnectionState.LOGIN):
            return
        self._move(ConnectionSignal.SECURE)
        self._queue(0, connection.Secure(challenge=challenge))

    def accept_open(self) -> None:
        """Answer OpenRequested with connection.open-ok: the connection is open."""
        if self._ended_meanwhile(ConnectionState.OPENING):
            return
        self._move(ConnectionSignal.OPEN_OK)
        self._queue(0, connection.OpenOk())

    def _ended_meanwhile(self, expected: ConnectionState) -> bool:
        """Whether the connection has ended while the owner decided.

        Raises ``LocalProtocolError`` if the connection is not in the ``expected`` state.
        """
        # An owner may take its time, for example to ask another engine about the user.  The client may hang
        # up, or the deadline of the handshake may pass, before the answer.
        if self.state in (ConnectionState.CLOSING, CONNECTION_CLOSED):
            return True
        if self.state is not expected:
            raise LocalProtocolError(f"nothing to answer: the connection is {self.state.name}")
        return False

    def send_deliveries(
        self, channel: int, consumer_tag: str, first_delivery_tag: int, redelivered: bool, batch: Batch
    ) -> None:
        """Send a batch with basic.deliver, with consecutive delivery tags."""
        self.send_many_deliveries(channel, ((consumer_tag, first_delivery_tag, redelivered, batch),))

    def send_many_deliveries(self, channel: int, deliveries: Iterable[Delivery]) -> list[NotCarried]:
        """Send batches with basic.deliver on one channel, in order; return those that AMQP cannot carry."""
        if self._sendable(channel) is None:
            return []
        return self._encoder.deliver(channel, deliveries)

    def send_delivery(
        self,
        channel: int,
        consumer_tag: str,
        delivery_tag: int,
        redelivered: bool,
        envelope: Envelope,
        body: Buffer,
    ) -> bool:
        """Send a message of one part with basic.deliver, as ``send_many_deliveries`` does.

        Return whether it was.

        False: it is not that simple, and ``send_many_deliveries`` has to see to it.
        """
        item = self.channels.get(channel)
        if item is None or item.state is not CHANNEL_OPEN or self.state is not CONNECTION_OPEN:
            return False
        return self._encoder.deliver_one(channel, consumer_tag, delivery_tag, redelivered, envelope, body)

    def send_get_ok(
        self, channel: int, delivery_tag: int, redelivered: bool, message_count: int, batch: Batch
    ) -> None:
        """Send a batch of one message with basic.get-ok.  Raises ``CannotCarry``."""
        if len(batch) != 1:
            raise LocalProtocolError(f"basic.get-ok carries one message, not {len(batch)}")
        if self._sendable(channel) is not None:
            self._encoder.get_ok(channel, delivery_tag, redelivered, message_count, batch)

    def send_return(self, channel: int, code: int, text: str, batch: Batch) -> None:
        """Return each message of a batch with basic.return.  ``text`` is sent unchanged (``NO_ROUTE``)."""
        if self._sendable(channel) is not None:
            self._encoder.encode_return(channel, code, text, batch)


def _check_limit(field: str, wish: int, minimum: int, maximum: int) -> None:
    """Raise ``ConnectionFault`` if tune-ok has a limit that tune did not allow, as RabbitMQ."""
    text = f"negotiated {field} = {wish} is"
    if wish and wish < minimum:
        text = f"{text} lower than the minimum allowed value ({minimum})"
        raise ConnectionFault(ReplyCode.NOT_ALLOWED, text, 10, 31)
    if maximum and (wish == 0 or wish > maximum):
        text = f"{text} higher than the maximum allowed value ({maximum})"
        raise ConnectionFault(ReplyCode.NOT_ALLOWED, text, 10, 31)


class ClientConnection(Conversation):
    """The client's side of a connection.

    It logs in by itself.  After the event ConnectionOpened channels may be opened.
    """

    peer: ClassVar[str] = "server"

    def __init__(self, options: ClientOptions, now: float) -> None:
        super().__init__(options, ClientAssembler(options.max_body_size), now)
        self._client_options = options
        self.server_properties: Mapping[str, Any] = NO_ARGUMENTS
        # The client speaks first (grammar of class connection).
        self._out.append(frames.PROTOCOL_HEADER)
        self._move(ConnectionSignal.HEADER)

    def _read_protocol_header(self, octets: bytes, events: list[Event]) -> int:
        # A server that refuses the protocol header answers with the one it wants, and closes the wire
        # (section 4.2.2).  A method frame begins with 0x01, so the two cannot be confused.
        if not octets.startswith(b"AMQP"):
            return 0
        events += self._lost(f"the server wants another protocol: {octets!r}", by_peer=True)
        return len(octets)

    def _start(self, method: connection.Start, events: list[Event]) -> None:
        options = self._client_options
        self.server_properties = method.server_properties
        # The mechanisms are one long string with spaces between the names.
        if options.mechanism.encode() not in method.mechanisms.split():
            text = f"the server offers {method.mechanisms!r}, not {options.mechanism}"
            raise ConnectionFault(ReplyCode.NOT_ALLOWED, text, 10, 10)
        self._move(ConnectionSignal.START_OK)
        self._queue(
            0,
            connection.StartOk(
                client_properties=_properties(options, CLIENT_CAPABILITIES),
                mechanism=options.mechanism,
                response=options.response,
                locale=options.locale,
            ),
        )

    def _challenged(self, method: connection.Secure, events: list[Event]) -> None:
        events.append(ChallengeReceived(method.challenge))

    def _tune(self, method: connection.Tune, events: list[Event]) -> None:
        options = self._client_options
        channel_max = _lower(method.channel_max, options.channel_max)
        frame_max = _lower(method.frame_max, options.frame_max)
        # As RabbitMQ's clients: the lower interval, and no heartbeats if either side wants none.
        heartbeat = min(method.heartbeat, options.heartbeat)
        self._move(ConnectionSignal.TUNE_OK)
        tune_ok = connection.TuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        # The limits hold from tune-ok on, and connection.open is the next method (grammar of class
        # connection).  The client need not wait for anything in between.
        self._queue(0, tune_ok)
        self._set_limits(channel_max, frame_max, heartbeat)
        self._move(ConnectionSignal.OPEN)
        self._queue(0, connection.Open(virtual_host=options.virtual_host))

    def _opened(self, method: connection.OpenOk, events: list[Event]) -> None:
        limits = (self.channel_max, self.frame_max, self.heartbeat)
        events.append(ConnectionOpened(self.server_properties, *limits))

    connection_steps = {
        **Conversation.connection_steps,
        connection.Start: (ConnectionSignal.START, _start),
        connection.Secure: (ConnectionSignal.SECURE, _challenged),
        connection.Tune: (ConnectionSignal.TUNE, _tune),
        connection.OpenOk: (ConnectionSignal.OPEN_OK, _opened),
    }

    def answer_challenge(self, response: bytes) -> None:
        """Answer ChallengeReceived with connection.secure-ok."""
        self._move(ConnectionSignal.SECURE_OK)
        self._queue(0, connection.SecureOk(response=response))

    def open_channel(self, number: int) -> None:
        """Send channel.open; ChannelOpened follows.  Raises ``LocalProtocolError``."""
        if self.state is not CONNECTION_OPEN:
            raise LocalProtocolError(f"the connection is {self.state.name}: no channel can be opened")
        if not 0 < number <= (self.channel_max or 65535):
            raise LocalProtocolError(f"channel {number} is outside of 1 to {self.channel_max or 65535}")
        # A channel that was closed keeps its object.  Its number may be used again after close-ok, which the
        # state table enforces.
        item = self.channels.setdefault(number, Channel(number))
        item.sent(ChannelSignal.OPEN)
        self._queue(number, channel.Open())

    def publish(self, channel: int, batch: Batch, *, mandatory: bool = False) -> None:
        """Send a batch with basic.publish, to the exchange and with the routing key of its envelope."""
        if self._sendable(channel) is not None:
            self._encoder.publish(channel, batch, mandatory=mandatory)


def _lower(one: int, other: int) -> int:
    """Return the lower one of two limits, where 0 means no limit."""
    return min(one, other) if one and other else one or other
