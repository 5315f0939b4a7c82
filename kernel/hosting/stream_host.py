"""Stream host: the one place where a sans-I/O stream protocol meets a port.

The connection has the wire, the descriptor and the timer (``connection.py``, where the theory is).  The
stream host passes bytes to the protocol and batches to the port, and back.  Everything here runs in the
thread of the engine; only ``own_counters`` may be called by others.

Back-pressure
    While the socket is full, nothing is taken from the pipes.  While a pipe is full, nothing is read from the
    socket.  A protocol adds two conditions of its own: ``ready_to_send``, and credit (``Crediting``).  If
    messages wait for one of these, ``withheld`` is true, and ``_after`` looks again after each input and
    each deadline, since nothing else can change them.

The order in a turn
    After input the protocol may have messages, subscriptions, confirmations, answers, a login and a wish for
    TLS, all from the same bytes.  ``_after`` looks at them in this order: login; port; subscriptions;
    confirmations; output; end; TLS.  The port comes first of what needs one.  The output comes before the
    end, because the last answer explains it to the peer, and before TLS, because it belongs to the plain
    part.

Before the port is open
    The port is opened when the handshake is over, since a ``Named`` protocol knows only then what it is
    called.  Messages that arrive earlier wait in ``_early``.  They are dropped if the peer has to log in and
    is refused, and passed on otherwise, even if the conversation has ended in the meantime: the peer believes
    them sent.

Two numberings
    The peer counts the messages of one conversation.  The port counts those of its whole life, which has many
    conversations at a dialler.  ``_base_in`` and ``_base_out`` convert between them; both are set anew in
    each conversation, since each has a stream host of its own (docs/decisions/0019-positions.md).

Who confirms
    If a route confirms, a received message is confirmed to the peer when every destination has confirmed it
    (``on_confirmed``).  If none does, it is confirmed once it is in the pipes.  In the other direction the
    protocol says up to where the peer has confirmed.  For a protocol without confirmations a message counts
    as confirmed when the operating system has all of its bytes (``_written``).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.counts import counted
from kernel.contracts.engine import NOTHING_TAKEN, Host, Port, Taken
from kernel.contracts.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import Batch, Buffer
from kernel.contracts.protocol import (
    Answering,
    Authenticating,
    ConnectionFacts,
    Crediting,
    HoldsBack,
    LargeBodies,
    Login,
    Mixing,
    Named,
    Observable,
    Refusal,
    Refusing,
    ShortMessages,
    StreamProtocol,
    Subscribing,
    Syncing,
    Told,
    ToldOfSubscriptions,
    UpgradesToTls,
)
from kernel.contracts.router import Outlet
from kernel.dispatcher.port import Port as DispatcherPort
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.facts import facts_of
from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.lease import Lease
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.hosting.protocol_mistakes import BATCHES, BUFFERS, TRUTH, refuse_buffers, wrong_answer
from kernel.hosting.stream_half import StreamHalf
from kernel.hosting.stream_statistics import StreamStatistics
from kernel.hosting.wire import PlainWire, Wire

BATCH_BYTES = 256 * 1024
"""About how many bytes are taken from the pipes, encoded and written at a time."""

BATCHES_A_TURN = 8
"""How many times one connection may take and write before other engines have their turn."""


Decide: TypeAlias = Callable[[str | None], None]
"""Accepts a peer (None), or refuses it for a reason.  To be called once, in the host's thread, at once or
later."""


StartTls: TypeAlias = Callable[[socket.socket], Awaitable[Wire]]
"""Does the TLS handshake on a socket in the middle of its conversation (``Handshakes.start_tls``)."""


def _nothing() -> None:
    """What a port calls that nobody has a lease of."""


def _bare(port: Any) -> Any:
    """Return the port itself, without what an engine has put around it."""
    return getattr(port, "bare", port)


def _refuse_login(_: Login, decide: Decide) -> None:
    decide("this engine has no authentication")


_OPTIONAL = (
    Answering,
    Authenticating,
    Crediting,
    HoldsBack,
    LargeBodies,
    Mixing,
    Named,
    Observable,
    Refusing,
    ShortMessages,
    Subscribing,
    Syncing,
    Told,
    ToldOfSubscriptions,
    UpgradesToTls,
)
_offers: dict[type, frozenset[type]] = {}


def _offered_by(protocol: StreamProtocol) -> frozenset[type]:
    """Return which optional interfaces a protocol offers.

    The answer is cached for each class: ``isinstance`` takes 10 us here, which matters when many peers
    connect at once.
    """
    offers = _offers.get(type(protocol))
    if offers is None:
        offers = frozenset([each for each in _OPTIONAL if isinstance(protocol, each)])
        _offers[type(protocol)] = offers
    return offers


class StreamHost(ConnectionOwner):
    """One conversation.  ``on_end(stream_host, reason)`` is called once, when it is over, for any reason.

    ``on_login(login, decide)`` is called when an ``Authenticating`` protocol has a login; without it every
    login is refused. The peer is told of a refusal after ``LOGIN_DELAY`` seconds. ``start_tls`` is for a
    protocol that ``UpgradesToTls``, ``shared`` for one that is ``Told`` of its connection.
    ``on_refused(why)`` is called at the first message that is not sent because the peer would not take it, or
    because the protocol has raised ``LocalProtocolError``.
    """

    # Messages of this conversation.
    received: int = 0
    sent: int = 0
    # The number of a received message in this conversation is ``_base_in`` + its position at the port.
    _base_in = 0
    # The position of a taken message at the port is ``_base_out`` + its number in this conversation.
    # None: no message that needs a confirmation was sent.
    _base_out: int | None = None
    # The position of the last message that is encoded and not written yet.
    _unwritten: int | None = None
    # The mean size of the bodies of the last batch; a guess before the first one.
    _body_size = 128
    withheld: bool = False
    """Whether messages may wait in the pipes because the protocol is not ready for them, or has no credit."""
    # Whether readers have changed their subscriptions while the protocol was not ready.
    _patterns_late = False
    # The number of the last question whether subscriptions are in effect (``Syncing``).
    _sync_number = 0

    def __init__(
        self,
        host: Host,
        wire: Wire,
        protocol: StreamProtocol,
        *,
        peer: str,
        counters: StreamStatistics,
        open_port: Callable[[StreamHost], Port],
        on_open: Callable[[], Any],
        on_end: Callable[[StreamHost, str], Any],
        on_refused: Callable[[str], Any] | None = None,
        patterns: PeerPatterns | None = None,
        forward_subscriptions: bool = True,
        on_login: Callable[[Login, Decide], Any] | None = None,
        start_tls: StartTls | None = None,
        shared: dict[str, Any] | None = None,
    ) -> None:
        self.peer = peer
        self._host = host
        self._protocol = protocol
        self._counters = counters
        self._open_port = open_port
        self._on_open = on_open
        self._on_end = on_end
        self._on_refused = on_refused
        offered = _offered_by(protocol)
        # Not ``StreamProtocol``: what it offers is known by ``offered`` only.
        each: Any = protocol
        self._large: LargeBodies | None = each if LargeBodies in offered else None
        self._refusing: Refusing | None = each if Refusing in offered else None
        # Credit is for single messages, and answers are.
        self._mixes = Mixing in offered and not offered & {Answering, Crediting}
        if self._mixes:
            each.mixing = True
        self._crediting: Crediting | None = each if Crediting in offered else None
        self._answering: Answering | None = each if Answering in offered else None
        self._told_of_subscriptions: ToldOfSubscriptions | None = (
            each if ToldOfSubscriptions in offered else None
        )
        self._subscribing: Subscribing | None = None
        if forward_subscriptions:
            self._subscribing = each if Subscribing in offered else None
        # What this conversation has subscribed to at the peer.
        self._subscribed_to: set[str] = set()
        self._short: ShortMessages | None = each if ShortMessages in offered else None
        self._holding: HoldsBack | None = each if HoldsBack in offered else None
        self._syncing: Syncing | None = each if Syncing in offered else None
        # Questions that the peer has not answered: number and hops.
        self._syncs: dict[int, int] = {}
        self._named: Named | None = each if Named in offered else None
        self._observable: Observable | None = each if Observable in offered else None
        self._authenticating: Authenticating | None = each if Authenticating in offered else None
        self._on_login = on_login or _refuse_login
        # False from the peer's login until it is accepted.
        self._accepted = True
        # What has been refused is answered when this is due.
        self._refusal: LazyTimer | None = None
        self._upgrading: UpgradesToTls | None = each if UpgradesToTls in offered else None
        self._told: Told | None = each if Told in offered else None
        self._start_tls = start_tls
        self._shared = {} if shared is None else shared
        self._patterns = patterns or PeerPatterns()
        self._port: Port | None = None
        # Received before the port was opened.
        self._early: list[Batch] = []
        # Taken from the pipes, while the peer has not given credit for it.
        self._over_credit = NOTHING_TAKEN
        self._connection = Connection(host, wire, self, large=self._large)

    # ------------------------------------------------------------------ life

    @property
    def ended(self) -> bool:
        """Whether the conversation is over."""
        return self._connection.ended

    @property
    def peer_name(self) -> str:
        """The name that the peer has given, or else its address."""
        return (self._named.peer_name if self._named is not None else "") or self.peer

    @property
    def peer_options(self) -> dict[str, Any]:
        """Options for the port, from what the peer has said."""
        return dict(self._named.peer_options) if self._named is not None else {}

    def start(self) -> None:
        """Begin the conversation."""
        # Before anything else: the protocol may greet with what it learns here.
        if self._told is not None:
            self._told.on_connection(self._facts())
        # Before anything is sent: the peer may be told in the greeting.
        if self._syncing is not None:
            self._syncing.offer_sync(self._on_peer_asks, self._on_peer_answers)
        # The first call of the conversation: it tells the protocol the time.
        self._protocol.handle_timeout(self._host.now())
        connection = self._connection
        connection.start()
        connection.read_first()
        # A client may have something to send before anything was received.
        if not connection.ended:
            self._after()

    def close(self, reason: str) -> None:
        """End the conversation in good order."""
        if not self.ended:
            self._protocol.close(reason, self._host.now())
            self._close(reason)

    def pending(self) -> bool:
        """Whether something waits to be written."""
        if self._connection.writing or self._over_credit:
            return True
        return self._port is not None and self._port.has_input()

    def _close(self, reason: str) -> None:
        """Write the last bytes of the protocol, and close the connection."""
        # What the protocol has to say at the end, such as the reason of a refusal.
        last_words = self._protocol.data_to_send()
        self._counters.bytes_out += sum(map(len, last_words))
        self._connection.close(reason, last_words)

    def _fail(self, error: RemoteProtocolError) -> None:
        self._counters.protocol_errors += 1
        # Messages that were complete before the fault count as received, so that the peer need not repeat
        # them.
        self._deliver(error.batches)
        self._deliver_early()
        # A protocol writes its own error frame, if it has one; the reason here is for the operator.
        self._close(f"protocol error: {error}")

    # ------------------------------------------------------------------ from the connection

    def on_data(self, data: bytes, now: float) -> None:
        """Give bytes to the protocol, and its messages to the routes."""
        self._counters.bytes_in += len(data)
        try:
            batches = self._protocol.receive_data(data, now)
        except RemoteProtocolError as error:
            self._fail(error)
            return
        if batches:
            self._deliver(batches)
        elif batches is None:
            raise wrong_answer(self._protocol, "receive_data", None, BATCHES)
        self._after()

    def on_filled(self, count: int, now: float) -> None:
        """Tell the protocol that bytes were received into the buffer of a large body."""
        assert self._large is not None
        self._counters.bytes_in += count
        try:
            batches = self._large.filled(count, now)
        except RemoteProtocolError as error:
            self._fail(error)
            return
        if batches:
            self._deliver(batches)
        self._after()

    def on_eof(self, now: float) -> None:
        """End the conversation, because the peer sends no more."""
        try:
            self._protocol.receive_eof(now)
        except RemoteProtocolError as error:
            self._fail(error)
        else:
            self._close("closed by the peer")

    def on_written(self) -> None:
        """Go on sending when all that waited was written."""
        if not self._connection.writing:
            # Before ``on_output``, which may fill the socket again: newer messages are not written yet.
            self._written()
            self.on_output()
            if self._upgrading is not None:
                self._look_for_upgrade(self._upgrading)

    def next_deadline(self) -> float | None:
        """Return the deadline of the protocol."""
        return self._protocol.next_deadline()

    def on_deadline(self, now: float) -> None:
        """Let the protocol do what is due."""
        try:
            self._protocol.handle_timeout(now)
        except RemoteProtocolError as error:
            self._fail(error)
        else:
            self._after()

    def on_not_read(self, now: float) -> None:
        """Tell the protocol the time as if the peer had sent something: it is not the peer that is silent."""
        self.on_data(b"", now)

    def on_ended(self, reason: str) -> None:
        """Tell the engine that the conversation is over."""
        if self._refusal is not None:
            self._refusal.end()
        # The port of a dialler goes on, and would remember the questions of all its earlier peers.
        if self._port is not None:
            self._port.forget_when_subscribed()
            port = _bare(self._port)
            if isinstance(port, DispatcherPort):
                port.on_topology = _nothing
        self._on_end(self, reason)

    def on_subscribed(self) -> None:
        """What the peer has subscribed to is in effect."""
        if self._told_of_subscriptions is not None and not self.ended:
            self._told_of_subscriptions.subscribed(self._host.now())
            self._flush()
            self._connection.arm(self._protocol.next_deadline())

    # ------------------------------------------------------------------ for operators

    def own_counters(self) -> Mapping[str, int]:
        """What the protocol counts itself.  Any thread."""
        return self._observable.counters() if self._observable is not None else {}

    def inspect(self) -> dict[str, Any]:
        """Return the row of this conversation in the table ``connections``."""
        connection = self._connection
        row: dict[str, Any] = {
            "name": self._port.name if self._port is not None else self.peer,
            "client": self.peer,
            "state": "closed" if self.ended else "handshake" if self._port is None else "running",
            "recv_oct": connection.bytes_in,
            "send_oct": connection.bytes_out,
            "send_pend": connection.unwritten,
            "messages_in": self.received,
            "messages_out": self.sent,
        }
        if self._observable is not None:
            row |= {**self._observable.status(), **self._observable.counters()}
        return row

    # ------------------------------------------------------------------ messages from the peer

    def _deliver(self, batches: Any) -> None:
        """Pass messages on to the routes."""
        count = 0
        try:
            for batch in batches:
                count += len(batch.bodies)
        except (AttributeError, TypeError):
            raise wrong_answer(self._protocol, "receive_data", batches, BATCHES) from None
        self.received += count
        self._counters.messages_in += count
        port = self._port
        if port is None:
            self._early += batches
        elif batches:
            self._pass_on(port, batches)

    def _pass_on(self, port: Port, batches: Any) -> None:
        if self._answering is not None:
            unrouted = [batch for batch in batches if not port.wants(batch)]
            if unrouted:
                self._answering.unrouted(unrouted, self._host.now())
        if not port.send(batches):
            # What was sent is accepted all the same: a pipe may exceed its high mark by what one read has
            # brought.
            self._connection.pause(Pause.ROUTES_FULL)
        if not port.confirms:
            # No route confirms, so to have put the messages into the pipes is all that can be done.
            self._protocol.confirm(self.received)
            # A route that confirms may be added later, and then ``on_confirmed`` begins to count here.
            self._base_in = self.received - port.sent()

    def on_writable(self) -> None:
        """Read again: the pipes have room."""
        self._connection.resume(Pause.ROUTES_FULL)

    def on_confirmed(self, position: int) -> None:
        """Confirm to the peer what every destination has confirmed."""
        count = self._base_in + position
        # With 0 and below, the messages are those of an earlier conversation, whose peer cannot be told any
        # more.
        if not self.ended and count > 0:
            self._protocol.confirm(count)
            self._flush()

    def on_lease_asked(self, lease: Lease) -> None:
        """Lend the connection to an application thread that exchanges all messages with this peer alone.

        Or with this one and another, if what it sends goes here and what it receives comes from there.
        """
        # Who takes addressed messages knows under which envelope they come: that of the last one.
        port = _bare(self._port) if lease.addressed else self._port
        half = self._half(addressed=lease.addressed)
        # Bytes that are only written, or only read, are fewer calls of the system in large pieces.
        if (
            half is None
            or not isinstance(port, DispatcherPort)
            or lease.source is None
            or lease.outgoing is None
        ):
            return
        if lease.sends is None:
            lease.sends = half
            if lease.source is not port:
                # An answer goes to the peer whose question was read. While peers join and leave, there may be
                # a moment in which one has only the pipe from here, and another one only the pipe to here.
                if lease.addressed:
                    return
                lease.source.post(partial(lease.source.lend, lease))
                return
        incoming = port.short_cut()
        if (
            lease.source is port
            # One lock has to exclude the thread of both.
            and lease.sends.holder is half.holder
            and incoming is not None
            and lease.reader_of(incoming) is lease.port
        ):
            lease.offer(lease.sends, half, incoming, self._host.post)
            port.on_topology = lease.end_soon

    def _half(self, *, addressed: bool) -> StreamHalf | None:
        """Return what a lease needs of this conversation; None if it cannot be lent.

        ``addressed``: whether questions and answers can be told apart by whoever has the lease.
        """
        port, short, connection = self._port, self._short, self._connection
        lend_turn = getattr(self._host, "lend_turn", None)
        if (
            port is None
            or short is None
            or connection.wire.connected is None
            or lend_turn is None
            or type(connection.wire) is not PlainWire
            or connection.ended
            # Positions and credit need a look at each message. Of questions only one is open at a time.
            or self._base_out is not None
            or ((self._crediting is not None or getattr(short, "addresses", None)) and not addressed)
            or self._upgrading is not None
            or port.confirms
        ):
            return None
        holder = lend_turn()
        return None if holder is None else StreamHalf(self, connection, short, self._counters, holder)

    def _after(self) -> None:
        """Do what may be possible after input or a deadline: open, subscribe, confirm, write answers."""
        protocol = self._protocol
        if self._port is None:
            self._look_for_opening()
        port = self._port
        if (protocol.subscriptions or self._patterns_late) and port is not None:
            self._take_subscriptions(port)
        if self._base_out is not None:
            self._take_confirmations()
        # Mostly there is no answer.
        answers = protocol.data_to_send()
        if answers:
            self._write(answers)
        elif answers is None:
            raise wrong_answer(protocol, "data_to_send", None, BUFFERS)
        if self.withheld and not self._connection.writing:
            self.on_output()
        if self._connection.ended:
            return
        if protocol.closed():
            self._close("closed by the peer")
            return
        self._connection.arm(protocol.next_deadline())
        if self._upgrading is not None:
            self._look_for_upgrade(self._upgrading)

    def _look_for_opening(self) -> None:
        """Open the port if the handshake and the login are over."""
        if self._authenticating is not None:
            self._look_for_login(self._authenticating)
        if self._port is not None:
            return
        ready = self._protocol.ready_to_send()
        if ready:
            self._open()
        elif ready is None:
            raise wrong_answer(self._protocol, "ready_to_send", None, TRUTH)
        # The conversation is over before its port was opened.  What the peer has sent is passed on all the
        # same.
        elif self._protocol.closed():
            self._deliver_early()

    def _take_subscriptions(self, port: Port) -> None:
        """Pass on to the routes what the peer asks for, and to the peer what readers asked for too early."""
        if self._patterns_late:
            self._subscribe_late(port)
        if not self._protocol.subscriptions:
            return
        for verb, pattern in self._protocol.subscriptions:
            self._patterns.ask(port, verb, pattern)
        # The same list, not a new one: the protocol keeps a reference to it.
        self._protocol.subscriptions.clear()
        # True at once if every source has applied them; otherwise ``on_subscribed`` is called later.
        if self._told_of_subscriptions is not None and port.subscribed():
            self._told_of_subscriptions.subscribed(self._host.now())

    def _open(self) -> None:
        """Open the port after the handshake, or go on with that of an earlier conversation."""
        self._on_open()
        port = self._port = self._open_port(self)
        if self._mixes:
            port.accept_mixed()
        # What the port sent before this conversation is not part of its count.
        self._base_in = -port.sent()
        self._patterns.begin(port)
        if self._subscribing is not None:
            self._subscribe_at_peer(port, self._subscribing)
        self._ask_again(port)
        # Before the first ``take``: what an earlier conversation left unconfirmed goes out before newer
        # messages.
        again = port.take_again()
        if self._crediting is not None:
            # A peer with credit may not get all of it at once.
            self._over_credit = again
        elif again:
            self._send(again)
        self._deliver_early()
        if self._holding is not None:
            self._look_for_held_back(port, self._holding)
        self.on_output()

    def _look_for_held_back(self, port: Port, protocol: HoldsBack) -> None:
        """Pass on what came before readers could subscribe at the peer."""

        def deliver() -> None:
            if not self.ended:
                self._deliver(protocol.held_back())

        if port.asked:
            deliver()
        else:
            # The pipes of a new port are attached in the next turn, and then its readers subscribe.
            self._host.soon(partial(self._host.soon, deliver))

    def _facts(self) -> ConnectionFacts:
        return facts_of(self._connection.wire, self.peer, self._shared)

    def _look_for_upgrade(self, protocol: UpgradesToTls) -> None:
        """Begin TLS when the protocol wants it and all earlier bytes are written."""
        connection = self._connection
        # The peer begins TLS behind our last plain byte, so all plain bytes have to be written first.
        if connection.ended or connection.writing or not protocol.wants_tls():
            return
        connected = connection.wire.connected
        if connected is None or self._start_tls is None or not isinstance(connection.wire, PlainWire):
            self._close("the protocol wants TLS, which cannot begin on this connection")
            return
        # The handshake reads the socket itself, in a task, so the connection must not.
        connection.begin_upgrade()
        self._host.nursery.start_soon(self._upgrade, protocol, connected, self._start_tls)

    async def _upgrade(self, protocol: UpgradesToTls, connected: socket.socket, start_tls: StartTls) -> None:
        connection = self._connection
        try:
            wire = await start_tls(connected)
        except (ConnectionLost, OSError, ValueError) as error:
            # OSError and ValueError: there is no usable certificate.  To go on in plain text would hide that.
            connection.end(f"no TLS: {error}")
            return
        if connection.ended:
            # The engine was stopped during the handshake, and nobody else knows this wire.
            wire.close()
            return
        connection.end_upgrade(wire)
        protocol.tls_started(self._facts(), self._host.now())
        self._after()

    def _look_for_login(self, protocol: Authenticating) -> None:
        login = protocol.login()
        if login is not None:
            self._accepted = False
            decided = False

            def decide(reason: str | None) -> None:
                nonlocal decided
                if not decided:
                    decided = True
                    # In a turn of its own: the decision may come from within ``on_login``, while ``_after``
                    # is still at work.
                    self._host.soon(partial(self._on_decision, protocol, reason))

            self._on_login(msgspec.structs.replace(login, peer=self.peer), decide)

    def _on_decision(self, protocol: Authenticating, reason: str | None) -> None:
        if self.ended:
            return
        if reason is not None:
            self._connection.pause(Pause.LOGIN_REFUSED)
            self._refusal = LazyTimer(self._host, partial(self._refuse, protocol, reason))
            self._refusal.arm(self._host.now() + LOGIN_DELAY)
            return
        protocol.decide(None, self._host.now())
        self._accepted = True
        self._after()

    def _refuse(self, protocol: Authenticating, reason: str) -> None:
        """Tell the peer that it is refused, and close the connection."""
        protocol.decide(reason, self._host.now())
        self._close(f"refused: {reason}")

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """Subscribe at the peer with the first reader of a pattern, and unsubscribe with the last."""
        port, protocol = self._port, self._subscribing
        # ``_open`` subscribes to all patterns at the beginning of a conversation.
        if port is None or protocol is None or self.ended:
            return
        # Not ready in the middle of a conversation: ``_after`` makes up for it.
        if not self._protocol.ready_to_send():
            self._patterns_late = True
            return
        wanted = pattern in port.asked
        if wanted == (pattern in self._subscribed_to):
            return
        self._ask_peer(protocol, pattern, wanted=wanted)
        self._flush()

    def _subscribe_at_peer(self, port: Port, protocol: Subscribing) -> None:
        """Subscribe to all that readers want now, and unsubscribe from what no reader wants any more."""
        self._patterns_late = False
        for pattern in self._subscribed_to.difference(port.asked):
            self._ask_peer(protocol, pattern, wanted=False)
        for pattern in port.asked:
            if pattern not in self._subscribed_to:
                self._ask_peer(protocol, pattern, wanted=True)

    def _ask_peer(self, protocol: Subscribing, pattern: str, *, wanted: bool) -> None:
        if wanted:
            self._subscribed_to.add(pattern)
            protocol.subscribe(pattern)
        else:
            self._subscribed_to.discard(pattern)
            protocol.unsubscribe(pattern)

    def _subscribe_late(self, port: Port) -> None:
        """Make up for what readers have asked for while the protocol was not ready."""
        if self._subscribing is not None and self._protocol.ready_to_send():
            self._subscribe_at_peer(port, self._subscribing)
            self._ask_again(port)

    # ------------------------------------------------------------------ subscriptions in effect

    def on_sync(self, hops: int) -> None:
        """Ask the peer whether what was subscribed to there is in effect."""
        port, protocol = self._port, self._syncing
        # ``_open`` asks, of this conversation or of the next one.
        if port is None or self.ended:
            return
        if protocol is None or self._subscribing is None or not protocol.can_sync():
            port.synced(hops)
            return
        # The patterns go out late, and the question has to follow them: ``_after`` asks it.
        if not self._protocol.ready_to_send():
            self._patterns_late = True
            return
        self._sync_number += 1
        self._syncs[self._sync_number] = hops
        protocol.sync(self._sync_number, hops - 1)
        self._flush()

    def _ask_again(self, port: Port) -> None:
        """Ask what was asked while there was no conversation, or no way to ask.  Behind the patterns."""
        for hops in port.unsynced():
            if hops not in self._syncs.values():
                self.on_sync(hops)

    # The protocol calls the next two while it processes input.  What came before them in the same input, such
    # as subscriptions, is taken at the end of this turn, so they are looked at in a later one.  Nothing has
    # to be looked for after each input, then.

    def _on_peer_asks(self, number: int, hops: int) -> None:
        take = partial(self._take_question, number, hops)
        # A port that opens at the end of this turn has its pipes attached in the next one, behind what is
        # posted now.  Without them the port would answer at once.
        self._host.soon(take if self._port is not None else partial(self._host.soon, take))

    def _on_peer_answers(self, number: int) -> None:
        self._host.soon(partial(self._take_answer, number))

    def _take_question(self, number: int, hops: int) -> None:
        if self._port is not None and not self.ended:
            self._port.when_subscribed(hops, partial(self._answer, number))

    def _answer(self, number: int) -> None:
        # The port of a listener may outlive the conversation by a turn.
        if self._syncing is not None and not self.ended:
            self._syncing.answer_sync(number)
            self._flush()

    def _take_answer(self, number: int) -> None:
        hops = self._syncs.pop(number, None)
        # After the end the next conversation has to ask again: its peer has other sources, perhaps.
        if hops is not None and self._port is not None and not self.ended:
            self._port.synced(hops)

    def _deliver_early(self) -> None:
        """Pass on what came before the port was opened, even if the conversation is over by now."""
        if self._early:
            early, self._early = self._early, []
            if not self._accepted:
                return
            if self._port is None:
                self._port = self._open_port(self)
            self._pass_on(self._port, early)

    def _take_confirmations(self) -> None:
        port, base = self._port, self._base_out
        if port is not None and base is not None:
            # None: the peer does not confirm; then ``_written`` confirms.
            confirmed = self._protocol.confirmed()
            if confirmed is not None:
                port.confirm_through(base + confirmed)

    # ------------------------------------------------------------------ to the wire

    def on_output(self) -> None:
        """Take what is in the pipes, and send it."""
        port, connection, protocol = self._port, self._connection, self._protocol
        if port is None or connection.ended:
            return
        self.withheld = False
        # One busy connection must not keep the thread from its other engines; ``soon`` below goes on in the
        # next turn.
        for _ in range(BATCHES_A_TURN):
            if connection.writing:
                return
            if not protocol.ready_to_send():
                self.withheld = True
                return
            # Messages are counted and bytes are meant.  The size of the last batch's bodies is the estimate.
            most = BATCH_BYTES // self._body_size or 1
            taken = port.take(most) if self._crediting is None else self._take_on_credit(port, most)
            if not taken.batches:
                return
            self._send(taken)
            if connection.ended:
                return
            # Mostly one look has taken everything.  What is written from now on is announced anew.
            if not self._over_credit.count and not port.has_input():
                return
        self._host.soon(self.on_output)

    def _take_on_credit(self, port: Port, most: int) -> Taken:
        """Take no more messages than the peer has given credit for.

        The port does not divide batches, so it may return more than ``most``.  The rest waits in
        ``_over_credit``.
        """
        assert self._crediting is not None
        credit = self._crediting.may_send()
        if credit is not None:
            if credit <= 0:
                self.withheld = True
                return NOTHING_TAKEN
            most = min(most, credit)
        taken = self._over_credit
        if taken.count:
            self._over_credit = NOTHING_TAKEN
        else:
            taken = port.take(most)
        if credit is not None and taken.count > most:
            taken, self._over_credit = taken.split(most)
        return taken

    def _send(self, taken: Taken) -> None:
        batches, count, position = taken.batches, taken.count, taken.position
        size = 0
        for batch in batches:
            size += batch.size
        self._body_size = size // count + 1
        self._counters.messages_out += count
        self.sent += count
        # Somebody waits for a confirmation of these messages.
        if position is not None:
            if self._base_out is None:
                self._protocol.want_confirm()
            # After ``sent`` was increased: the two numbers name the same message.
            self._base_out = position - self.sent
            self._unwritten = position
        # ``want_confirm`` comes before the messages that it is about, also on the wire.
        try:
            self._protocol.send_batches(batches, self._host.now())
        except LocalProtocolError as error:
            self._give_up(taken, str(error))
            return
        self._flush()
        if self._refusing is not None and self._refusing.refused:
            self._take_refusals(self._refusing.refused)

    def _give_up(self, taken: Taken, reason: str) -> None:
        """Refuse messages for which the protocol has raised, and end this conversation only.

        A protocol names single messages in ``refused`` (``Refusing``) and does not raise.  One that raises
        does not say which message was the cause, nor which ones it has encoded.  So all of them are refused:
        if they were given to the next conversation, they would end it as well, and so on for ever.
        """
        if self._port is not None and taken.position is not None:
            self._port.refuse(taken.position - taken.count + 1, taken.position, reason)
        self._counters.messages_refused += taken.count
        self._counters.messages_out -= taken.count
        # They are answered for, and none of them will be written.
        self._unwritten = None
        self._tell_refused(reason)
        # Without ``data_to_send``, which may have a part of these messages.
        self._connection.close(
            f"the protocol cannot send {counted(taken.count, 'message, which is', 'messages, which are')} refused: {reason}"
        )

    def _tell_refused(self, reason: str) -> None:
        # Once a conversation: a peer that refuses everything would fill the log.
        if self._on_refused is not None:
            tell, self._on_refused = self._on_refused, None
            tell(reason)

    def _take_refusals(self, refused: list[Refusal]) -> None:
        """Count the refused messages, report the first, and give them back to the port (``Port.refuse``)."""
        first = refused[0].reason
        port, base = self._port, self._base_out
        if port is not None and base is not None:
            # The port decides where refused messages go: to the dead letters of their route, or nowhere.
            for number, reason in refused:
                port.refuse(base + number, base + number, reason)
        self._counters.messages_refused += len(refused)
        self._counters.messages_out -= len(refused)
        refused.clear()
        self._tell_refused(first)
        # A refusal may have been all that later confirmations waited for.
        if not self.ended:
            self._take_confirmations()
            if not self._connection.writing:
                self._written()

    def _flush(self) -> None:
        """Write what the protocol has to send."""
        data = self._protocol.data_to_send()
        if data:
            self._write(data)
        elif data is None:
            raise wrong_answer(self._protocol, "data_to_send", None, BUFFERS)

    def _write(self, data: Sequence[Buffer]) -> None:
        connection = self._connection
        try:
            self._counters.bytes_out += sum(map(len, data))
            connection.send(data)
        except TypeError:
            refuse_buffers(self._protocol, data)
            raise
        if self._unwritten and not connection.writing:
            self._written()

    def _written(self) -> None:
        """The operating system has everything.  If the peer does not confirm, this counts as confirmed."""
        position, self._unwritten = self._unwritten, None
        if position is not None and self._port is not None and self._protocol.confirmed() is None:
            self._port.confirm_through(position)
