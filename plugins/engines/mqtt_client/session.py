"""Session: the conversation with the broker on one connection.

Login, subscriptions, keep-alive, both directions.

``Outgoing`` and ``Incoming`` have what outlives a connection; a session has what does not.

Order
    CONNECT, CONNACK, SUBSCRIBE, SUBACK; then unfinished messages are sent again, and new ones behind them.
    So who publishes a request gets the answer: the subscription for it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel.contracts.counts import counted
from kernel.contracts.message import Buffer
from plugins.engines.mqtt_client.forms import Forms
from plugins.engines.mqtt_client.options import SubscriptionOptions
from plugins.engines.mqtt_client.outgoing import LAST_ID
from plugins.engines.mqtt_client.reasons import reason_text
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.properties import NO_PROPERTIES, Properties
from plugins.protocols.mqtt.reason_codes import FAILED, ReasonCode
from plugins.protocols.mqtt.topics import split_share

if TYPE_CHECKING:
    from plugins.engines.mqtt_client.engine import MqttClientEngine

_RETAIN_HANDLING = {"always": 0, "new": 1, "never": 2}
_PINGREQ = encode(Pingreq(), 4)
_MOST_A_TURN = 10_000
"""Messages that are published in one turn, before other engines of the thread have theirs."""
_LOGIN_REFUSED = frozenset(
    {
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)


class Session:
    """The state of one connection."""

    def __init__(self, engine: MqttClientEngine, now: float) -> None:
        self._engine = engine
        self._options = options = engine.options
        self._parser = Parser(
            "client",
            options.version,
            max_packet_bytes=options.max_packet_bytes,
            topic_alias_maximum=options.topic_alias_maximum if options.version == 5 else 0,
        )
        self.usable = False
        """Whether the broker has accepted the connection and answered the subscriptions."""
        self.ended = False
        self.finished = False
        """Whether the connection has to be closed when everything is written."""
        self.reason = ""
        """Why it has ended."""
        self.stops_reading = False
        """Whether the socket must not be read now."""
        self.written = engine.outgoing.written
        self.login_refused = False
        self.refusals: dict[str, str] = {}
        """Filters that the broker has refused, and why."""
        self.next_try: float | None = None
        """Seconds of the wait after which refused filters are tried again; None: none is."""
        self._accepted = False
        self._asked: dict[int, tuple[SubscriptionOptions, ...]] = {}
        # Identifiers up to ``LAST_ID`` are computed from the numbers of messages, so those of SUBSCRIBE are
        # above.
        self._next_id = LAST_ID + 1
        self._out: list[Buffer] = []
        self._keep_alive = options.keep_alive
        # For CONNECT and SUBSCRIBE together: until both are answered the engine is of no use.
        self._login_until = now + options.connect_timeout
        self._sent_at = self._received_at = now
        self._ping_sent_at: float | None = None

    # What is said at the beginning

    def begin(self) -> None:
        """Send CONNECT."""
        options = self._options
        lasts = options.session_seconds > 0
        properties = NO_PROPERTIES
        if options.version == 5:
            properties = Properties(
                session_expiry_interval=options.session_seconds or None,
                receive_maximum=options.receive_maximum,
                maximum_packet_size=options.max_packet_bytes,
                topic_alias_maximum=options.topic_alias_maximum or None,
            )
        connect = Connect(
            level=options.version,
            client_id=self._engine.client_id,
            clean_start=not lasts,
            keep_alive=options.keep_alive,
            user_name=options.user or None,
            password=options.password.encode() if options.password else None,
            properties=properties,
        )
        self._out.append(encode(connect, options.version))

    def _connack(self, packet: Connack) -> None:
        if packet.reason_code >= FAILED:
            self.login_refused = packet.reason_code in _LOGIN_REFUSED
            text = self._text(PacketType.CONNACK, packet.reason_code, packet.properties)
            self.end(f"{self._engine.peer} refuses the connection: {text}")
            return
        self._accepted = True
        if packet.session_present and not self._options.session_seconds:
            # [MQTT-3.2.2-4]
            self._fault(
                PacketFault(
                    ReasonCode.PROTOCOL_ERROR, "CONNACK: a session, where a clean start was asked for"
                )
            )
            return
        server = packet.properties
        if server.server_keep_alive is not None:
            # [MQTT-3.1.2-21]
            self._keep_alive = server.server_keep_alive
        engine = self._engine
        present = packet.session_present
        # Before SUBSCRIBE: what a former connection has left is known before anything new is sent.
        engine.outgoing.begin(
            Forms(self._options, server),
            server.receive_maximum or 65_535,
            engine.host.now(),
            present=present,
            first=not engine.had_session,
        )
        engine.incoming.begin(present=present)
        # After a restart of the engine the options may be others than those in the broker's session.
        subscribed = present and engine.has_subscribed
        engine.had_session = True
        engine.has_subscribed = subscribed
        if subscribed or not self._options.subscriptions:
            self._is_usable()
        else:
            self.subscribe(self._options.subscriptions)

    def subscribe(self, subscriptions: tuple[SubscriptionOptions, ...]) -> None:
        """Ask the broker for these subscriptions."""
        identifier = self._next_id
        self._next_id = identifier + 1 if identifier < 65_535 else LAST_ID + 1
        self._asked[identifier] = subscriptions
        version = self._options.version
        packet = Subscribe(
            id=identifier, subscriptions=tuple(_subscription(each, version) for each in subscriptions)
        )
        self._out.append(encode(packet, version))

    def _suback(self, packet: Suback) -> None:
        asked = self._asked.pop(packet.id, None)
        if asked is None or len(asked) != len(packet.reason_codes):
            self._fault(
                PacketFault(ReasonCode.PROTOCOL_ERROR, "SUBACK: it answers no SUBSCRIBE of this side")
            )
            return
        refused: list[SubscriptionOptions] = []
        for each, code in zip(asked, packet.reason_codes, strict=True):
            if code >= FAILED:
                refused.append(each)
                text = self._text(PacketType.SUBACK, code, packet.properties)
                self.refusals[each.filter] = f"subscribing to {each.filter!r}: {text}"
                continue
            self.refusals.pop(each.filter, None)
            # 3.8.4: a broker may grant a lower QoS. That is no refusal, but the operator should know.
            if code < each.qos:
                self._engine.report(
                    "limited", f"subscribing to {each.filter!r}: the broker grants QoS {code}"
                )
        if refused:
            self._engine.counters.refusals += len(refused)
            self.next_try = self._engine.subscribe_later(tuple(refused))
            for each in refused:
                self._engine.report("refused", self.refusals[each.filter], self.next_try)
        else:
            self.next_try = None
            self._engine.subscribed()
        self._is_usable()

    def _is_usable(self) -> None:
        if not self.usable:
            self.usable = True
            self._engine.is_usable()

    # What the broker sends

    def receive(self, data: bytes, now: float) -> None:
        """Process what the broker has sent."""
        self._received_at = now
        # Any octet shows that the broker is there. It need not be PINGRESP, which may be behind many
        # messages.
        self._ping_sent_at = None
        try:
            packets = self._parser.receive_data(data)
        except PacketFault as fault:
            self._handle(fault.packets, now)
            self._fault(fault)
            return
        self._handle(packets, now)

    def _handle(self, packets: Any, now: float) -> None:
        for packet in packets:
            if self.ended:
                return
            # The frequent packets come first.
            if isinstance(packet, Publish):
                self._engine.incoming.publish(packet)
            elif isinstance(packet, Acknowledgement):
                self._acknowledgement(packet, now)
            else:
                handler = _HANDLERS.get(type(packet))
                if handler is not None:
                    handler(self, packet)

    def _acknowledgement(self, packet: Acknowledgement, now: float) -> None:
        if packet.kind is PacketType.PUBREL:
            self._engine.incoming.release(packet.ids)
            return
        reason = ""
        if packet.reason_code >= FAILED:
            # Without advice: it goes into the headers of dead letters.
            reason = self._text(packet.kind, packet.reason_code, packet.properties, advise=False)
        self._engine.outgoing.acknowledged(packet.kind, packet.ids, packet.reason_code, reason, now)

    def _disconnect(self, packet: Disconnect) -> None:
        text = self._text(PacketType.DISCONNECT, packet.reason_code, packet.properties)
        self.end(f"{self._engine.peer} ends the connection: {text}")

    def _fault(self, fault: PacketFault) -> None:
        # DISCONNECT of MQTT 3.1.1 has no reason: it would say that all is well.
        if self._options.version == 5 and self._accepted:
            self._out.append(encode(Disconnect(reason_code=fault.reason_code), 5))
        self.end(f"{self._engine.peer} has sent what MQTT does not allow: {fault}")

    def _text(self, kind: PacketType, code: int, properties: Properties, *, advise: bool = True) -> str:
        return reason_text(kind, code, properties, self._options, self._engine.client_id, advise=advise)

    @property
    def in_flight(self) -> int:
        """Messages that were sent and that the broker has to confirm."""
        return self._engine.outgoing.in_flight

    # Turns

    def take_output(self, *, publish: bool) -> tuple[list[Buffer], bool]:
        """Return what has to be sent, and whether more can be published.

        ``publish``: whether the socket has room for messages.
        """
        engine = self._engine
        now = engine.host.now()
        out, self._out = self._out, []
        more = False
        if self._accepted and not self.ended:
            engine.incoming.flush()
            out += engine.incoming.take_answers()
            if self.usable and publish:
                packets, more = engine.outgoing.pump(_MOST_A_TURN, now)
                out += packets
            else:
                out += engine.outgoing.take_answers()
        if out:
            self._sent_at = now
        self.finished = self.ended
        self.stops_reading = engine.incoming.stops_reading
        return out, more

    # Time

    def next_deadline(self) -> float | None:
        """Return when something is due: the answer to the login, a ping or its answer, an acknowledgement."""
        if not self.usable:
            return self._login_until
        due: list[float] = []
        if self._keep_alive:
            if self._ping_sent_at is not None:
                due.append(self._ping_sent_at + self._keep_alive)
            # Also while an answer is due: the broker ends a connection that is silent for too long.
            oldest = (
                self._sent_at if self._ping_sent_at is not None else min(self._sent_at, self._received_at)
            )
            # The broker has to see a packet within each interval [MQTT-3.1.2-20]. A quarter is left for the
            # way and a late timer.
            due.append(oldest + self._keep_alive * 0.75)
        if self._engine.outgoing.in_flight:
            due.append(self._engine.outgoing.answered_at + self._options.confirm_timeout)
        return min(due, default=None)

    def on_deadline(self, now: float) -> None:
        """Ask the broker whether it is there, or give it up."""
        peer, options = self._engine.peer, self._options
        if not self.usable:
            if now >= self._login_until:
                what = "SUBSCRIBE" if self._accepted else "CONNECT"
                self.end(f"{peer} has not answered {what} within {options.connect_timeout:g} s")
            return
        outgoing = self._engine.outgoing
        if outgoing.in_flight and now >= outgoing.answered_at + options.confirm_timeout:
            self.end(
                f"{peer} has acknowledged none of {counted(outgoing.in_flight, 'message')} within "
                f"{options.confirm_timeout:g} s"
            )
            return
        if not self._keep_alive:
            return
        if self._ping_sent_at is not None and now >= self._ping_sent_at + self._keep_alive:
            self.end(f"{peer} has not answered PINGREQ within {self._keep_alive} s")
            return
        oldest = self._sent_at if self._ping_sent_at is not None else min(self._sent_at, self._received_at)
        if now >= oldest + self._keep_alive * 0.75:
            self._out.append(_PINGREQ)
            self._sent_at = now
            if self._ping_sent_at is None:
                self._ping_sent_at = now

    def is_not_read(self, now: float) -> None:
        """The socket was not read: the silence of the broker says nothing."""
        self._received_at = now
        if self._ping_sent_at is not None:
            self._ping_sent_at = now
        # The limits on acknowledgements and on PINGRESP begin anew: both may be in the socket, unread.
        self._engine.outgoing.answered_at = now

    # The end

    def last_words(self) -> list[Buffer]:
        """Return what is still to be sent, and DISCONNECT: the broker then knows that this side is going."""
        out, self._out = self._out, []
        if self._accepted:
            out.append(encode(Disconnect(), self._options.version))
        return out

    def end(self, reason: str) -> None:
        """The connection has ended, or has to."""
        if not self.ended:
            self.ended = True
            self.reason = reason


def _subscription(options: SubscriptionOptions, version: int) -> Subscription:
    share, topic_filter = split_share(options.filter)
    if version == 4:
        return Subscription(topic_filter, options.qos, share_name=share)
    return Subscription(
        topic_filter,
        options.qos,
        no_local=options.no_local,
        retain_as_published=options.retain_as_published,
        retain_handling=_RETAIN_HANDLING[options.retain_handling],
        share_name=share,
    )


_HANDLERS: dict[type[Packet], Callable[[Session, Any], None]] = {
    Connack: Session._connack,
    Suback: Session._suback,
    Disconnect: Session._disconnect,
}
