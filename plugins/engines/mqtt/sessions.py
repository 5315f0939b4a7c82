"""Sessions: all sessions, retained messages and live subscriptions of a broker, whatever their listener."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.message import Buffer, Envelope, batch_of_one
from plugins.engines.broker.public import BrokerEngine, BrokerError, Login, Publisher, VirtualHost
from plugins.engines.mqtt.durable import Description, Descriptions
from plugins.engines.mqtt.envelopes import SharedEnvelopes
from plugins.engines.mqtt.logging_in import ScramLogins
from plugins.engines.mqtt.options import MqttListenerOptions
from plugins.engines.mqtt.retained import RetainedMessages
from plugins.engines.mqtt.retained_turns import RetainedTurns
from plugins.engines.mqtt.session import Session
from plugins.engines.mqtt.status import Status
from plugins.engines.mqtt.subscriptions import LiveSubscriptions
from plugins.protocols.mqtt.messages import envelope_of
from plugins.protocols.mqtt.packets import Will
from plugins.protocols.mqtt.publish_reader import SharedHeads

if TYPE_CHECKING:
    from plugins.engines.mqtt.client import MqttClient

_SHARED = "mqtt"


def sessions_of(engine: BrokerEngine, options: MqttListenerOptions) -> Sessions:
    """Return the sessions of a broker; all its MQTT listeners have the same."""
    sessions: Sessions | None = engine.shared.get(_SHARED)
    if sessions is None:
        sessions = engine.shared[_SHARED] = Sessions(engine, options)
    return sessions


class _Traffic(msgspec.Struct):
    """What connections have sent and received."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0

    def add(self, client: MqttClient) -> None:
        """Add that of one more connection."""
        self.bytes_in += client.bytes_in
        self.bytes_out += client.bytes_out
        self.messages_in += client.messages_in
        self.messages_out += client.messages_out


class Sessions:
    """What the MQTT clients of a broker have in common."""

    def __init__(self, engine: BrokerEngine, options: MqttListenerOptions) -> None:
        """``options``: of the first listener.  The limits on retained messages are those of all."""
        self._engine = engine
        self._options = options
        self._sessions: dict[tuple[str, str], Session] = {}
        self._retained: dict[str, RetainedMessages] = {}
        self._live: dict[tuple[str, str], LiveSubscriptions] = {}
        self._envelopes: dict[str, SharedEnvelopes] = {}
        self._descriptions: dict[str, Descriptions] = {}
        self._past: dict[str, _Traffic] = {}
        """Traffic of connections that are over, by virtual host."""
        self._restored = False
        self.status = Status(engine, self, options.status_seconds)
        self.scram_logins = ScramLogins(engine)
        self.retained_turns = RetainedTurns(engine)
        self.heads = SharedHeads()
        """What the parsers of all connections share."""
        self.wills = 0
        """Wills that were published."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def running(self) -> bool:
        """Whether the broker runs.  It closes its connections when it stops."""
        return self._engine.running

    def restore(self, now: float) -> None:
        """Make again the sessions that the store has, once, before any client is there."""
        if self._restored:
            return
        self._restored = True
        self.status.begin()
        for vhost in self._engine.broker.vhosts.values():
            self.retained(vhost).restore(now)
            for description in self.descriptions(vhost).read():
                self._restore(vhost, description, now)
        # Then: the will of one may be for another.
        for session in list(self._sessions.values()):
            session.wait_again(now)

    def _restore(self, vhost: VirtualHost, description: Description, now: float) -> None:
        client_id = description.client_id
        options = msgspec.structs.replace(self._options, exchange=description.exchange)
        session = self.make(vhost, client_id, options, durable=True)
        try:
            session.restore(description, now)
        except BrokerError as refusal:
            # For example, the exchange is gone.  The client begins anew.
            self._engine.broker.report("not restored", f"the MQTT session of {client_id!r}: {refusal.text}")
            session.end(now)

    def descriptions(self, vhost: VirtualHost) -> Descriptions:
        """Return what describes the sessions of a virtual host on disk."""
        if vhost.name not in self._descriptions:
            self._descriptions[vhost.name] = Descriptions(vhost)
        return self._descriptions[vhost.name]

    def find(self, vhost: str, client_id: str) -> Session | None:
        """Return the session of a client; None if it has none."""
        return self._sessions.get((vhost, client_id))

    def make(
        self, vhost: VirtualHost, client_id: str, options: MqttListenerOptions, *, durable: bool
    ) -> Session:
        """Return a new session."""
        session = Session(
            self,
            vhost,
            self.live(vhost, options.exchange),
            client_id,
            durable=durable,
            most_subscriptions=options.max_subscriptions,
        )
        self._sessions[vhost.name, client_id] = session
        return session

    def remove(self, session: Session) -> None:
        """A session has ended."""
        self._sessions.pop((session.vhost.name, session.client_id), None)

    def live(self, vhost: VirtualHost, exchange: str) -> LiveSubscriptions:
        """Return the subscriptions without a queue at one exchange."""
        key = (vhost.name, exchange)
        if key not in self._live:
            self._live[key] = LiveSubscriptions(vhost, exchange, self.status.watch)
        return self._live[key]

    def live_subscriptions(self) -> list[LiveSubscriptions]:
        """Return the subscriptions without a queue at all exchanges."""
        return list(self._live.values())

    def counts(self, vhost: VirtualHost) -> dict[str, int]:
        """Return how many there are in a virtual host of what the status tells."""
        sessions = [session for session in self._sessions.values() if session.vhost is vhost]
        clients = [session.client for session in sessions if session.client is not None]
        subscriptions = [each for session in sessions for each in session.subscriptions.values()]
        traffic = copy(self._past.get(vhost.name)) or _Traffic()
        for client in clients:
            traffic.add(client)
        return {
            "connected": len(clients),
            "disconnected": len(sessions) - len(clients),
            "subscriptions": len(subscriptions),
            "shared": sum(bool(each.share_name) for each in subscriptions),
            "retained": len(self.retained(vhost)),
            "dropped": sum(each.dropped for each in self._live.values() if each.vhost is vhost),
            **msgspec.structs.asdict(traffic),
        }

    def count_past(self, vhost: VirtualHost, client: MqttClient) -> None:
        """A connection is over: what it has sent and received still counts."""
        past = self._past.get(vhost.name)
        if past is None:
            past = self._past[vhost.name] = _Traffic()
        past.add(client)

    def envelopes(self, exchange: str) -> SharedEnvelopes:
        """Return the envelopes of PUBLISH packets without properties that were made for an exchange."""
        if exchange not in self._envelopes:
            self._envelopes[exchange] = SharedEnvelopes(exchange)
        return self._envelopes[exchange]

    def retained(self, vhost: VirtualHost) -> RetainedMessages:
        """Return the retained messages of a virtual host."""
        if vhost.name not in self._retained:
            self._retained[vhost.name] = RetainedMessages(vhost, self._options.max_retained)
        return self._retained[vhost.name]

    def keep_retained(
        self, vhost: VirtualHost, topic: str, body: Buffer, envelope: Envelope, now: float
    ) -> None:
        """Retain a message, unless the options say that none are retained."""
        if self._options.retain:
            self.retained(vhost).keep(topic, body, envelope, now)

    def publish_will(self, session: Session, will: Will, login: Login, now: float) -> None:
        """Publish the will of a client whose connection was lost."""
        self.wills += 1
        publisher = Publisher(session.vhost, login, self._engine.feed)
        envelope = envelope_of(
            session.exchange,
            will.topic,
            will.properties,
            will.qos,
            retain=will.retain,
            # As in ``Incoming``: only if a subscription that does not want it is there, or may be there
            # later.
            publisher=session.client_id if session.no_local or will.retain else "",
        )
        try:
            publisher.publish(batch_of_one(will.payload, publisher.admit(envelope)), now)
            if will.retain:
                self.keep_retained(session.vhost, will.topic, will.payload, envelope, now)
        except BrokerError as refusal:
            # The client is gone and cannot be told.
            self._engine.broker.report(
                "refused", f"the will of MQTT client {session.client_id!r}: {refusal.text}"
            )
        self._engine.finish_soon()

    def login(self, session: Session, user: str) -> Login | None:
        """Return the login of a user whose will was on disk; None if there is no such user any more."""
        # Where the client was, was checked when it logged in.
        login = self._engine.users.log_in(user, loopback=True)
        if login is None:
            self._engine.broker.report(
                "refused",
                f"the will of MQTT client {session.client_id!r}: there is no user {user!r} any more",
            )
        else:
            login.client_id = session.client_id
        return login

    def detached_rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``kernel consumers`` of sessions without a connection."""
        return [
            row for session in self._sessions.values() if session.client is None for row in session.rows("")
        ]

    def statistics(self) -> dict[str, int]:
        """Return the present counters.  Called by any thread."""
        return {
            "sessions": len(self._sessions),
            "retained": sum(len(each) for each in list(self._retained.values())),
            "retained_refused": sum(each.refused for each in list(self._retained.values())),
            "dropped": sum(each.dropped for each in list(self._live.values())),
            "wills": self.wills,
        }
