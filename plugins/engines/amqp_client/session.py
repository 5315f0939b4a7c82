"""Session: what a client does on one connection.

After the login it declares exchanges, queues and bindings (``Declarations``, channel 1).  Then it starts the
other channel handlers: a ``Publisher``, or a ``Consumer`` for each queue.  When the server closes a channel,
or cancels a consumer, the session declares everything again after a wait, because the reason may be that
something was deleted, and then starts the handler again.  When the connection ends, so does the session; the
next connection has a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kernel.contracts.engine import Port
from kernel.contracts.message import Buffer
from plugins.engines.amqp_client.channel_handler import ChannelHandler
from plugins.engines.amqp_client.declarations import Declarations, MakeRequests
from plugins.engines.amqp_client.inbound_buffer import InboundBuffer
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
    ReplyCode.RESOURCE_LOCKED: "another connection uses it exclusively: use another name",
    ReplyCode.PRECONDITION_FAILED: "it exists with other settings: use the same here, or passive = true",
    ReplyCode.NOT_ALLOWED: "see what the server allows user {user!r} in virtual host {vhost!r}",
}


class Session:
    """The state of one connection."""

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
        self.finished = False
        """Whether the wire may be closed when everything is written."""
        self.written = None
        self.next_deadline = connection.next_deadline
        """When a heartbeat is due, or the server counts as lost."""
        self.refused_with = ""
        """The reply code with which the server has refused the login; empty: it has not."""
        self.blocked = ""
        """Why the server accepts no messages now (connection.blocked); empty: it does."""
        self.unblocked_at = 0.0
        """When it last sent connection.unblocked, in seconds of the host's clock."""
        self.inbound = InboundBuffer(self)
        self.declarations = Declarations(self, 1, make_requests)
        self._finish = finish
        self._handlers: dict[int, ChannelHandler] = {1: self.declarations}
        self._to_start: dict[ChannelHandler, None] = {}
        """The handlers to start when everything is declared; a dict, because it keeps their order."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.link.name}, {list(self._handlers.values())}>"

    def add(self, handlers: Iterable[ChannelHandler]) -> None:
        """Add handlers that start when everything is declared."""
        for handler in handlers:
            self._handlers[handler.channel] = handler
            self._to_start[handler] = None

    @property
    def stops_reading(self) -> bool:
        """Whether the socket must not be read now."""
        return False

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has neither confirmed nor refused."""
        return 0

    @property
    def refusal(self) -> str:
        """What the server refuses; the first refusal if there are several.  Empty: nothing."""
        # A copy of the handlers, because another thread may ask (``Link.row``).
        return next((handler.refusal for handler in list(self._handlers.values()) if handler.refusal), "")

    @property
    def next_try(self) -> float | None:
        """Seconds of the shortest wait after which a refused channel is tried again; None: none waits."""
        times = [
            handler.next_try for handler in list(self._handlers.values()) if handler.next_try is not None
        ]
        return min(times, default=None)

    # Called by the connection host.

    def handle(self, events: list[Event]) -> None:
        """Process the events of what the server has sent."""
        for event in events:
            # The frequent events come first: each test that fails costs time.
            if isinstance(event, Delivered):
                self._handlers[event.channel].delivered(event)
            elif isinstance(event, Acknowledged):
                self._handlers[event.channel].acknowledged(event)
            elif isinstance(event, MethodReceived):
                self._method(event.channel, event.method)
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        if isinstance(event, Rejected):
            self._handlers[event.channel].rejected(event)
        elif isinstance(event, Returned):
            self._handlers[event.channel].returned(event)
        elif isinstance(event, ConnectionOpened):
            self.opened(event)
        elif isinstance(event, ChannelOpened):
            # Before ``opened``: a handler may send at once.
            self._handlers[event.channel].is_open = True
            self._handlers[event.channel].opened()
        elif isinstance(event, ChannelClosed):
            self._channel_closed(event)
        elif isinstance(event, ConnectionClosed):
            self.end(self._reason_of(event))
        elif isinstance(event, ChallengeReceived):
            self.connection.close(
                ReplyCode.NOT_IMPLEMENTED, f"{self.link.options.mechanism} has no challenge"
            )

    def opened(self, event: ConnectionOpened) -> None:
        """The login is complete: declare everything."""
        self.declarations.declare()

    def declaration_refused(self, what: str, code: int) -> None:
        """The server has refused a declaration; it is tried again later.  For subclasses."""

    def _method(self, channel: int, method: Method) -> None:
        if channel:
            self._handlers[channel].received(method)
        elif isinstance(method, connection_methods.Blocked):
            self.blocked = f"the server takes no messages for now: {method.reason}"
            self.report("blocked", self.blocked)
        elif isinstance(method, connection_methods.Unblocked):
            self.blocked = ""
            self.unblocked_at = self.link.host.now()
            self.report("unblocked")

    def _channel_closed(self, event: ChannelClosed) -> None:
        handler = self._handlers[event.channel]
        what = handler.name
        if event.by_peer:
            # ``refused`` needs to know what was in flight, which ``lost`` forgets.
            handler.refused(event.reply_code)
            handler.lost()
            # After ``refused``, which may clear it (``works``).
            handler.refusal = f"{what}: {self._with_advice(event.reply_code, event.reply_text)}"
            self.counters.refusals += 1
            self.start_later(handler, "refused", handler.refusal, str(int(event.reply_code)))
            return
        handler.lost()
        if handler.finished:
            return
        if event.reply_code != ReplyCode.SUCCESS:
            # The protocol has closed the channel because of what the server sent.  Its number is free only
            # after the server's close-ok, for which a second event comes.
            self.report("refused", f"{what}: {event.reply_code} {event.reply_text}")
        else:
            self.start_later(handler, "retrying", what)

    def _with_advice(self, code: int, text: str) -> str:
        options = self.link.options
        advice = _ADVICE.get(code, "").format(user=options.user, vhost=options.vhost)
        return f"{code} {text}; {advice}" if advice else f"{code} {text}"

    def _reason_of(self, event: ConnectionClosed) -> str:
        text = event.reply_text
        # No channel can be open before the login is complete.
        logged_in = any(handler.is_open for handler in self._handlers.values())
        if not logged_in and (
            event.reply_code == ReplyCode.ACCESS_REFUSED or (event.by_peer and not event.reply_code)
        ):
            # A server that does not know the capability authentication_failure_close just closes the wire.
            user = self.link.options.user
            text = f"{text}, during login: check user, password and vhost of {user!r}"
        if not logged_in and event.reply_code in (ReplyCode.ACCESS_REFUSED, ReplyCode.NOT_ALLOWED):
            self.refused_with = str(int(event.reply_code))
        # For a refused login the text above says what to check.  0 is a wire that was closed.
        return self._with_advice(event.reply_code, text) if event.reply_code not in (0, 403) else text

    def acknowledge(self, channel: int, tag: int) -> None:
        """Acknowledge all messages of a channel up to a delivery tag."""
        self.connection.send_acknowledgement(channel, tag, multiple=True)
        self._handlers[channel].has_acknowledged(tag)

    def end(self, reason: str) -> None:
        """The connection has ended."""
        if self.ended:
            return
        self.ended = True
        self.reason = reason
        self.inbound.end()
        for handler in self._handlers.values():
            handler.lost()
            # Timers are kept by their key, which is the handler.  None cancels.
            self.link.host.set_timer(None, _nothing, handler)

    def give_up(self, reason: str) -> None:
        """Close the connection; the link then opens another one."""
        if self.link.connection is not None:
            self.link.connection.hang_up(reason)

    # Starting handlers.

    def start_later(self, handler: ChannelHandler, what: str, detail: str, code: str = "") -> None:
        """The server has stopped a handler: declare everything and start it again, after a wait.

        ``what``, ``detail`` and ``code`` are those of the event.
        """
        wait = handler.backoff.next_wait()
        handler.next_try = wait
        # Declarations for another handler may be complete before the wait is over.  They must not start this
        # one.
        self._to_start.pop(handler, None)
        self.report(what, detail, wait, code)

        def again() -> None:
            handler.next_try = None
            if handler.finished:
                return
            # ``declare`` below starts that handler by itself.
            if handler is not self.declarations:
                self._to_start[handler] = None
            self.declarations.declare()

        self.set_timer(wait, again, handler)

    def declared(self) -> None:
        """Everything is declared: start the handlers that wait for it."""
        self.link.is_usable()
        # Starting a handler may end in ``start_later``, which adds to the dict: so it is replaced first.
        to_start, self._to_start = self._to_start, {}
        for handler in to_start:
            if not handler.finished:
                handler.start()

    def set_timer(self, wait: float, callback: Callable[[], None], handler: ChannelHandler) -> None:
        """Call ``callback`` after ``wait`` seconds, unless the connection has ended by then."""

        def ring() -> None:
            # The timer belongs to the host and outlives the session.
            if not self.ended:
                callback()
                self._finish()

        self.link.host.set_timer(self.link.host.now() + wait, ring, handler)

    def report(self, what: str, detail: str = "", next_try: float | None = None, code: str = "") -> None:
        """Report an event to the operator."""
        self.link.report(what, detail, next_try, code)

    def take_output(self, *, publish: bool) -> tuple[Sequence[Buffer], bool]:
        """End a turn: send consumed messages to the routes, and publish.

        Return what has to be written, and whether more messages wait to be published.
        """
        more = False
        if not self.ended:
            self.inbound.flush()
            more = publish and self.pump()
        data = self.connection.data_to_send()
        self.finished = self.connection.closed()
        return data, more

    def pump(self) -> bool:
        """Publish messages that wait; return whether more of them wait.  For subclasses."""
        return False


def _nothing() -> None:
    """A callback for a timer that is only cancelled."""
