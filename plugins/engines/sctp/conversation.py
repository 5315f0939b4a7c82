"""A conversation: an association and its lanes, one for each stream each way.

A lane has a port of its own.  So a destination that takes nothing stops one lane, and with it the sources that lead to it; the
association is read all the time, and the other lanes notice nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import RemoteProtocolError
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.carrier import unpacked
from plugins.engines.sctp.framing import Greeting, Kind, decode_greeting, encode_greeting
from plugins.engines.sctp.lane import Lane
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.place import bracketed
from plugins.protocols.backend.peer_subscriptions import PeerSubscriptions
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.states import OPEN, State

GUARD = 2.0
"""Seconds that a peer's good-bye may take."""
MOST_SUBSCRIPTIONS = 16_384
SUBSCRIPTION_BYTES = 1024 * 1024
"""Of a peer's patterns together."""

_TOLD = {What.PATH_DOWN: "path down", What.PATH_UP: "path up", What.PEER_ERROR: "warning"}


class Role:
    """What the side that listens and the side that dials do in their own way."""

    dials: bool

    def open_port(self, conversation: Conversation, index: int) -> Port:
        """Give a lane its port.  Called for all of them in order, without a pause."""
        raise NotImplementedError

    def on_open(self, conversation: Conversation) -> None:
        """The lanes are there."""
        raise NotImplementedError

    def on_end(self, conversation: Conversation, reason: str) -> None:
        """It is over."""
        raise NotImplementedError


class Conversation:
    """One association.  ``flush`` has its host send what there is to send, ``forget`` has it know no more of this."""

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
    ) -> None:
        self.association = association
        self.ended = False
        self.lanes: list[Lane] = []
        self.ports: list[Port] = []
        self.waiting: dict[Lane, None] = {}
        """Lanes with something that the peer lacks, or that has no room."""
        self.peer = ""
        self.host = host
        self.options = options
        self.plain = plain
        self.flush = flush
        self._engine = engine
        self._role = role
        self._forget = forget
        self._held: list[Message] = []  # before the greeting, on other streams
        self._subscriptions = PeerSubscriptions(MOST_SUBSCRIPTIONS, SUBSCRIPTION_BYTES)
        self._told_refusal = False
        self._name_peer()
        host.set_timer(host.now() + options.connect_timeout, self._not_open, self)

    def _name_peer(self) -> None:
        path = self.association.paths.all[0]
        self.peer = f"{bracketed(unpacked(path.address))}:{self.association.peer_port}"

    # ------------------------------------------------------------------ life

    def progress(self, now: float) -> None:
        """See what has become of the association."""
        if self.ended:
            return
        association = self.association
        self._take_messages(now)
        if association.events:
            events = list(association.events)
            association.events.clear()
            for event in events:
                self._on_event(event)
        if not self.ended:
            for lane in list(self.waiting):
                lane.on_progress()

    def _on_event(self, event: Event) -> None:
        if self.ended:
            return
        if event.what in (What.UP, What.RESTARTED):
            self._name_peer()
            if self.plain:
                self._open(self.options.streams, Greeting())
            elif self._role.dials:
                self._greet(self.options.streams)
        elif event.what in (What.CLOSED, What.LOST):
            closed = "closed by the peer" if event.what is What.CLOSED else "connection lost"
            self.end(event.detail or closed)
        elif event.what is What.SHUTTING_DOWN:
            self.host.set_timer(self.host.now() + GUARD, self._not_closed, self)
        elif event.what in _TOLD:
            self._report(event)

    def _report(self, event: Event) -> None:
        where = unpacked(event.address) if event.address else ""
        detail = " ".join(filter(None, (where, event.detail)))
        self.host.report(
            EngineEvent(engine=self._engine, what=_TOLD[event.what], peer=self.peer, detail=detail)
        )

    def end(self, reason: str, left: Sequence[Message] | None = None) -> None:
        """It is over: give the ports back.  ``left``: the association goes on with another, and this is what came for us."""
        if not self.ended:
            if self.plain and self.lanes:  # the peer takes it for delivered
                self._pass_on(self.association.receive(self.host.now()) if left is None else left)
            self.ended = True
            self.host.set_timer(None, self._not_open, self)
            self._forget()
            for lane in self.lanes:
                lane.close()
            self._role.on_end(self, reason)

    def fail(self, reason: str) -> None:
        """End it, and tell the peer why."""
        if not self.ended:
            self.association.abort(reason)
            self.association.events.clear()
            self.end(reason)
            self.flush()

    def close(self) -> None:
        """Say good-bye when the peer has everything; if it is not there yet, at once."""
        if self.association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
            self.fail("shut down")
        elif not self.ended:
            self.association.close(self.host.now())

    def may_send(self) -> bool:
        """Whether the association takes messages."""
        return not self.ended and self.association.state in OPEN

    def pending(self) -> bool:
        """Whether the peer lacks something that was taken, or something waits to be taken."""
        return not self.ended and any(lane.pending() for lane in self.lanes)

    def _not_open(self) -> None:
        if not self.lanes:
            what = "greeting" if self.association.state is State.ESTABLISHED else "answer"
            self.fail(f"no {what} from {self.peer} within {self.options.connect_timeout} s")

    def _not_closed(self) -> None:
        self.fail("its good-bye came to no end")

    # ------------------------------------------------------------------ greeting

    def _greet(self, streams: int) -> None:
        options = self.options
        greeting = Greeting(streams=streams, window=options.stream_window, max_message=options.max_message)
        self.tell(0, Kind.GREETING, encode_greeting(greeting))

    def _on_greeting(self, payload: bytes) -> None:
        if self.lanes:
            raise RemoteProtocolError("a second greeting")
        greeting = decode_greeting(payload)
        most = self.options.streams
        if greeting.streams > min(most, self.association.sender.streams):
            raise RemoteProtocolError(f"{greeting.streams} streams are wanted, and {most} is the most here")
        if self._role.dials and greeting.streams != most:
            raise RemoteProtocolError(f"{greeting.streams} streams were granted, {most} were wanted")
        if not self._role.dials:
            self._greet(greeting.streams)
        self._open(greeting.streams, greeting)

    def _open(self, streams: int, greeting: Greeting) -> None:
        self.host.set_timer(None, self._not_open, self)
        there_are = self.association.sender.streams  # with ``plain`` there may be fewer than we want
        self.lanes = [Lane(self, index % there_are) for index in range(streams)]
        self._role.on_open(self)
        self.ports = [self._role.open_port(self, index) for index in range(streams)]
        for lane, port in zip(self.lanes, self.ports, strict=True):
            lane.open(port, greeting)
        if not self.plain:
            for pattern in self.options.subscriptions:
                self.tell(0, Kind.SUBSCRIBE, pattern.encode())
        held, self._held = self._held, []
        self._pass_on(held)
        for lane in self.lanes:
            lane.on_output()

    # ------------------------------------------------------------------ messages

    def tell(self, stream: int, kind: Kind, payload: bytes) -> None:
        """Send words of our own."""
        if self.may_send():
            self.association.send(stream, payload, kind)

    def refuse(self, why: str) -> None:
        """Tell, once, that a message was not sent because the peer would not take it."""
        if not self._told_refusal:
            self._told_refusal = True
            self.host.report(EngineEvent(engine=self._engine, what="refused", peer=self.peer, detail=why))

    def _take_messages(self, now: float) -> None:
        if self.plain and (not self.lanes or self._is_full()):
            return  # the association's window will fill, and tell the peer
        messages = self.association.receive(now)
        if messages:
            try:
                self._pass_on(messages)
            except RemoteProtocolError as error:
                self.fail(f"protocol error: {error}")

    def _is_full(self) -> bool:
        return sum(lane.held_bytes for lane in self.lanes) >= self.options.stream_window

    def _pass_on(self, messages: Sequence[Message]) -> None:
        for (stream, kind), group in groupby(messages, _stream_and_kind):
            data = [message.data for message in group]
            if self.plain:
                self.lanes[stream % len(self.lanes)].receive(0, data)
            elif kind == Kind.GREETING:
                for payload in data:
                    self._on_greeting(payload)
            elif not self.lanes:
                self._hold(stream, kind, data)
            elif kind == Kind.SUBSCRIBE:
                self._subscribe(data)
            elif stream < len(self.lanes):
                self.lanes[stream].receive(kind, data)
            else:
                raise RemoteProtocolError(f"stream {stream} of {len(self.lanes)}")
            if self.ended:
                return

    def _subscribe(self, patterns: list[bytes]) -> None:
        """What the peer wants, it may have on any stream: a source has one of them."""
        for payload in patterns:
            self._subscriptions.subscribe(payload)
        for _, pattern in self._subscriptions.news:
            for port in self.ports:
                port.subscribe(pattern)
        self._subscriptions.news.clear()

    def _hold(self, stream: int, kind: int, data: list[bytes]) -> None:
        """Keep what has overtaken the greeting."""
        self._held += [Message(stream=stream, data=each, protocol=kind) for each in data]
        if sum(len(message.data) for message in self._held) > 4 * self.options.stream_window:
            raise RemoteProtocolError("messages, and no greeting")


def _stream_and_kind(message: Message) -> tuple[int, int]:
    return message.stream, message.protocol
