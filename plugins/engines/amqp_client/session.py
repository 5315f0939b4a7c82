"""Session: one connection's conversation as the engine means it: declare, then publish and consume, and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plugins.engines.amqp_client.consumer import Consumer, Intake
from plugins.engines.amqp_client.declarations import Declarations
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.engines.amqp_client.publisher import Publisher
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChallengeReceived,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionOpened,
    Delivered,
    Event,
    MethodReceived,
    Rejected,
    Returned,
)
from plugins.protocols.amqp091.methods import connection as connection_methods
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.amqp_client.engine import AmqpClient

_MOST_A_TURN = 10_000
"""Messages published before others have their turn."""

_ADVICE: dict[int, str] = {
    ReplyCode.ACCESS_REFUSED: "give user {user!r} of virtual host {vhost!r} the permission",
    ReplyCode.NOT_FOUND: "declare it in this engine's options, or create it on the server",
    ReplyCode.RESOURCE_LOCKED: "another connection has it for itself: use another name",
    ReplyCode.PRECONDITION_FAILED: "what is there was declared otherwise: say the same here, or passive = true",
    ReplyCode.NOT_ALLOWED: "see what the server allows user {user!r} in virtual host {vhost!r}",
}


class Session:
    """All that is remembered of one connection, and forgotten with it."""

    def __init__(self, engine: AmqpClient, connection: ClientConnection, finish: Callable[[], None]) -> None:
        self.name = engine.name
        self.options: AmqpClientOptions = engine.options
        self.connection = connection
        self.port = engine.port
        self.counters = engine.counters
        self.ended = False
        self.reason = ""
        """Why the connection has ended."""
        self._engine = engine
        self._finish = finish
        self.intake = Intake(self)
        self._declarations = Declarations(self, 1)
        self.publisher = Publisher(self, 2)
        consumers = [Consumer(self, 3 + at, each) for at, each in enumerate(self.options.consume)]
        self._consumers = {consumer.channel: consumer for consumer in consumers}
        self._roles: dict[int, Role] = {1: self._declarations, 2: self.publisher, **self._consumers}
        self._to_start: dict[Role, None] = dict.fromkeys((self.publisher, *consumers))
        """What begins when all is declared."""
        self._reads_no_further = any(each.no_ack for each in self.options.consume)

    def __repr__(self) -> str:
        return f"<Session of {self.name}, {list(self._roles.values())}>"

    @property
    def holds_back(self) -> bool:
        """Whether to stop reading: there is no other way to hold back a consumer that does not acknowledge."""
        return self._reads_no_further and not self.intake.going

    # From the connection

    def handle(self, events: list[Event]) -> None:
        """Take what the server sent."""
        for event in events:
            if isinstance(event, Delivered):
                self._consumers[event.channel].delivered(event)
            elif isinstance(event, Acknowledged):
                self.publisher.acknowledged(event)
            elif isinstance(event, MethodReceived):
                self._method(event.channel, event.method)
            else:
                self._rare(event)

    def _rare(self, event: Event) -> None:
        if isinstance(event, Rejected):
            self.publisher.rejected(event)
        elif isinstance(event, Returned):
            self.publisher.returned(event)
        elif isinstance(event, ConnectionOpened):
            self._declarations.declare()
        elif isinstance(event, ChannelOpened):
            self._roles[event.channel].is_open = True
            self._roles[event.channel].opened()
        elif isinstance(event, ChannelClosed):
            self._channel_closed(event)
        elif isinstance(event, ConnectionClosed):
            self.end(self._reason_of(event))
        elif isinstance(event, ChallengeReceived):
            self.connection.close(ReplyCode.NOT_IMPLEMENTED, "PLAIN has no challenge")

    def _method(self, channel: int, method: Method) -> None:
        if channel:
            self._roles[channel].received(method)
        elif isinstance(method, connection_methods.Blocked):
            self.publisher.blocked = True
            self.report("blocked", f"the server takes no messages for now: {method.reason}")
        elif isinstance(method, connection_methods.Unblocked):
            self.publisher.blocked = False
            self.report("unblocked")

    def _channel_closed(self, event: ChannelClosed) -> None:
        role = self._roles[event.channel]
        what = role.name
        role.lost()
        if event.by_peer:
            self.start_later(
                role, "refused", f"{what}: {self._explained(event.reply_code, event.reply_text)}"
            )
        elif event.reply_code != ReplyCode.SUCCESS:
            # Closed by this side, for what the server sent: the channel is free with its close-ok.
            self.report("refused", f"{what}: {event.reply_code} {event.reply_text}")
        else:
            self.start_later(role, "retrying", what)

    def _explained(self, code: int, text: str) -> str:
        advice = _ADVICE.get(code, "").format(user=self.options.user, vhost=self.options.vhost)
        return f"{code} {text}; {advice}" if advice else f"{code} {text}"

    def _reason_of(self, event: ConnectionClosed) -> str:
        text = event.reply_text
        if not any(role.is_open for role in self._roles.values()) and (
            event.reply_code == ReplyCode.ACCESS_REFUSED or (event.by_peer and not event.reply_code)
        ):
            # Servers of old just hang up on a wrong password.
            text = f"{text}, during login: check user, password and vhost of {self.options.user!r}"
        return self._explained(event.reply_code, text) if event.reply_code not in (0, 403) else text

    def end(self, reason: str) -> None:
        """The connection is over."""
        if self.ended:
            return
        self.ended = True
        self.reason = reason
        self.intake.end()
        for role in self._roles.values():
            role.lost()
            self._engine.host.set_timer(None, _nothing, role)

    # To begin, and to begin again

    def start_later(self, role: Role, what: str, detail: str) -> None:
        """A role has been stopped by the server: declare and start it again, after a while."""
        wait = role.backoff.next_wait()
        self.report(what, detail, wait)

        def again() -> None:
            if role is not self._declarations:
                self._to_start[role] = None
            self._declarations.declare()

        self.set_timer(wait, again, role)

    def declared(self) -> None:
        """Everything is declared."""
        self._engine.is_usable()
        to_start, self._to_start = self._to_start, {}
        for role in to_start:
            role.start()

    def set_timer(self, wait: float, callback: Callable[[], None], role: Role) -> None:
        """Call back after a while, if the connection is still there."""

        def ring() -> None:
            if not self.ended:
                callback()
                self._finish()

        self._engine.host.set_timer(self._engine.host.now() + wait, ring, role)

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Tell the operator."""
        self._engine.report(what, detail, next_try)

    def finish(self, *, publish: bool) -> bool:
        """At the end of a turn: hand over, publish; return whether there is more to publish at once."""
        if self.ended:
            return False
        self.intake.flush()
        return publish and self.publisher.pump(_MOST_A_TURN)


def _nothing() -> None:
    """Never called."""
