"""Session: one connection's conversation as the engine means it: declare, then do what it is for, and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kernel.contracts.engine import Port
from plugins.engines.amqp_client.declarations import Declarations, MakeRequests
from plugins.engines.amqp_client.intake import Intake
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
    from plugins.engines.amqp_client.link import Link

_ADVICE: dict[int, str] = {
    ReplyCode.ACCESS_REFUSED: "give user {user!r} of virtual host {vhost!r} the permission",
    ReplyCode.NOT_FOUND: "declare it in this engine's options, or create it on the server",
    ReplyCode.RESOURCE_LOCKED: "another connection has it for itself: use another name",
    ReplyCode.PRECONDITION_FAILED: "what is there was declared otherwise: say the same here, or passive = true",
    ReplyCode.NOT_ALLOWED: "see what the server allows user {user!r} in virtual host {vhost!r}",
}


class Session:
    """All that is remembered of one connection, and forgotten with it."""

    def __init__(
        self,
        link: Link,
        connection: ClientConnection,
        finish: Callable[[], None],
        port: Port,
        make_requests: MakeRequests,
    ) -> None:
        self.link = link
        self.connection = connection
        self.port = port
        self.counters = link.counters
        self.ended = False
        self.reason = ""
        """Why the connection has ended."""
        self.login_refused = False
        self.blocked = ""
        """Why the server takes no messages for now (connection.blocked); empty: it does."""
        self.unblocked_at = 0.0
        """When it last said that it takes messages again."""
        self.intake = Intake(self)
        self.declarations = Declarations(self, 1, make_requests)
        self._finish = finish
        self._roles: dict[int, Role] = {1: self.declarations}
        self._to_start: dict[Role, None] = {}
        """What begins when all is declared."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.link.name}, {list(self._roles.values())}>"

    def add(self, roles: Iterable[Role]) -> None:
        """These begin when all is declared."""
        for role in roles:
            self._roles[role.channel] = role
            self._to_start[role] = None

    @property
    def holds_back(self) -> bool:
        """Whether to stop reading the socket."""
        return False

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has not answered for."""
        return 0

    @property
    def refusal(self) -> str:
        """What the server refuses to do, the first of it; empty: nothing."""
        return next((role.refusal for role in list(self._roles.values()) if role.refusal), "")

    @property
    def next_try(self) -> float | None:
        """Seconds that are waited before what was refused is tried again, the least of them."""
        times = [role.next_try for role in list(self._roles.values()) if role.next_try is not None]
        return min(times, default=None)

    # From the connection

    def handle(self, events: list[Event]) -> None:
        """Take what the server sent."""
        for event in events:
            if isinstance(event, Delivered):
                self._roles[event.channel].delivered(event)
            elif isinstance(event, Acknowledged):
                self._roles[event.channel].acknowledged(event)
            elif isinstance(event, MethodReceived):
                self._method(event.channel, event.method)
            else:
                self._rare(event)

    def _rare(self, event: Event) -> None:
        if isinstance(event, Rejected):
            self._roles[event.channel].rejected(event)
        elif isinstance(event, Returned):
            self._roles[event.channel].returned(event)
        elif isinstance(event, ConnectionOpened):
            self.opened(event)
        elif isinstance(event, ChannelOpened):
            self._roles[event.channel].is_open = True
            self._roles[event.channel].opened()
        elif isinstance(event, ChannelClosed):
            self._channel_closed(event)
        elif isinstance(event, ConnectionClosed):
            self.end(self._reason_of(event))
        elif isinstance(event, ChallengeReceived):
            self.connection.close(
                ReplyCode.NOT_IMPLEMENTED, f"{self.link.options.mechanism} has no challenge"
            )

    def opened(self, event: ConnectionOpened) -> None:
        """Logged in: declare."""
        self.declarations.declare()

    def declaration_refused(self, what: str, code: int) -> None:
        """The server has refused to declare something; it is asked again later."""

    def _method(self, channel: int, method: Method) -> None:
        if channel:
            self._roles[channel].received(method)
        elif isinstance(method, connection_methods.Blocked):
            self.blocked = f"the server takes no messages for now: {method.reason}"
            self.report("blocked", self.blocked)
        elif isinstance(method, connection_methods.Unblocked):
            self.blocked = ""
            self.unblocked_at = self.link.host.now()
            self.report("unblocked")

    def _channel_closed(self, event: ChannelClosed) -> None:
        role = self._roles[event.channel]
        what = role.name
        if event.by_peer:
            role.refused(event.reply_code)
            role.lost()
            role.refusal = f"{what}: {self._explained(event.reply_code, event.reply_text)}"
            self.counters.refusals += 1
            self.start_later(role, "refused", role.refusal)
            return
        role.lost()
        if role.finished:
            return
        if event.reply_code != ReplyCode.SUCCESS:
            # Closed by this side, for what the server sent: the channel is free with its close-ok.
            self.report("refused", f"{what}: {event.reply_code} {event.reply_text}")
        else:
            self.start_later(role, "retrying", what)

    def _explained(self, code: int, text: str) -> str:
        options = self.link.options
        advice = _ADVICE.get(code, "").format(user=options.user, vhost=options.vhost)
        return f"{code} {text}; {advice}" if advice else f"{code} {text}"

    def _reason_of(self, event: ConnectionClosed) -> str:
        text = event.reply_text
        logged_in = any(role.is_open for role in self._roles.values())
        if not logged_in and (
            event.reply_code == ReplyCode.ACCESS_REFUSED or (event.by_peer and not event.reply_code)
        ):
            # Servers of old just hang up on a wrong password.
            user = self.link.options.user
            text = f"{text}, during login: check user, password and vhost of {user!r}"
        self.login_refused = not logged_in and event.reply_code in (
            ReplyCode.ACCESS_REFUSED,
            ReplyCode.NOT_ALLOWED,
        )
        return self._explained(event.reply_code, text) if event.reply_code not in (0, 403) else text

    def acknowledge(self, channel: int, tag: int) -> None:
        """All up to a delivery tag have been taken care of."""
        self.connection.send_acknowledgement(channel, tag, multiple=True)
        self._roles[channel].has_acknowledged(tag)

    def end(self, reason: str) -> None:
        """The connection is over."""
        if self.ended:
            return
        self.ended = True
        self.reason = reason
        self.intake.end()
        for role in self._roles.values():
            role.lost()
            self.link.host.set_timer(None, _nothing, role)

    def give_up(self, reason: str) -> None:
        """Hang up, and begin with another connection."""
        if self.link.connection is not None:
            self.link.connection.hang_up(reason)

    # To begin, and to begin again

    def start_later(self, role: Role, what: str, detail: str) -> None:
        """A role has been stopped by the server: declare and start it again, after a while."""
        wait = role.backoff.next_wait()
        role.next_try = wait
        self._to_start.pop(role, None)  # not before the wait is over
        self.report(what, detail, wait)

        def again() -> None:
            role.next_try = None
            if role.finished:
                return
            if role is not self.declarations:
                self._to_start[role] = None
            self.declarations.declare()

        self.set_timer(wait, again, role)

    def declared(self) -> None:
        """Everything is declared."""
        self.link.is_usable()
        to_start, self._to_start = self._to_start, {}
        for role in to_start:
            if not role.finished:
                role.start()

    def set_timer(self, wait: float, callback: Callable[[], None], role: Role) -> None:
        """Call back after a while, if the connection is still there."""

        def ring() -> None:
            if not self.ended:
                callback()
                self._finish()

        self.link.host.set_timer(self.link.host.now() + wait, ring, role)

    def report(self, what: str, detail: str = "", next_try: float | None = None) -> None:
        """Tell the operator."""
        self.link.report(what, detail, next_try)

    def finish(self, *, publish: bool) -> bool:
        """At the end of a turn: hand over, publish; return whether there is more to publish at once."""
        if self.ended:
            return False
        self.intake.flush()
        return publish and self.pump()

    def pump(self) -> bool:
        """Publish what there is; return whether there is more."""
        return False


def _nothing() -> None:
    """Never called."""
