"""Client: one MQTT connection, from CONNECT to its end.

A connection begins when its CONNECT is accepted: then it has a ``Session``, which may be older than the
connection and may outlive it, and a ``Sender`` for what it is sent.  It gets an ``Incoming`` when the client
publishes for the first time.  Before that, the parser lets nothing but CONNECT pass, and while a login takes
several packets (SCRAM) the client handles nothing but AUTH and DISCONNECT.

Who calls what
    The connection calls ``received`` with what was read.  It calls a handler for each packet, which changes
    the session and what the broker has, and sends what can be answered at once.  At the end of the turn the
    broker calls ``flush``, which sends the answers that had to wait for the disk or for routes, then what the
    queues have delivered (``Outgoing``), then retained messages.  ``on_due`` is called when the client has
    been silent for too long, and ``ended`` once, whatever has ended the connection.

Invariants
    1.  CONNACK is the first packet that a client gets, but for AUTH.  It is sent when nothing can refuse the
        client any more.
    2.  Until then nothing is changed that outlives the connection.  So a client that is refused disturbs
        nobody, not even the connection with its client identifier.
    3.  A session has one connection at most: that of before has ended when ``attach`` is called.
    4.  PUBREL and PUBCOMP are sent in the order in which they are due (``_later``), also if some of them need
        not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kernel.contracts.message import Buffer
from plugins.engines.broker.public import (
    Accepted,
    AccessRefused,
    BrokerEngine,
    BrokerError,
    Consumer,
    Login,
    StreamClient,
    VirtualHost,
    invent_name,
)
from plugins.engines.mqtt.incoming import Incoming
from plugins.engines.mqtt.logging_in import METHODS, Attempt, ScramLogin, log_in, plain_credentials
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.sender import Sender
from plugins.engines.mqtt.session import FOR_EVER, Session
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault, protocol_error
from plugins.protocols.mqtt.packet_types import PUBACK, PUBREL, PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    PublishUnderTopics,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.publishing import acknowledge
from plugins.protocols.mqtt.reason_codes import FAILED, ReasonCode, return_code
from plugins.protocols.mqtt.scram import SCRAM
from plugins.protocols.mqtt.topics import is_bridge_state, is_hidden, join_share, topic_to_key

if TYPE_CHECKING:
    from plugins.engines.mqtt.sessions import Sessions

_PINGRESP = encode(Pingresp(), 4)
_ACCEPTED = [encode(Connack(session_present=present), 4) for present in (False, True)]
"""What MQTT 3.1.1 answers CONNECT with, without and with a session."""
_LONGEST_REASON = 500
"""Characters of a reason string: what is longer is for the log."""
_INFLIGHT_OF_BRIDGES = 20
"""The ``max_inflight`` of bridges that cannot name one.  mosquitto 2 keeps as many messages of QoS 2 by
default, and ends the connection at more."""


class _Begun(NamedTuple):
    """What a connection has from its CONNACK on."""

    session: Session
    sender: Sender
    login: Login


class MqttClient(StreamClient):
    """One connection."""

    def __init__(
        self, engine: BrokerEngine, accepted: Accepted, options: MqttListenerOptions, sessions: Sessions
    ) -> None:
        super().__init__(engine, accepted, publish_rate=options.publish_rate)
        self.sessions = sessions
        self.version = 5
        """4 or 5, from CONNECT on."""
        self.resumed = False
        """Whether the client goes on with a session that it has had before."""
        self._accepted = accepted
        self._options = options
        self._parser = Parser(
            "server",
            max_packet_bytes=options.max_packet_bytes,
            topic_alias_maximum=options.topic_alias_maximum,
            retain_available=options.retain,
            shared_heads=sessions.heads,
        )
        self._parser.accept_keyed()
        self._begun: _Begun | None = None
        self._incoming: Incoming | None = None
        """Made when the client publishes for the first time: there may be very many
        clients that only read."""
        self._heard = engine.host.now()
        self._time_limit: float | None = options.handshake_seconds
        """Seconds that the client may be silent; None: for ever."""
        self._method = ""
        """The authentication method of MQTT 5; empty: none."""
        self._scram: ScramLogin | None = None
        """An exchange that waits for the client's final message."""
        self._connect: Connect | None = None
        self._is_bridge = False
        """The CONNECT that is answered when the exchange is over."""
        self._handlers = _HANDLERS
        self._explains = True
        """Whether the client wants reason strings."""
        self._largest_packet = 0
        """Bytes of the largest packet that the client takes; 0: any number."""
        self._asked_expiry = 0
        """The session expiry interval of CONNECT, which the broker may have shortened."""
        self._closing_code = ReasonCode.ADMINISTRATIVE_ACTION
        self._later: list[tuple[int, Buffer]] = []
        """PUBREL and PUBCOMP that wait for the disk, with the marks of the store."""

    def __repr__(self) -> str:
        session = self._begun.session if self._begun else None
        return f"<MqttClient {self.peer} of {session!r}, {self.unwritten} bytes unwritten>"

    # What the broker asks

    @property
    def confirming(self) -> bool:
        """Whether a message of QoS 1 or 2 is not answered."""
        return self._incoming is not None and bool(self._incoming.answers)

    def to_acknowledge(self) -> int:
        """Return how many messages are on their way to the client that it has not acknowledged."""
        outgoing = None if self._begun is None else self._begun.session.outgoing
        return 0 if outgoing is None else len(outgoing.receiver.unacked)

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes there are in messages on their way to the client."""
        outgoing = None if self._begun is None else self._begun.session.outgoing
        return 0 if outgoing is None else outgoing.receiver.unacked.estimated_size()

    @property
    def unpublished_bytes(self) -> int:
        """How many bytes there are of a packet that is not complete."""
        return len(self._parser.rest)

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator."""
        begun = self._begun
        if what == "connections":
            row: dict[str, Any] = {"certificate": self._accepted.certified or ""}
            if begun is None:
                row["state"] = "starting"
            else:
                version = "5.0" if self.version == 5 else "3.1.1"
                row["client"] = f"MQTT {version} {begun.session.client_id}"
                row |= {"user": begun.login.name, "vhost": begun.session.vhost.name}
            return [self.row(**row)]
        return list(begun.session.rows(self.peer)) if what == "consumers" and begun is not None else []

    # Keep-alive

    def next_deadline(self) -> float | None:
        """When the client has been silent for too long."""
        return None if self._time_limit is None else self._heard + self._time_limit

    def on_due(self, now: float) -> None:
        """Close the connection of a client that is silent [MQTT-3.1.2-22]."""
        deadline = self.next_deadline()
        # The timer is not set anew with each packet, so it may come early.
        if deadline is None or now < deadline:
            return
        if self._begun is None:
            waited_for = "AUTH" if self._connect is not None else "CONNECT"
            self.close(f"no {waited_for} has come in time")
        else:
            self.disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT, f"nothing has come for {self._time_limit:g} s")

    def on_not_read(self, now: float) -> None:
        """The client was not read, so it does not count as silent."""
        self._heard = now

    # Turns

    def received(self, data: bytes, now: float) -> bool:
        """Do what the client asks for.  Return whether it was PUBACK, and lets nothing more be sent."""
        self._heard = now
        parser, begun = self._parser, self._begun
        if begun is not None:
            # What clients send that work message by message.
            publish = parser.read_publish(data)
            if publish is not None:
                self._on_publish(publish, now)
                return False
            ids = parser.read_pubacks(data)
            if ids:
                outgoing = begun.session.outgoing or begun.session.begin_outgoing(now)
                outgoing.acknowledge(ids)
                return not outgoing.has_something()
        fault = None
        try:
            packets: Sequence[Packet] = parser.receive_data(data)
        except PacketFault as error:
            # What came before the fault was received in good order.
            packets, fault = error.packets, error
        for packet in packets:
            self._handlers[type(packet)](self, packet, now)
            # A client may send more before it has its CONNACK.  If it is refused, nothing of that is
            # processed [MQTT-3.1.4-6].
            if self.closing or self.login_refused:
                return False
        if parser.rest:
            # In the middle of a message it publishes as well, and an alarm has to stop it.
            self.published = True
        if fault is not None:
            self._on_fault(fault)
        return False

    def _on_fault(self, fault: PacketFault) -> None:
        if self._begun is not None:
            self.disconnect(fault.reason_code, str(fault))
        elif self._parser.version:
            # CONNECT was understood as far as its version, so the client understands a CONNACK of that
            # version.
            self.version = self._parser.version
            self._refuse(fault.reason_code, str(fault))
        else:
            # Something else than CONNECT is not answered [MQTT-3.1.0-1].
            self.close(str(fault))

    def flush(self, now: float) -> None:
        """Send the answers that are due, and what the queues have delivered."""
        begun = self._begun
        if begun is None or self.closing:
            return
        session, sender = begun.session, begun.sender
        sender.is_counted = False
        if session.is_undescribed:
            # The client is told when the disk knows it.
            session.describe()
            self.write_after(self.engine.broker.store.demand())
        incoming = self._incoming
        if incoming is not None and incoming.answers:
            incoming.send_answers()
        if self._later:
            self._send_later()
        outgoing = session.outgoing
        if outgoing is not None:
            outgoing.send(sender, now)
        # Behind the queues: there may be very many retained messages, and they take several turns.
        if session.retained:
            self._send_retained(session, sender, now)

    def _send_retained(self, session: Session, sender: Sender, now: float) -> None:
        """Send some of the retained messages, if it is this client's turn."""
        turns = self.sessions.retained_turns
        if sender.is_behind() and self.writing:
            # ``on_written`` makes the client busy again.
            turns.leave(self)
        elif turns.begin(self):
            if not sender.is_behind():
                session.send_retained(sender, now)
            if session.retained:
                turns.wait(self)

    def send_after(self, mark: int, data: Buffer) -> None:
        """Send something when the store has reached ``mark``, behind what waits already [MQTT-4.6.0-4]."""
        # Also what need not wait, if something waits already: [MQTT-4.6.0-4] has PUBREL in the order of
        # PUBREC.
        if self._later or mark > self.engine.broker.store.safe:
            self._later.append((mark, data))
            self.is_busy()
        else:
            self.send(data)

    def _send_later(self) -> None:
        later, store = self._later, self.engine.broker.store
        sent = 0
        while sent < len(later) and later[sent][0] <= store.safe:
            self.send(later[sent][1])
            sent += 1
        del later[:sent]
        if later:
            store.when_safe(self.is_busy)

    # CONNECT

    def _on_connect(self, packet: Connect, now: float) -> None:
        self.version = packet.version
        self._explains = packet.properties.request_problem_information != 0
        self._largest_packet = packet.properties.maximum_packet_size or 0
        # Before everything else: the other server has to look at it again anyway.
        if self._options.redirect:
            self._refuse(
                ReasonCode.USE_ANOTHER_SERVER, "clients are served elsewhere", self._options.redirect
            )
            return
        if not packet.client_id and self.version == 4 and not packet.clean_start:
            # [MQTT-3.1.3-8], of MQTT 3.1.1
            self._refuse(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a session needs a client identifier")
            return
        method = packet.properties.authentication_method
        # [MQTT-4.12.0-1]: the connection must be closed, and 0x8C may say why.
        if method is not None and method not in METHODS:
            why = f"the authentication methods here are {', '.join(METHODS)}, not {method[:80]}"
            self._refuse(ReasonCode.BAD_AUTHENTICATION_METHOD, why)
            return
        if packet.will is not None and packet.will.retain and not self._options.retain:
            # [MQTT-3.2.2-13]
            self._refuse(ReasonCode.RETAIN_NOT_SUPPORTED, "the will is retained, and nothing is here")
            return
        self._method = method or ""
        self._connect = packet
        self._is_bridge = packet.is_bridge
        self._authenticate(packet.properties.authentication_data, now)

    def _authenticate(self, data: bytes | None, now: float) -> None:
        """Begin to log in, or to authenticate again."""
        connect, options = self._connect, self._options
        if self._method == SCRAM:
            # While a client authenticates again, all else goes on (MQTT 5.0, 4.12.1).
            self._handlers = _HANDLERS if connect is None else _AUTHENTICATING
            scram = ScramLogin(self.sessions.scram_logins, self._accepted, options)
            answer = scram.first(data or b"")
            if isinstance(answer, Attempt):
                self._authenticated(answer, None, now)
            else:
                self._scram = scram
                self._send_auth(ReasonCode.CONTINUE_AUTHENTICATION, answer)
            return
        # With a method the credentials are in its data.  A second authentication has no CONNECT.
        if connect is None or self._method:
            name, password = plain_credentials(data)
            attempt = log_in(self.engine, self._accepted, options, name, password)
        else:
            # Libraries send an empty name for "no name".
            given = connect.user_name or None
            attempt = log_in(self.engine, self._accepted, options, given, connect.password)
        self._authenticated(attempt, None, now)

    def _authenticated(self, attempt: Attempt, signature: bytes | None, now: float) -> None:
        """An attempt is over.  ``signature``: what proves to the client that this is the server."""
        connect, self._connect = self._connect, None
        if connect is None:
            # Another user would go on with the session and the subscriptions of this one.
            if attempt.login is None or attempt.login.name != self._started().login.name:
                self.disconnect(ReasonCode.NOT_AUTHORIZED, "the client could not authenticate again")
            else:
                self._send_auth(ReasonCode.SUCCESS, signature)
        elif attempt.login is None:
            # The answer comes later, so that passwords cannot be tried one after the other (``LOGIN_DELAY``).
            self.refuse_login(attempt.name, attempt.how, self._refuse_credentials)
        else:
            self._handlers = _HANDLERS
            self._enter(connect, attempt, attempt.login, signature, now)

    def _send_auth(self, code: int, data: bytes | None) -> None:
        properties = Properties(authentication_method=self._method, authentication_data=data)
        octets = encode(Auth(code, properties), self.version)
        if self._takes(octets):
            self.send(octets)
        else:
            self._refuse_small_packets()

    def _refuse_small_packets(self) -> None:
        code, why = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "the client's maximum packet size is too small"
        if self._begun is None:
            self._refuse(code, why)
        else:
            self.disconnect(code, why)

    def _refuse_credentials(self) -> None:
        self._refuse(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "login refused")

    def _enter(
        self, packet: Connect, attempt: Attempt, login: Login, signature: bytes | None, now: float
    ) -> None:
        """Let the client in, and begin or continue its session."""
        options, properties = self._options, packet.properties
        # The process of the virtual host is given what the client has sent.  An exchange of SCRAM cannot be
        # repeated: the other side would choose another nonce.
        if signature is None and self.moves(attempt.vhost):
            return
        client_id = packet.client_id or invent_name("auto-", self.engine.broker.random)
        if self.version == 5:
            asked = properties.session_expiry_interval or 0
        else:
            # One flag of MQTT 3.1.1 says both that a session begins anew and that it ends with its connection
            # (3.1.2.4).
            asked = 0 if packet.clean_start else FOR_EVER
        self._asked_expiry = asked
        # Seconds, with ``FOR_EVER`` as the largest number, so the shorter one is the smaller one in any case.
        expiry = min(asked, options.max_session_seconds)
        keep_alive = packet.keep_alive
        longest = options.max_keep_alive_seconds
        # 0 asks for no limit, which is longer than any.
        if longest and not 0 < keep_alive <= longest:
            keep_alive = longest
        granted: Properties | None = NO_PROPERTIES
        if self.version == 5:
            granted = self._with_limits(
                Properties(
                    # What the client has not been told otherwise is as it has asked for (3.2.2.3.2,
                    # 3.2.2.3.14), so only differences are sent.
                    session_expiry_interval=expiry if expiry != asked else None,
                    assigned_client_identifier=None if packet.client_id else client_id,
                    server_keep_alive=keep_alive if keep_alive != packet.keep_alive else None,
                    authentication_data=signature,
                )
            )
        # Before permissions are looked at, whose patterns may have ``{client_id}``.
        login.client_id = client_id
        try:
            vhost = self._permitted(packet, attempt, login)
            if granted is None:
                self._refuse_small_packets()
                return
            # Last of what may refuse: it counts the connection, and ``ended`` takes that back for those that
            # have begun.
            login.enter(vhost.name)
        except BrokerError as refusal:
            self._refuse(ReasonCode.NOT_AUTHORIZED, refusal.text)
            return
        # Not before: who is refused must not end the connection of who has the identifier.
        before = self._continued(vhost, client_id, packet, now)
        session = before or self.sessions.make(vhost, client_id, options, durable=expiry > 0)
        # [MQTT-3.1.2-22]
        self._time_limit = keep_alive * 1.5 if keep_alive else None
        self.arm(self.next_deadline())
        sender = Sender(
            self,
            largest_packet=self._largest_packet,
            aliases=min(properties.topic_alias_maximum or 0, options.topic_alias_maximum),
            most_unwritten=options.max_unwritten_bytes,
        )
        self._begun = _Begun(session, sender, login)
        # Acknowledgements and messages of QoS 0 are not answered, and what follows may wait behind them.
        self.is_prompt = True
        self.resumed = present = before is not None
        # First of all: what was not acknowledged follows it.
        if self.version == 4:
            self.send(_ACCEPTED[present])
        else:
            self.send(encode(Connack(session_present=present, properties=granted), 5))
        # Without the property the client takes 65,535 (3.1.2.11.3).
        most = _INFLIGHT_OF_BRIDGES if self._is_bridge else 65_535
        limit = min(properties.receive_maximum or most, options.max_inflight)
        will = self._will_of(packet, login)
        session.attach(self, sender, limit=limit, expiry=expiry, will=will, now=now)
        if session.durable:
            # The client relies on its session from now on.
            self.write_after(self.engine.broker.store.demand())

    def _will_of(self, packet: Connect, login: Login) -> tuple[Will, Login] | None:
        """Return the will to keep, with whose rights it takes to publish it; None: there is none."""
        will = packet.will
        if will is None:
            return None
        if not _is_reserved(will.topic):
            return will, login
        # No reason to refuse the client: mosquitto's own tools and bridges have such wills.
        detail = f"the will of {self.peer}: topic {will.topic[:80]!r} is the broker's own"
        self.engine.broker.report("ignored", detail)
        return None

    def _permitted(self, packet: Connect, attempt: Attempt, login: Login) -> VirtualHost:
        """Return the virtual host, if the user may do there what CONNECT asks for.

        Raises a ``BrokerError`` otherwise.
        """
        vhost, exchange = self.engine.broker.vhost(attempt.vhost), self._options.exchange
        vhost.find_exchange(exchange)
        if packet.will is not None and not _is_reserved(packet.will.topic):
            login.require("write", "exchange", exchange, vhost.name)
            key = topic_to_key(packet.will.topic)
            login.require_topic("write", vhost.exchanges.get(exchange), key, vhost.name)
        found = self.sessions.find(vhost.name, packet.client_id)
        if found is not None and not packet.clean_start:
            found.require_all(login)
        return vhost

    def _with_limits(self, granted: Properties) -> Properties | None:
        """Return the properties of CONNACK with those that are the same for all clients of the listener.

        None: the client takes no packet of that size.  It has to know all of them but one: if it is told of
        no topic aliases, it uses none.
        """
        options = self._options
        granted = msgspec.structs.replace(
            granted,
            receive_maximum=options.receive_maximum if options.receive_maximum < 65_535 else None,
            retain_available=None if options.retain else 0,
            maximum_packet_size=options.max_packet_bytes,
            authentication_method=self._method or None,
        )
        with_aliases = msgspec.structs.replace(
            granted, topic_alias_maximum=options.topic_alias_maximum or None
        )
        for properties in (with_aliases, granted):
            if self._takes(encode(Connack(properties=properties), self.version)):
                return properties
        return None

    def _takes(self, data: Buffer) -> bool:
        """Whether the client takes a packet of that size [MQTT-3.1.2-24]."""
        return not 0 < self._largest_packet < len(data)

    def _continued(self, vhost: VirtualHost, client_id: str, packet: Connect, now: float) -> Session | None:
        """Return the session to continue, if there is one and the client wants that."""
        sessions = self.sessions
        session = sessions.find(vhost.name, client_id)
        if session is not None and session.client is not None:
            # [MQTT-3.1.4-3].  The end of the connection may end the session.
            session.client.take_over()
            session = sessions.find(vhost.name, client_id)
        # A session whose queue was deleted has lost messages, so it cannot be continued as if nothing had
        # happened: the client is told that there is none.
        if session is not None and (packet.clean_start or session.is_broken):
            session.end(now)
            session = None
        return session

    def _on_auth(self, packet: Auth, now: float) -> None:
        """Go on with an authentication (MQTT 5.0, 4.12), or begin another one (4.12.1)."""
        scram, properties, code = self._scram, packet.properties, packet.reason_code
        if not self._method or properties.authentication_method != self._method:
            # [MQTT-4.12.0-6], [MQTT-4.12.1-1]
            self._on_fault(protocol_error("AUTH with another method than CONNECT"))
        elif scram is not None and code == ReasonCode.CONTINUE_AUTHENTICATION:
            self._scram = None
            self._authenticated(*scram.final(properties.authentication_data or b""), now)
        elif scram is None and code == ReasonCode.RE_AUTHENTICATE:
            self._authenticate(properties.authentication_data, now)
        else:
            self._on_fault(protocol_error("AUTH that nobody has asked for"))

    def _on_too_early(self, packet: Packet, now: float) -> None:
        """The client must not send this before its CONNACK [MQTT-3.1.2-30]."""
        self._on_fault(protocol_error(f"{type(packet).__name__.upper()} in the middle of an authentication"))

    def _on_given_up(self, packet: Disconnect, now: float) -> None:
        """DISCONNECT in the middle of the first authentication."""
        self.close("the client has disconnected")

    # The end

    def _refuse(self, code: int, why: str, reference: str = "") -> None:
        """Refuse the connection with a CONNACK, if the version has one for the reason."""
        if self.version == 5 or return_code(code) is not None:
            properties = Properties(server_reference=reference) if reference else NO_PROPERTIES
            for data in self._explained(Connack(reason_code=code, properties=properties), why):
                self.send(data)
        self.close(why)

    def _explained(self, packet: Connack | Disconnect, why: str) -> Sequence[Buffer]:
        """Return a packet with a reason string, if the client wants one.

        What it takes no packets large enough for is left out: the reason string, all properties, the packet.
        """
        properties = packet.properties
        choices = [properties, NO_PROPERTIES]
        if self.version == 5 and self._explains:
            choices.insert(0, msgspec.structs.replace(properties, reason_string=why[:_LONGEST_REASON]))
        for choice in choices:
            data = encode(msgspec.structs.replace(packet, properties=choice), self.version)
            # [MQTT-3.2.2-19], [MQTT-3.14.2-3]
            if self._takes(data):
                return (data,)
        return ()

    def _farewell(self, code: int, why: str) -> Sequence[Buffer]:
        """Return DISCONNECT.  A server of MQTT 3.1.1 has none."""
        if self._begun is None or self.version == 4:
            return ()
        return self._explained(Disconnect(code), why)

    def disconnect(self, code: int, why: str) -> None:
        """Close the connection because of what the client has done, or not done."""
        for data in self._farewell(code, why):
            self.send(data)
        self.close(why)

    def closing_message(self, reason: str) -> Sequence[Buffer]:
        """Return DISCONNECT, for clients of version 5."""
        code = self._closing_code if self.engine.running else ReasonCode.SERVER_SHUTTING_DOWN
        return self._farewell(code, reason)

    def take_over(self) -> None:
        """Another connection has the client identifier from now on."""
        self._closing_code = ReasonCode.SESSION_TAKEN_OVER
        self.hang_up("another client has connected with the same client identifier")

    def on_cancelled(self, consumer: Consumer) -> None:
        """Somebody has deleted a queue of the session."""
        if not self.closing:
            why = f"queue '{consumer.queue.name}' was deleted"
            # The client would wait for messages that cannot come any more. It connects again, and gets a new
            # session, or a new queue of its shared subscription.
            self.disconnect(ReasonCode.ADMINISTRATIVE_ACTION, why)

    def _on_disconnect(self, packet: Disconnect, now: float) -> None:
        session = self._started().session
        expiry = packet.properties.session_expiry_interval
        if expiry is not None:
            if expiry and not self._asked_expiry:
                # 3.14.2.2.2
                self.disconnect(ReasonCode.PROTOCOL_ERROR, "the session was to end with its connection")
                return
            session.expiry = min(expiry, self._options.max_session_seconds)
        # [MQTT-3.1.2-8]: whatever else the client has to complain of, its will is published.
        if packet.reason_code == ReasonCode.SUCCESS:
            session.forget_will()
        self.close("the client has disconnected")

    def ended(self, now: float) -> None:
        """The connection is over."""
        begun = self._begun
        if begun is not None:
            self.sessions.retained_turns.leave(self)
            begun.session.detach(now)
            self.sessions.count_past(begun.session.vhost, self)
            begun.login.leave()
            # Both refer to this object, which is freed now and not by a collection of garbage.
            self._begun = self._incoming = None

    # Messages and subscriptions

    def _started(self) -> _Begun:
        assert self._begun is not None, "the parser lets nothing pass before CONNECT, and one CONNECT only"
        return self._begun

    def _begin_incoming(self) -> Incoming:
        begun = self._started()
        self._incoming = Incoming(self, begun.session, begun.login, self._options)
        return self._incoming

    def _on_publish(self, packet: Publish, now: float) -> None:
        self.published = True
        self.messages_in += len(packet.payloads)
        (self._incoming or self._begin_incoming()).publish(packet, now)

    def _on_publish_under_topics(self, packet: PublishUnderTopics, now: float) -> None:
        self.published = True
        (self._incoming or self._begin_incoming()).publish_under_topics(packet, now)

    def _on_acknowledgement(self, packet: Acknowledgement, now: float) -> None:
        begun, kind, ids = self._started(), packet.kind, packet.ids
        if kind == PUBREL:
            (self._incoming or self._begin_incoming()).release(ids)
            return
        session = begun.session
        # Also for a client that was never sent anything: it finds that it does not know these identifiers.
        outgoing = session.outgoing or session.begin_outgoing(now)
        if kind == PUBACK:
            # Whatever its reason code: a failure counts as acknowledged, too [MQTT-4.4.0-2].
            outgoing.acknowledge(ids)
        elif kind == PacketType.PUBCOMP:
            outgoing.completed(ids)
        elif packet.reason_code >= FAILED:
            outgoing.give_up(ids)
        else:
            unknown, mark = outgoing.received(ids)
            # MQTT 3.1.1 has no reason codes: its clients get PUBREL for unknown identifiers, too, and forget
            # them.
            if unknown and self.version == 5:
                ids = [number for number in ids if number not in unknown]
                code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self.send_after(0, acknowledge(PacketType.PUBREL, unknown, code))
            if ids:
                begun.sender.release(ids, mark)

    def _on_subscribe(self, packet: Subscribe, now: float) -> None:
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        # The size of the answer is known before its codes are.
        if not self._takes_answer(Suback(packet.id, (0,) * len(packet.subscriptions))):
            return
        subscriptions = packet.subscriptions
        if self._is_bridge:
            subscriptions = tuple(map(_of_bridge, subscriptions))
        codes = tuple([self._subscribe(wanted, identifier, now) for wanted in subscriptions])
        self.send(encode(Suback(packet.id, codes), self.version))

    def _subscribe(self, wanted: Subscription, identifier: int, now: float) -> int:
        session, login = self._started().session, self._started().login
        try:
            name = join_share(wanted.share_name, wanted.topic_filter)
            return session.subscribe(wanted, identifier, name, login, now)
        except AccessRefused:
            return ReasonCode.NOT_AUTHORIZED
        except BrokerError:
            # SUBACK has no code for what else a broker refuses, for example a queue that is there with other
            # properties.
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR

    def _takes_answer(self, answer: Suback | Unsuback) -> bool:
        """Whether the client takes an answer of that size; otherwise end the connection [MQTT-3.1.2-24].

        Asked before anything is done, because the client would not learn of it.
        """
        if not self._largest_packet or self._takes(encode(answer, self.version)):
            return True
        self._refuse_small_packets()
        return False

    def _on_unsubscribe(self, packet: Unsubscribe, now: float) -> None:
        session = self._started().session
        if not self._takes_answer(Unsuback(packet.id, (0,) * len(packet.topic_filters))):
            return
        codes = tuple([session.unsubscribe(name, now) for name in packet.topic_filters])
        self.send(encode(Unsuback(packet.id, codes), self.version))

    def _on_ping(self, packet: Pingreq, now: float) -> None:
        self.send(_PINGRESP)


def _of_bridge(wanted: Subscription) -> Subscription:
    """Return a subscription as a bridge means it: it gets nothing back, and what is retained says so.

    MQTT 3.1.1 has no options with which it could ask for that.
    """
    return msgspec.structs.replace(wanted, no_local=not wanted.share_name, retain_as_published=True)


def _is_reserved(topic: str) -> bool:
    """Whether a topic is for the broker alone to publish to (MQTT 5.0, 4.7.2)."""
    return is_hidden(topic) and not is_bridge_state(topic)


_HANDLERS: dict[type[Packet], Callable[[MqttClient, Any, float], None]] = {
    Acknowledgement: MqttClient._on_acknowledgement,
    Auth: MqttClient._on_auth,
    Connect: MqttClient._on_connect,
    Disconnect: MqttClient._on_disconnect,
    Pingreq: MqttClient._on_ping,
    Publish: MqttClient._on_publish,
    PublishUnderTopics: MqttClient._on_publish_under_topics,
    Subscribe: MqttClient._on_subscribe,
    Unsubscribe: MqttClient._on_unsubscribe,
}
"""The parser of a server lets no other packet pass."""
_AUTHENTICATING: dict[type[Packet], Callable[[MqttClient, Any, float], None]] = {
    **dict.fromkeys(_HANDLERS, MqttClient._on_too_early),
    Auth: MqttClient._on_auth,
    Disconnect: MqttClient._on_given_up,
}
"""In the middle of the first authentication."""
