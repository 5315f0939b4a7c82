"""Stream client: what every client over a stream socket does, whatever its protocol.

Front ends derive their clients from it, AMQP as any other.

The client is passive and has no thread or task.  Its connection reads and calls ``received``; that calls
operations of the broker.  At the end of the turn the broker calls ``finish``: ``flush`` encodes what the
broker has for the client, and everything is written in one go.

Who limits what
    Three things grow if a client does not read, and each has a limit of its own.  Deliveries are limited by
    the window: queues stop when it is used up, and it is refilled by what the socket has taken.  Answers are
    not: a client that asks gets an answer.  So beyond ``UNWRITTEN_BYTES`` the connection stops reading, and
    no more questions come (``Pause.ANSWERS_UNREAD``).  Input is not queued at all: ``received`` has to take
    what was read.

Who may pause it
    The broker pauses publishers only, and only after a turn in which they published: ``hold_back`` while
    routes or the disk are behind, ``block`` while an alarm is raised.  The rate limit pauses it from here.
    Each reason is a bit of its own in ``Connection.paused``, so that they may come and go in any order.

Durable answers
    An answer that says that something durable was declared must not be seen before the disk has it.  The
    client then calls ``write_after(store.demand())``.  From then on nothing is written until the store has
    reached that mark, not even answers that have nothing to do with it, because answers have to stay in
    order.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import KernelError
from kernel.contracts.message import Buffer
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.failed_logins import LOGIN_DELAY
from kernel.hosting.lazy_timer import LazyTimer
from kernel.hosting.read_size import SMALLEST_READ
from plugins.engines.broker.host.rates import Bucket
from plugins.engines.broker.receiver import Window

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.listening import Accepted
    from plugins.engines.broker.host.shards import Shards

MOST_KEPT = 64 * 1024
"""Bytes that a client may send before its virtual host is known.  One that sends more stays (decision 45)."""
WINDOW_BYTES = 512 * 1024
"""Bytes of bodies that queues deliver to a client before some are written: about what a socket takes at
once."""

GATHERED = 32
"""Messages.  Who has fewer to acknowledge has soon done so, and then sends something else."""

SHORT_READ = 512
"""Bytes.  A read of more brings enough to be a turn of its own."""

UNWRITTEN_BYTES = 4 * WINDOW_BYTES
"""Bytes of answers that a client may leave unread before it is not read any more."""


class StreamClient(ConnectionOwner):
    """A client of a front end over a stream socket.

    Derive, and override ``received``, ``flush`` and ``ended``.
    """

    def __init__(self, engine: BrokerEngine, accepted: Accepted, *, publish_rate: float = 0.0) -> None:
        """``publish_rate``: messages a second that the client may publish, by ``messages_in``.

        0: any number.
        """
        self.engine = engine
        self.host = engine.host
        self.peer = accepted.peer
        self.window = Window(WINDOW_BYTES)
        """For the receivers of this connection."""
        self.published = False
        """Set it when messages were published: the client may then have to wait."""
        self.is_prompt = False
        """Whether what is not answered is acknowledged at once (``Connection.acknowledge``).  For those who
        may wait for that before they send more.  Who only receives, and has ``GATHERED`` messages or more to
        acknowledge, is not one of them: Nagle's algorithm may gather its acknowledgements."""
        self._unanswered = False
        """Whether a read of this turn has not been answered yet, and is to be acknowledged then."""
        self.messages_in = self.messages_out = 0
        self.closing = ""
        """Why the connection is to be closed at the end of the turn; empty: it stays."""
        self.closes_first = False
        """Whether the client is to be the first that closes it, because its protocol says so."""
        # These two are attributes and not methods because they are called once a batch: a partial of the
        # engine's method, and the timer's own method, save a call each.
        self.is_busy: Callable[[], None] = partial(engine.is_busy, self)
        """Have ``flush`` called at the end of this turn.  Also a callback for ``store.when_safe``."""
        self._connection = Connection(engine.host, accepted.wire, self, answers_limit=UNWRITTEN_BYTES)
        self.arm: Callable[[float | None], None] = self._connection.arm
        """Say that ``next_deadline`` has become earlier.  One that has become later need not be told."""
        self.take_output: Callable[[], Sequence[Buffer]] = self._take_unsent
        """Returns what is to be written at the end of the turn, and forgets it.

        A client whose protocol object collects output sets this to that object's method, and does not call
        ``send``.
        """
        self._unsent: list[Buffer] = []
        self._is_due = False
        """Whether ``finish`` is sure to write in this turn: the client was read, or ``finish`` has begun."""
        self._write_after = 0
        """The mark that the store has to reach before anything is written; 0: none."""
        self._rate: Bucket | None = None
        self._rated = 0
        """How many messages have been counted against the rate."""
        # These timers are made for the few clients that need them: there may be very many idle ones.
        self._rate_timer: LazyTimer | None = None
        self._refusal: LazyTimer | None = None
        self.login_refused = False
        """Whether a login has failed.  Nothing that comes after it is read."""
        if engine.shards is not None:
            self._keep(accepted, engine.shards)
        if publish_rate:
            self._rate = Bucket(publish_rate, engine.host.now())
            self._rate_timer = LazyTimer(engine.host, self._on_rate)
            # The rate is looked at once a turn, after the messages of the whole read are published.  Small
            # reads keep a client from overdrawing it by a large one.
            self._connection.largest_read = SMALLEST_READ

    # To be overridden

    def received(self, data: bytes, now: float) -> bool | None:
        """Take what was read, in any pieces, and do what it asks for.  Must not raise, whatever was sent.

        Return true if it has acknowledged messages and nothing else: nothing has to be written for it.
        """
        raise NotImplementedError

    def flush(self, now: float) -> None:
        """The turn ends: ``send`` deliveries, and the confirmations that are due."""
        raise NotImplementedError

    def ended(self, now: float) -> None:
        """The connection is over: give back what the client held.  Called once."""
        raise NotImplementedError

    def on_due(self, now: float) -> None:
        """``next_deadline`` has passed: send a keep-alive, or ``close`` because the client is silent."""

    def closing_message(self, reason: str) -> Sequence[Buffer]:
        """Return what the protocol tells a client when the broker closes it; nothing by default."""
        return ()

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the bodies have that the client has not acknowledged."""
        return 0

    @property
    def unpublished_bytes(self) -> int:
        """About how many bytes there are of messages that are not complete, or not committed."""
        return 0

    @property
    def confirming(self) -> bool:
        """Whether it waits for a confirmation that the routes may bring."""
        return False

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator; a front end adds what it knows besides."""
        return [self.row()] if what == "connections" else []

    # To be called

    def send(self, data: Buffer) -> None:
        """Have bytes written at the end of this turn."""
        unsent = self._unsent
        # Only for the first: what is unsent is written at the end of a turn that is due already, or when the
        # store is ready.  In ``flush`` it would be busy for the next turn, which would have nothing to do.
        if not unsent and not self._is_due:
            self.is_busy()
        unsent.append(data)

    def write_after(self, mark: int) -> None:
        """Write nothing more before the store has reached ``mark``, which ``store.demand()`` has returned."""
        self._write_after = mark

    def close(self, reason: str) -> None:
        """Close the connection at the end of this turn, after what was sent."""
        # The first reason is the cause; later ones follow from it.
        self.closing = self.closing or reason
        self.is_busy()

    def lose(self, reason: str) -> None:
        """Close the connection without the protocol's closing message, as a network failure would.

        What was written before reaches the client.
        """
        self._connection.close(reason)

    def refuse_login(self, name: str, how: str, answer: Callable[[], None]) -> None:
        """Report a login that failed; call ``answer`` after ``LOGIN_DELAY`` seconds, unless the client goes.

        ``how``: the mechanism, or what else the client has proved itself with.
        """
        now = self.host.now()
        self.login_refused = True
        self.engine.login_refused(self.peer, name, how, now)
        self._connection.pause(Pause.LOGIN_REFUSED)

        def on_due() -> None:
            self.is_busy()
            answer()
            self.engine.finish_turn(self.host.now())

        self._refusal = LazyTimer(self.host, on_due)
        self._refusal.arm(now + LOGIN_DELAY)

    def to_acknowledge(self) -> int:
        """Return how many messages the client has to acknowledge, if that is what it will send next."""
        return 0

    def moves(self, vhost: str) -> bool:
        """Whether another shard has the virtual host that the client opens; asked when it is known.

        The client is then handed over at the end of this turn, and this object ends.  All that it has sent is
        done again there, so nothing of it may have been done yet that lasts.
        """
        return False

    def _keep(self, accepted: Accepted, shards: Shards) -> None:
        """Keep what the client sends until its virtual host is known.

        These functions are attributes of the few clients that may move, so that the others have no branch.
        """
        kept = bytearray()
        receive = self.received

        def received(data: bytes, now: float) -> None:
            nonlocal kept
            kept += data
            if len(kept) > MOST_KEPT:
                stay()
            receive(data, now)

        def stay() -> None:
            # Also when it has stayed already.
            self.__dict__.pop("received", None)
            self.__dict__.pop("moves", None)

        def moves(vhost: str) -> bool:
            shard = shards.of(vhost)
            if shard is None:
                stay()
                return False
            self.closing = f"handed over to {shard}"
            self.is_busy()
            self.finish = partial(hand_over, shard)  # type: ignore[method-assign]
            return True

        def hand_over(shard: str, now: float) -> None:
            connection, listener = self._connection, accepted.listener
            # The client may have sent everything at once, without waiting for answers.
            connection.send(self.take_output())
            if connection.ended:
                return
            if connection.writing or listener is None:
                connection.end(f"cannot be {self.closing}")
                return
            what = {
                "front_end": self.engine.front_ends.index(listener),
                "peer": accepted.peer,
                "loopback": accepted.loopback,
                "certified": accepted.certified,
                "seen": bytes(kept),
                "written": connection.bytes_out,
            }
            wire = connection.release(self.closing)
            try:
                shards.hand_over(shard, wire, what)
            except KernelError as error:
                event = EngineEvent(
                    engine=self.engine.name, what="not handed over", peer=accepted.peer, detail=str(error)
                )
                self.host.report(event)

        self.received = received  # type: ignore[method-assign]
        self.moves = moves  # type: ignore[method-assign]

    def replay(self, seen: bytes, written: int) -> None:
        """Begin with what the client has sent to another shard, which has written ``written`` bytes to it."""
        take, left = self.take_output, written

        def take_the_rest() -> Sequence[Buffer]:
            nonlocal left
            output = b"".join(take())
            rest = output[left:]
            left -= len(output) - len(rest)
            if not left:
                self.take_output = take
            return (rest,) if rest else ()

        if written:
            self.take_output = take_the_rest
        self.on_data(seen, self.host.now())

    def row(self, **more: Any) -> dict[str, Any]:
        """Return what ``kernel connections`` shows; ``more`` takes precedence."""
        state = "blocked" if self.blocked else "flow" if self._connection.paused else "running"
        return {
            "name": self.peer,
            "user": "",
            "vhost": "",
            "state": state,
            "client": "",
            "ssl": isinstance(self._connection.wire.connected, ssl.SSLSocket),
            "channels": 1,
            "recv_oct": self.bytes_in,
            "send_oct": self.bytes_out,
            "send_pend": self.unwritten,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            **more,
        }

    @property
    def is_open(self) -> bool:
        """Whether the connection is not over yet."""
        return not self._connection.ended

    @property
    def blocked(self) -> bool:
        """Whether reading waits for an alarm to be lifted."""
        return bool(self._connection.paused & Pause.ALARM)

    @property
    def writing(self) -> bool:
        """Whether the socket is full, so that output of earlier turns waits."""
        return self._connection.writing

    @property
    def waits_for_store(self) -> bool:
        """Whether nothing may be written because of ``write_after``."""
        return self._write_after > self.engine.broker.store.safe

    def write_now(self, data: Buffer) -> None:
        """Write although ``write_after`` forbids it: a keep-alive, which says nothing about the store.

        May end the connection.
        """
        self._connection.send((data,))

    # What the broker calls

    @property
    def bytes_in(self) -> int:
        """Bytes that came from the client."""
        return self._connection.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes for the client, written or not."""
        return self._connection.bytes_out

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._connection.unwritten

    def start(self) -> None:
        """Begin to read, and to watch the deadline."""
        self._connection.start()
        self.arm(self.next_deadline())

    def finish(self, now: float) -> None:
        """Write what this turn brought."""
        connection = self._connection
        if connection.ended:
            return
        # Before ``flush``, which may publish as well: that is looked at in the next turn.
        self.published = False
        self._is_due = True
        self.flush(now)
        self._is_due = False
        if self._rate is not None and self.messages_in > self._rated:
            self._keep_rate(self._rate, now)
        if self._write_after and self._must_wait():
            # The window is not refilled either.  The deliveries of this turn wait as well, and more of them
            # would add up for as long as the disk needs.
            return
        output = self.take_output()
        if self.closing:
            # ``ClosingWire`` writes the rest and waits for the peer's end, without this client.
            connection.close(self.closing, output, peer_first=self.closes_first)
            return
        if output:
            connection.send(output)
            if connection.ended:
                return
        elif self._unanswered:
            connection.acknowledge()
        self._unanswered = False
        unwritten = connection.unwritten if connection.writing else 0
        # Last: a queue that waited for the window may now deliver, which makes this client busy for the next
        # turn.
        window = self.window
        if window.starved:
            window.refill(WINDOW_BYTES - unwritten, now)
        else:
            # What ``refill`` does then, without the call.
            window.left = WINDOW_BYTES - unwritten

    def _must_wait(self) -> bool:
        if self.waits_for_store:
            self.engine.broker.store.when_safe(self.is_busy)
            return True
        # Forgotten, so that most turns need not ask the store.
        self._write_after = 0
        return False

    def _take_unsent(self) -> Sequence[Buffer]:
        unsent, self._unsent = self._unsent, []
        return unsent

    def _keep_rate(self, rate: Bucket, now: float) -> None:
        seconds = rate.take(self.messages_in - self._rated, now)
        self._rated = self.messages_in
        # What was read is published in any case.  The client pays for it by not being read for a while.
        if seconds > 0 and self._rate_timer is not None and not self._connection.ended:
            self._connection.pause(Pause.RATE)
            self._rate_timer.arm(now + seconds)

    def _on_rate(self) -> None:
        self._connection.resume(Pause.RATE)

    def hold_back(self) -> None:
        """The routes are full, or the disk is behind."""
        self._connection.pause(Pause.ROUTES_FULL)

    def go_on(self) -> None:
        """There is room again."""
        self._connection.resume(Pause.ROUTES_FULL)

    def block(self, reason: str) -> None:
        """An alarm is raised.  May be called again while it is."""
        self._connection.pause(Pause.ALARM)

    def unblock(self) -> None:
        """The last alarm is over.  Also called for clients that were not blocked."""
        self._connection.resume(Pause.ALARM)

    def hang_up(self, reason: str) -> None:
        """Send the protocol's closing message, and close the connection."""
        if not self._connection.ended:
            # Answers that wait for the disk are lost: the client must not see what may not outlive a restart.
            output = self.take_output()
            written = () if self.waits_for_store else output
            self._connection.close(reason, [*written, *self.closing_message(reason)])

    # What the connection calls

    def on_data(self, data: bytes, now: float) -> None:
        """The client has sent something."""
        long = len(data) > SHORT_READ
        if long:
            # It may take long, and who was read before it need not wait for that.
            self.engine.finish_reads(now)
            # What was written to this client then may have failed.
            if self._connection.ended:
                return
        engine = self.engine
        # Busy before it is read, so that it is written to first: nearly every read has an answer, and a front
        # end need not say so.
        others = bool(engine.busy)
        self._is_due = True
        engine.is_busy(self)
        settled = not (self.closing or self.login_refused) and self.received(data, now)
        # After a long read as well: its last packet is mostly not a full one.
        self._unanswered = self.is_prompt and (self.messages_in > 0 or self.to_acknowledge() < GATHERED)
        if settled and not others and engine.has_nothing_for_others():
            # A consumer that works message by message sends acknowledgements one by one: there is no turn to
            # end.
            engine.busy.clear()
            self._is_due = False
            if self._unanswered:
                self._unanswered = False
                self._connection.acknowledge()
            return
        if long:
            engine.finish_turn(now)
        else:
            engine.finish_read(now)

    def on_eof(self, now: float) -> None:
        """The client has hung up."""
        self._connection.close("the client hung up")

    def on_written(self) -> None:
        """There is room for more deliveries."""
        # ``finish`` refills the window, and the turn after it writes what the queues deliver then.
        self.engine.is_busy(self)
        self.engine.finish_turn(self.host.now())

    def on_deadline(self, now: float) -> None:
        """What the client has to do at its deadline is a turn of its own."""
        self.engine.is_busy(self)
        self.on_due(now)
        self.engine.finish_turn(now)

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        for timer in (self._rate_timer, self._refusal):
            if timer is not None:
                timer.end()
        self.ended(self.host.now())
        self.engine.has_ended(self, reason)
        # Not ``finish_turn``: a write that fails in ``finish`` ends the connection in the middle of a turn's
        # end.
        self.engine.finish_soon()
        # Both refer to this object: without them it is freed now, and not by a collection of garbage.
        self.is_busy = _nothing
        self.take_output = _no_output


def _nothing() -> None:
    """A client that has ended is not busy any more."""


def _no_output() -> Sequence[Buffer]:
    """Return what a client that has ended writes."""
    return ()
