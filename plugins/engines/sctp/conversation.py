"""A conversation: an association with its streams, each of which has a port of its own.

A destination whose pipes are full stops one stream, and with it the sources that lead to that stream. The
association itself is read all the time, so that other streams are not delayed.

The life of a conversation: the association comes up; with ``backend`` both sides exchange greetings, which
set the number of streams and their windows; the streams open; when the association ends, the streams give
back what they still have, and the role decides what becomes of the ports.

All calls come from the thread that hosts the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import RemoteProtocolError
from kernel.hosting.lease import Lease
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.framing import Greeting, Kind, decode_greeting, encode_greeting
from plugins.engines.sctp.growing_window import INITIAL
from plugins.engines.sctp.location import bracketed
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.sctp_stream import SctpStream
from plugins.engines.sctp.transport import unpacked
from plugins.protocols.backend.peer_subscriptions import PeerSubscriptions
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.states import OPEN, State

MAX_SUBSCRIPTIONS = 16_384
MAX_SUBSCRIPTION_BYTES = 1024 * 1024
"""Bytes of all patterns of one peer together."""

_REPORTED = {What.PATH_DOWN: "path down", What.PATH_UP: "path up", What.PEER_ERROR: "warning"}


class Role:
    """What the listening and the dialling side do differently."""

    dials: bool

    def open_port(self, conversation: Conversation, index: int) -> Port:
        """Return the port of a stream. Called for all streams in order, without a pause."""
        raise NotImplementedError

    def on_open(self, conversation: Conversation) -> None:
        """The streams have been made."""
        raise NotImplementedError

    def on_end(self, conversation: Conversation, reason: str) -> None:
        """The conversation has ended."""
        raise NotImplementedError


class Conversation:
    """The conversation of one association.

    ``flush`` makes the host send what is due; ``forget`` makes it forget this conversation; ``lend`` may
    offer a lease of the host's socket to an application that sends on this stream.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        options: SctpEngineOptions,
        association: AnyAssociation,
        role: Role,
        *,
        plain: bool,
        flush: Callable[[], Any],
        forget: Callable[[], Any],
        lend: Callable[[Conversation, SctpStream, Lease], Any],
    ) -> None:
        self.association = association
        self.ended = False
        self.streams: list[SctpStream] = []
        self.ports: list[Port] = []
        self.waiting: dict[SctpStream, None] = {}
        """Streams with data that the peer lacks, or that has no room at its destination."""
        self.peer = ""
        self.host = host
        self.options = options
        self.plain = plain
        self.flush = flush
        self._engine = engine
        self._role = role
        self._forget = forget
        self._lend = lend
        self._early: list[Message] = []
        """Messages that overtook the greeting, on other streams."""
        self._subscriptions = PeerSubscriptions(MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTION_BYTES)
        self._refusal_reported = False
        self._name_peer()
        # One timer for the whole of the handshake and the greetings; ``_open`` cancels it.
        host.set_timer(host.now() + options.connect_timeout, self._on_connect_timeout, self)

    def _name_peer(self) -> None:
        path = self.association.paths.all[0]
        self.peer = f"{bracketed(unpacked(path.address))}:{self.association.peer_port}"

    # ------------------------------------------------------------------ life

    def progress(self, now: float) -> None:
        """Process what has happened to the association: messages, events, and room to send."""
        if self.ended:
            return
        association = self.association
        # Messages before events: the last messages of a peer that has closed are delivered before the end.
        self._take_messages(now)
        if association.events:
            events = list(association.events)
            # Emptied first: processing one may add others.
            association.events.clear()
            for event in events:
                self._on_event(event)
        # An event may have ended the conversation.
        if not self.ended:
            for stream in list(self.waiting):
                stream.on_progress()

    def _on_event(self, event: Event) -> None:
        if self.ended:
            return
        if event.what in (What.UP, What.RESTARTED):
            # The first path may be another one since the handshake.
            self._name_peer()
            if self.plain:
                self._open(self.options.streams, Greeting())
            # The dialler greets first, because it decides the number of streams; the listener repeats it
            # (``_on_greeting``).
            elif self._role.dials:
                self._greet(self.options.streams)
        elif event.what in (What.CLOSED, What.LOST):
            closed = "closed by the peer" if event.what is What.CLOSED else "connection lost"
            self.end(event.detail or closed)
        elif event.what is What.SHUTTING_DOWN:
            self._await_shutdown()
        elif event.what in _REPORTED:
            self._report(event)

    def _report(self, event: Event) -> None:
        where = unpacked(event.address) if event.address else ""
        detail = " ".join(filter(None, (where, event.detail)))
        self.host.report(
            EngineEvent(engine=self._engine, what=_REPORTED[event.what], peer=self.peer, detail=detail)
        )

    def end(self, reason: str, left: Sequence[Message] | None = None) -> None:
        """End the conversation, and give the ports back.

        ``left`` are messages that arrived before the peer restarted: the association goes on with another
        conversation.
        """
        if not self.ended:
            # Without confirmations the peer regards as delivered what SCTP acknowledged: deliver it, room or
            # not.
            if self.plain and self.streams:
                self._pass_on(self.association.receive(self.host.now()) if left is None else left)
            # Set before the streams are closed: they must find that nothing can be sent any more.
            self.ended = True
            self.host.set_timer(None, self._on_connect_timeout, self)
            self._forget()
            for stream in self.streams:
                stream.close()
            # Last: the role closes or keeps the ports, for which the streams must have given up their claim.
            self._role.on_end(self, reason)

    def fail(self, reason: str) -> None:
        """Abort the association, and tell the peer why."""
        if not self.ended:
            self.association.abort(reason)
            self.association.events.clear()
            self.end(reason)
            self.flush()

    def close(self) -> None:
        """Shut the association down when the peer has everything; abort it if it is not up yet."""
        if self.association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
            self.fail("shut down")
        elif not self.ended:
            self.association.close(self.host.now())

    def may_send(self) -> bool:
        """Whether the association accepts messages."""
        return not self.ended and self.association.state in OPEN

    def pending(self) -> bool:
        """Whether the peer lacks a message that was taken, or a message waits to be taken."""
        return not self.ended and any(stream.pending() for stream in self.streams)

    def _on_connect_timeout(self) -> None:
        if not self.streams:
            what = "greeting" if self.association.state is State.ESTABLISHED else "answer"
            self.fail(f"no {what} from {self.peer} within {self.options.connect_timeout} s")

    def _await_shutdown(self) -> None:
        """Wait for the end of the peer's shutdown, as long as the peer goes on to acknowledge what it lacks.

        This is shorter than T5-shutdown-guard: nothing more is accepted for this association, and its sources
        wait for another.
        """
        seconds, left = self.association.shutdown_time(), self.association.buffered()

        def on_timeout() -> None:
            if self.association.buffered() < left:
                self._await_shutdown()
            else:
                self.fail(f"the peer's shutdown was not completed within {seconds:.1f} s")

        self.host.set_timer(self.host.now() + seconds, on_timeout, self)

    def lend(self, stream: SctpStream, lease: Lease) -> None:
        """Offer a lease to an application that sends on this stream, if that is possible."""
        if not self.ended:
            self._lend(self, stream, lease)

    # ------------------------------------------------------------------ greeting

    def _greet(self, streams: int) -> None:
        options = self.options
        window = min(INITIAL, options.stream_window)
        greeting = Greeting(streams=streams, window=window, max_message=options.max_message)
        self.send_control(0, Kind.GREETING, encode_greeting(greeting))

    def _on_greeting(self, payload: bytes) -> None:
        if self.streams:
            raise RemoteProtocolError("a second greeting")
        greeting = decode_greeting(payload)
        most = self.options.streams
        if greeting.streams > min(most, self.association.sender.streams):
            raise RemoteProtocolError(
                f"the peer asks for {greeting.streams} streams; {most} is the maximum here"
            )
        if self._role.dials and greeting.streams != most:
            raise RemoteProtocolError(f"the peer grants {greeting.streams} streams; {most} were requested")
        if not self._role.dials:
            self._greet(greeting.streams)
        self._open(greeting.streams, greeting)

    def _open(self, streams: int, greeting: Greeting) -> None:
        self.host.set_timer(None, self._on_connect_timeout, self)
        # With ``plain`` the peer may allow fewer streams than configured: they are shared.
        there_are = self.association.sender.streams
        self.streams = [SctpStream(self, index % there_are) for index in range(streams)]
        # Reported first: what arrives below belongs to a connection that an operator has been told of.
        self._role.on_open(self)
        self.ports = [self._role.open_port(self, index) for index in range(streams)]
        # All ports exist before the first one is used: a route that leads here has the whole group to choose
        # from.
        for stream, port in zip(self.streams, self.ports, strict=True):
            stream.open(port, greeting)
        if not self.plain:
            for pattern in self.options.subscriptions:
                self.send_control(0, Kind.SUBSCRIBE, pattern.encode())
        # In the order of arrival, before anything that comes later.
        early, self._early = self._early, []
        self._pass_on(early)
        for stream in self.streams:
            # Messages may have waited in the pipes of a dialler's ports since the last association.
            stream.on_output()

    # ------------------------------------------------------------------ messages

    def send_control(self, stream: int, kind: Kind, payload: bytes) -> None:
        """Send a control message."""
        if self.may_send():
            self.association.send(stream, payload, kind)

    def refuse(self, why: str) -> None:
        """Report, once, that a message was not sent because the peer does not accept it."""
        if not self._refusal_reported:
            self._refusal_reported = True
            self.host.report(EngineEvent(engine=self._engine, what="refused", peer=self.peer, detail=why))

    def _take_messages(self, now: float) -> None:
        # Without windows per stream, the association's window is the only back-pressure.
        if self.plain and (not self.streams or self._is_full()):
            # Not read: the association's receive window closes, and stops the peer.
            return
        messages = self.association.receive(now)
        if messages:
            try:
                self._pass_on(messages)
            except RemoteProtocolError as error:
                self.fail(f"protocol error: {error}")

    def _is_full(self) -> bool:
        return sum(stream.pending_bytes for stream in self.streams) >= self.options.stream_window

    def _pass_on(self, messages: Sequence[Message]) -> None:
        # Consecutive messages of one stream and kind are decoded and routed in one call.
        for (stream, kind), group in groupby(messages, _stream_and_kind):
            data = [message.data for message in group]
            if self.plain:
                # A peer of another make may use more streams than there are ports here; they are shared.
                self.streams[stream % len(self.streams)].receive(0, data)
            elif kind == Kind.GREETING:
                for payload in data:
                    self._on_greeting(payload)
            # The greeting is on stream 0, and SCTP keeps the order within a stream only.
            elif not self.streams:
                self._keep_early(stream, kind, data)
            elif kind == Kind.SUBSCRIBE:
                self._subscribe(data)
            elif stream < len(self.streams):
                self.streams[stream].receive(kind, data)
            else:
                raise RemoteProtocolError(f"stream {stream} of {len(self.streams)}")
            if self.ended:
                return

    def _subscribe(self, patterns: list[bytes]) -> None:
        """Subscribe at all ports: each source has one stream only, so that a pattern concerns all of them."""
        for payload in patterns:
            self._subscriptions.subscribe(payload)
        for _, pattern in self._subscriptions.news:
            for port in self.ports:
                port.subscribe(pattern)
        self._subscriptions.news.clear()

    def _keep_early(self, stream: int, kind: int, data: list[bytes]) -> None:
        """Keep messages that overtook the greeting. Raises ``RemoteProtocolError`` if they are too many."""
        self._early += [Message(stream=stream, data=each, protocol=kind) for each in data]
        # The windows of the streams do not hold yet, so that this needs a limit of its own.
        if sum(len(message.data) for message in self._early) > 4 * min(INITIAL, self.options.stream_window):
            raise RemoteProtocolError("too many messages before the greeting")


def _stream_and_kind(message: Message) -> tuple[int, int]:
    return message.stream, message.protocol
