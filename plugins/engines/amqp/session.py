"""Session: one client's connection, from the protocol's events to the broker's calls and back.

It owns no socket: the connection host gives it the events of what was read, and writes what it leaves in the
conversation.  Events that were decoded together with a fault come after it in the list; they are for a
channel or connection that is closed, and are dropped here.

States
    A session has no state variable.  ``login`` is None before start-ok, ``vhost`` is None before
    connection.open, and ``ended`` is set once, for whatever reason.  The conversation checks the order of the
    methods (``states.py``), so that a handler may rely on it: no channel is opened before ``vhost`` is there.

Refusals
    A ``BrokerError`` says on which level AMQP refuses it.  *channel*: the channel is closed, its consumers
    end, what is unacknowledged goes back to its queues, and the connection goes on.  *connection*: everything
    ends.  What the client has sent before the fault was done, and stays so.

Order of output
    The conversation collects output in the order of the calls.  Answers are sent at once, deliveries and
    confirmations at the end of the turn.  Where that would change their order, deliveries are sent earlier:
    before basic.cancel-ok, basic.get-ok and basic.recover-ok a client must have seen what was delivered
    before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from plugins.engines.amqp.channel import Channel
from plugins.engines.amqp.channel_methods import METHODS
from plugins.engines.amqp.sasl import log_in
from plugins.engines.broker.public import (
    Broker,
    BrokerError,
    CommandInvalid,
    ConfirmScheduler,
    Feed,
    Login,
    Users,
    Window,
)
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.credentials import credentials_of
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    Event,
    LoginRequested,
    MethodReceived,
    OpenRequested,
    Published,
    PublishedUnderKeys,
    Rejected,
)
from plugins.protocols.amqp091.methods import basic, tx
from plugins.protocols.amqp091.methods import connection as connection_methods

if TYPE_CHECKING:
    from plugins.engines.broker.public import VirtualHost


_WITHOUT_NAGLE = (
    "AMQP 0.9.1 Client",  # amqp091-go
    "AMQPLib",  # php-amqplib
    "Bunny",
    "Pika Python Client Library",
    "RabbitMQ",  # for Java and .NET
    "RabbitMQ Erlang Client",
    "aiormq",  # aio-pika as well
    "https://github.com/streadway/amqp",
    "messaging-kernel",
    "py-amqp",  # kombu and Celery as well
    "rabbitmq-c",
)
"""Products that switch Nagle's algorithm off: nothing that they send waits for the system's acknowledgement.

Not a set: a client may name anything, also what has no hash.
"""


class SessionClient(Interface):
    """What a session needs of the client that it belongs to: ``StreamClient`` has it."""

    is_busy: Callable[[], None]
    """Called when ``finish`` has to be called at the end of this turn."""
    window: Window
    published: bool
    is_prompt: bool
    messages_in: int
    messages_out: int

    def write_after(self, mark: int) -> None:
        """Write nothing more before the store has reached ``mark``."""
        ...

    def moves(self, vhost: str) -> bool:
        """Whether another shard has a virtual host, and the client is handed over."""
        ...

    def refuse_login(self, name: str, how: str, answer: Callable[[], None]) -> None:
        """Report a login that failed, and call ``answer`` some time later."""
        ...


class Session:
    """One connection's state in the broker."""

    def __init__(
        self,
        connection: ServerConnection,
        client: SessionClient,
        broker: Broker,
        users: Users,
        feed: Feed,
        *,
        loopback: bool,
        certified: str | None = None,
        anonymous: str = "",
    ) -> None:
        self.connection = connection
        connection.accept_keyed()
        self.client = client
        self.broker = broker
        self.users = users
        self.feed = feed
        self.loopback = loopback
        self.certified = certified
        """The name in the client's certificate, if TLS has verified one."""
        self.anonymous = anonymous
        """The user that a client is who logs in without a name; empty: nobody."""
        self.vhost: VirtualHost | None = None
        self.login: Login | None = None
        self.channels: dict[int, Channel] = {}
        self.client_properties: Any = {}
        self.ended = False
        self.closed_by_client = False
        """Whether the client has sent connection.close."""
        self._delivering: list[Channel] = []
        self._confirm_scheduler = _NOBODY_WAITS

    def __repr__(self) -> str:
        user = self.login.name if self.login else "nobody"
        return f"<Session of {user}, {len(self.channels)} channels{', ended' if self.ended else ''}>"

    @property
    def confirming(self) -> bool:
        """Whether a publisher waits to be told."""
        return bool(self._confirm_scheduler)

    def unacked_bytes(self) -> int:
        """Return an estimate of the octets of bodies that the client has not acknowledged."""
        return sum([channel.receiver.unacked.estimated_size() for channel in self.channels.values()])

    def uncommitted_bytes(self) -> int:
        """Return how many octets of bodies wait for a commit."""
        transactions = [channel.transaction for channel in self.channels.values()]
        return sum([each.size for each in transactions if each is not None])

    def handle(self, events: list[Event], now: float) -> None:
        """Process events in order, until the session has ended."""
        # A table and not a match statement: one lookup for each event, of which a busy publisher has
        # thousands.
        handlers = _HANDLERS
        for event in events:
            handlers[type(event)](self, event, now)
            if self.ended:
                return

    # Life of the connection

    def _on_login(self, event: LoginRequested, now: float) -> None:
        self.client_properties = event.client_properties
        # amqplib for Node, amqp-client.js and AMQPStorm leave it on, and who knows which others.
        self.client.is_prompt = event.client_properties.get("product") not in _WITHOUT_NAGLE
        self.login = log_in(
            self.users,
            event.mechanism,
            event.response,
            loopback=self.loopback,
            certified=self.certified,
            anonymous=self.anonymous,
        )
        if self.login is not None:
            self.connection.accept_login()
        else:
            # RabbitMQ's words.  The reason is not told: it would say which users there are.
            text = (
                f"Login was refused using authentication mechanism {event.mechanism}. "
                "For details see the broker logfile."
            )
            credentials = credentials_of(event.mechanism, event.response)
            name = credentials[0] if credentials else self.certified or ""
            self.client.refuse_login(name, event.mechanism, partial(self.connection.refuse_login, text))

    def _on_open(self, event: OpenRequested, now: float) -> None:
        assert self.login is not None, "the protocol asks to open after the login only"
        if self.client.moves(event.virtual_host):
            self.end(now)
            return
        try:
            vhost = self.broker.vhost(event.virtual_host)
            self.login.enter(vhost.name)
        except BrokerError as refusal:
            self.connection.close(refusal.code, refusal.text, 10, 40)  # connection.open
            return
        self.vhost = vhost
        self.connection.accept_open()

    def _on_connection_closed(self, event: ConnectionClosed, now: float) -> None:
        self.closed_by_client = event.by_peer
        self.end(now)

    def end(self, now: float) -> None:
        """The connection has ended, for whatever reason."""
        if self.ended:
            return
        self.ended = True
        for channel in self.channels.values():
            channel.end(now)
        self.channels.clear()
        # Deliveries of this turn are not sent any more.  ``channel.end`` has returned those to be
        # acknowledged.
        self._delivering.clear()
        self._confirm_scheduler = _NOBODY_WAITS
        # Only after connection.open: ``enter`` has counted the connection then.
        if self.vhost is not None and self.login is not None:
            self.login.leave()
            # Exclusive queues go with their connection.
            self.vhost.release(self, now)

    # Channels

    def _on_channel_opened(self, event: ChannelOpened, now: float) -> None:
        self.channels[event.channel] = Channel(self, event.channel)

    def _on_channel_closed(self, event: ChannelClosed, now: float) -> None:
        self._forget_channel(event.channel, now)

    def _forget_channel(self, number: int, now: float) -> None:
        channel = self.channels.pop(number, None)
        if channel is not None:
            self._confirm_scheduler.forget(channel)
            channel.end(now)

    def _on_method(self, event: MethodReceived, now: float) -> None:
        method = event.method
        if event.channel == 0:
            self._on_connection_method(event, now)
            return
        channel = self.channels.get(event.channel)
        # Closed by a fault earlier in this list of events.
        if channel is None:
            return
        store = self.broker.store
        version = store.definition_version
        try:
            handler = METHODS.get(type(method))
            if handler is None:
                raise CommandInvalid(f"{method.name} is not for clients to send")
            handler(channel, method, now)
            # The answer to a durable declaration, or to a commit, is a promise: it is written when the disk
            # has what it says.  A declaration of what is there already changes nothing, and waits for
            # nothing.
            if store.definition_version != version or type(method) is tx.Commit:
                self.client.write_after(store.demand())
        except BrokerError as refusal:
            self._refuse(channel, refusal, method.class_id, method.method_id, now)

    def _on_connection_method(self, event: MethodReceived, now: float) -> None:
        # connection.update-secret is an extension of RabbitMQ: the client's secret, a token for example, was
        # renewed.
        method = event.method
        if not isinstance(method, connection_methods.UpdateSecret) or self.login is None:
            return
        try:
            self.users.renew(self.login)
        except BrokerError as refusal:
            self.connection.close(refusal.code, refusal.text, method.class_id, method.method_id)
            self.end(now)
        else:
            self.connection.send_method(0, connection_methods.UpdateSecretOk())

    def begin_confirms(self) -> None:
        """A channel wants its publishes confirmed from now on."""
        if self._confirm_scheduler is _NOBODY_WAITS:
            self._confirm_scheduler = ConfirmScheduler()

    def published(self, event: Published, now: float) -> None:
        """The client has published messages under one envelope."""
        channel = self.channels.get(event.channel)
        if channel is None:
            return
        # Also if the broker refuses it below: the engine only asks whether this client may have to wait.
        client = self.client
        client.published = True
        client.messages_in += len(event.batch.bodies)
        try:
            channel.on_published(event, now)
        except BrokerError as refusal:
            self._refuse(channel, refusal, 60, 40, now)
            return
        # What can be confirmed is looked at once, at the end of the turn: one basic.ack for all of its
        # publishes.
        if channel.confirms is not None:
            self._confirm_scheduler.add(channel)

    def _on_published_under_keys(self, event: PublishedUnderKeys, now: float) -> None:
        channel = self.channels.get(event.channel)
        if channel is None:
            return
        try:
            done = channel.on_published_under_keys(event, now)
        except BrokerError as refusal:
            self._refuse(channel, refusal, 60, 40, now)
            return
        if done:
            self.client.published = True
            self.client.messages_in += len(event.batch.bodies)
            if channel.confirms is not None:
                self._confirm_scheduler.add(channel)
            return
        for batch in event.batch.divided():
            # One of them may end the channel, or the session.
            self.published(Published(event.channel, event.mandatory, event.immediate, batch), now)

    def acknowledged(self, event: Acknowledged, now: float) -> bool:
        """The client has acknowledged deliveries.  Return whether there is nothing to tell it."""
        channel = self.channels.get(event.channel)
        if channel is not None:
            try:
                channel.on_acknowledged(event)
            except BrokerError as refusal:
                self._refuse(channel, refusal, 60, 80, now)
                return False
        return True

    def rejected(self, event: Rejected, now: float) -> None:
        """The client has rejected deliveries."""
        channel = self.channels.get(event.channel)
        if channel is not None:
            try:
                channel.on_rejected(event, now)
            except BrokerError as refusal:
                self._refuse(channel, refusal, 60, event.method_id, now)

    def _refuse(
        self, channel: Channel, refusal: BrokerError, class_id: int, method_id: int, now: float
    ) -> None:
        if refusal.level == "channel":
            # Confirmations of earlier publishes go before channel.close; none can be sent after it.
            self._finish_channel(channel)
            self._forget_channel(channel.number, now)
            self.connection.close_channel(channel.number, refusal.code, refusal.text, class_id, method_id)
        else:
            self.connection.close(refusal.code, refusal.text, class_id, method_id)
            self.end(now)

    # The end of a turn

    def has_deliveries(self, channel: Channel) -> None:
        """Messages were delivered to a channel."""
        # The client stays busy until the end of the turn, so that the first channel is enough.
        if not self._delivering:
            self.client.is_busy()
        self._delivering.append(channel)

    def understands(self, capability: str) -> bool:
        """Whether the client has said that it knows an extension."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and bool(capabilities.get(capability))

    def tell(self, method: connection_methods.Blocked | connection_methods.Unblocked) -> None:
        """Send connection.blocked or unblocked, if the client has the capability."""
        # Some clients of AMQP 0-8 announce the capability, too, and the method of this number closes there.
        if not self.ended and self.understands("connection.blocked") and not self.connection.speaks_0_8:
            self.connection.send_method(0, method)
            self.client.is_busy()

    def tell_cancelled(self, channel: Channel, tag: str) -> None:
        """The broker has ended a consumer: send basic.cancel, if the client has the capability."""
        if self.ended or not self.understands("consumer_cancel_notify"):
            return
        # After basic.cancel the client may not expect deliveries for this tag any more.
        channel.send_deliveries()
        self.connection.send_method(channel.number, basic.Cancel(consumer_tag=tag, nowait=True))
        self.client.is_busy()

    def finish(self, now: float) -> None:
        """Encode what this turn brought for the client."""
        # Taken out first: what is delivered from here on is for the next turn.
        delivering, self._delivering = self._delivering, []
        for channel in delivering:
            channel.send_deliveries()
            if channel.undeliverable:
                channel.give_up_undeliverable(now)
        scheduler = self._confirm_scheduler
        # The first comparison alone is false for every client without confirms.
        if scheduler is not _NOBODY_WAITS and scheduler:
            store = self.broker.store
            for channel in scheduler.take_ready(self.feed.confirmed, store.safe):
                self._finish_channel(channel)
            # Routes call ``BrokerEngine.on_confirmed`` by themselves; the store has to be asked each time.
            if scheduler.needs_store:
                store.when_safe(self.client.is_busy)

    def _finish_channel(self, channel: Channel) -> None:
        confirms = channel.confirms
        if confirms is not None:
            channel.send_confirms(self.feed.confirmed, self.broker.store.safe)
            if confirms.told < confirms.published:
                self._confirm_scheduler.wait(channel, self.feed.confirmed)


_NOBODY_WAITS: ConfirmScheduler[Channel] = ConfirmScheduler()
"""Of all sessions without confirms: one of its own takes 330 bytes.  Nothing is ever added to it."""

_HANDLERS: dict[type[Event], Callable[[Session, Any, float], object]] = {
    Acknowledged: Session.acknowledged,
    ChannelClosed: Session._on_channel_closed,
    ChannelOpened: Session._on_channel_opened,
    ConnectionClosed: Session._on_connection_closed,
    LoginRequested: Session._on_login,
    MethodReceived: Session._on_method,
    OpenRequested: Session._on_open,
    Published: Session.published,
    PublishedUnderKeys: Session._on_published_under_keys,
    Rejected: Session.rejected,
}
