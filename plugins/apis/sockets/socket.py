"""Socket: what an application works with.  Blocking calls; ``tasks.py`` has them for event loops.

Small messages of types without turns take the shortest way, in both directions: ``send`` appends to the pipe
of the only peer, and ``recv`` is a step of an iterator.  All else goes through the pattern of the type.
"""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import errorcode
from itertools import islice
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from typing import Protocol as Interface

from kernel.contracts.api import NOT_YET
from kernel.contracts.bodies import all_checked, checked
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of
from kernel.hosting.forking import OfThisProcess, call_in_children
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import NotSupported, PlaceError
from plugins.apis.sockets.monitor import Monitor, SocketEvent, Watch, What
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns import Pattern
from plugins.apis.sockets.patterns.single_part import Dish, Radio, Server
from plugins.apis.sockets.waiting import Waiting

if TYPE_CHECKING:
    from plugins.apis.sockets.context import Place
    from plugins.apis.sockets.statistics import SocketStatistics

ALL = 1 << 30
"""More messages than any batch has: no limit."""

_SOON = 1e-6
"""Seconds of a wait that is over.  0 would be one that was not wanted, which has another error."""

P = TypeVar("P", bound=Pattern)
T = TypeVar("T")

UNSET: Any = object()
"""No timeout was given: that of the option is taken."""


class Send(Interface):
    """Sends a message of one part."""

    def __call__(self, body: Buffer, *, timeout: float | None = ...) -> None:
        """Send; wait for room at most ``timeout`` seconds (``Again``); by default ``sndtimeo``."""
        ...


class Socket(OfThisProcess):
    """A socket of ØMQ.  ``Context.socket`` makes it; usable in a ``with`` statement.

    Any thread may use it, but one at a time.
    """

    send: Send
    """``send(body, *, timeout=sndtimeo)``: send a message of one part; wait for room."""

    def __init__(
        self, end: End, pattern: Pattern, values: Values, place: Place, on_close: Callable[[Socket], Any]
    ) -> None:
        self.name: str = end.name
        self.type: str = pattern.kind
        self.options: Values = values
        """``options["rcvhwm"]``, and so on: read and set; ``OPTIONS`` has what there is."""
        self.last_endpoint: str = ""
        """The last place, with the port that the system chose."""
        self._end = end
        self._pattern = pattern
        self._place = place
        self._on_close = on_close
        self._closed = False
        self._bodies: Iterator[Any] = iter(())
        """What is left of a batch of messages of one part."""
        self._plain: Iterator[Any] = self._bodies
        """The same, if these messages can be received without a look at whose turn it is; else empty."""
        self._is_usual = type(pattern).received is Pattern.received
        """Whether a message that is received changes nothing but what is ``open``."""
        self._messages: Iterator[Any] = iter(())
        """What is left of a batch of messages of several parts."""
        self._watches: list[tuple[Watch, Callable[[], Any]]] = []
        """Who is told of events, and what to do when there will be no more."""
        self._parts: list[bytes] = []
        """What is left of a message, last part first."""
        self._batch: Batch | None = None
        self._fast = end.fast(self._send_fast_failed)
        if pattern.lends:
            end.borrow(pattern)
        self._waiting = Waiting(end, self)
        self.send = self._fast.send if pattern.alike and pattern.gives else self._send
        call_in_children(self, Socket._forked)

    # ------------------------------------------------------------------ places

    def bind(self, place: str) -> str:
        """Listen at ``tcp://127.0.0.1:5556``, ``ipc://path`` or ``inproc://name``; return the place.

        Port 0 lets the system choose; the place that is returned has the port.
        """
        with UNINTERRUPTED:
            self._end.look()
            try:
                self.last_endpoint = self._place.add("bind", place)
            except PlaceError as error:
                code = errorcode.get(error.errno, "")
                self._tell(SocketEvent(what="bind failed", place=place, reason=str(error), code=code))
                raise
            self._changed("listening", self.last_endpoint)
            self._find_way()
            self._end.look()
        return self.last_endpoint

    def connect(self, place: str) -> str:
        """Connect, and connect again when the connection is lost; return the place.

        Does not wait for the peer.
        """
        with UNINTERRUPTED:
            self._end.look()
            # Before the attempt, whose end may be told of soon.
            self._changed("connecting", place)
            self.last_endpoint = self._place.add("connect", place)
            self._find_way()
            # The pipes to the new peer are there now: messages wait in them.
            self._end.look()
        return self.last_endpoint

    def _find_way(self) -> None:
        """Have a publisher that routes itself do so without a look for a shorter way, which it never has."""
        # Known with the first place, when its options are fixed.
        if self._pattern.publishes and not self._pattern.relayed:
            self.send = self._send

    def connect_peer(self, place: str, identity: bytes = b"") -> bytes:
        """ROUTER and STREAM: connect to a peer, and return its identity; messages can go to it at once.

        ``identity``: that by which this socket is to know the peer; empty: one is made up.
        """
        with UNINTERRUPTED:
            self._end.look()
            chosen = self._place.name_peer(identity)
            self.connect(place)
        return chosen

    def unbind(self, place: str) -> None:
        """Listen there no more.  Connections that were accepted go on."""
        with UNINTERRUPTED:
            self._place.remove("unbind", place)
            self._changed("closed", place)

    def disconnect(self, place: str) -> None:
        """End the connection, and connect no more."""
        with UNINTERRUPTED:
            self._place.remove("disconnect", place)
            self._changed("disconnected", place)

    # ------------------------------------------------------------------ monitors

    def monitor(self) -> Monitor:
        """Return what happens to places and connections from now on, as a stream of ``SocketEvent``."""
        self._end.look()
        monitor = Monitor(self.name)
        stop = self.watch(monitor.take, monitor.close)
        monitor.on_close = stop
        return monitor

    def watch(self, tell: Callable[[SocketEvent], Any], over: Callable[[], Any]) -> Callable[[], None]:
        """Have ``tell`` called with each event, in the thread where it happens; ``over`` after the last.

        Return what ends it.
        """
        watch = self._place.watch(tell)
        entry = (watch, over)
        self._watches.append(entry)

        def stop() -> None:
            watch.stop()
            # Another thread may be faster, which closes the socket.
            with suppress(ValueError):
                self._watches.remove(entry)

        return stop

    def stop_watching(self) -> None:
        """End all monitors."""
        watches, self._watches = self._watches, []
        for watch, over in watches:
            watch.stop()
            over()

    def _changed(self, what: What, place: str) -> None:
        self._tell(SocketEvent(what=what, place=place))

    def _tell(self, event: SocketEvent) -> None:
        for watch, _ in self._watches:
            watch.tell(event)

    # ------------------------------------------------------------------ sending

    def _send(self, body: Buffer, *, timeout: float | None = UNSET) -> None:
        if not self._send_leased(body):
            timeout = self.options["sndtimeo"] if timeout is UNSET else timeout
            self._pattern.send_parts((checked(body),), timeout)

    def _send_leased(self, body: Buffer) -> bool:
        """Send a message with the lease, if there is one; False: send it in the usual way."""
        end, pattern = self._end, self._pattern
        # Once: a thread that closes the context ends the lease.
        lease = end.leased
        # No call up to the return: a handler of a signal would raise between the message and its turn.
        if lease is not None and pattern.open is end.before and lease.send(body):
            pattern.open = end.after
            return True
        return False

    def _send_fast_failed(self, body: Buffer, key: str | None, timeout: float | None) -> None:
        """Send what the shortest way did not take: large, without credit, or while nobody is there."""
        lease = self._end.leased
        if lease is not None and lease.send(body):
            return
        self._end.look()
        # A wait without limit is that of the option: the fast sender has None for "not said".
        if not self._fast.refill(checked(body), None):
            # Unused credit counts as written, so the pipe would look full.
            self._fast.give_back()
            self._send(body, timeout=UNSET if timeout is None else timeout)

    def send_multipart(self, parts: Sequence[Buffer], *, timeout: float | None = UNSET) -> None:
        """Send a message of several parts, which arrive together or not at all."""
        if not parts:
            raise ValueError("a message has at least one part; for an empty message give [b'']")
        self._fast.give_back()
        self._pattern.send_parts(
            tuple(map(checked, parts)), self.options["sndtimeo"] if timeout is UNSET else timeout
        )

    def send_many(self, bodies: Sequence[Buffer], *, timeout: float | None = UNSET) -> None:
        """Send messages of one part each.  The list belongs to the socket from now on: do not change it."""
        bodies = all_checked(bodies)
        if bodies:
            self._send_batch(batch_of(bodies), timeout)

    def send_multipart_many(
        self, messages: Sequence[Sequence[Buffer]], *, timeout: float | None = UNSET
    ) -> None:
        """Send messages of several parts each."""
        whole = [tuple(map(checked, parts)) for parts in messages]
        if not all(whole):
            raise ValueError("a message has at least one part; for an empty message give [b'']")
        if whole:
            self._send_batch(batch_of(whole, multipart=True), timeout)

    def _send_batch(self, batch: Batch, timeout: float | None) -> None:
        self._fast.give_back()
        self._pattern.send_batch(batch, self.options["sndtimeo"] if timeout is UNSET else timeout)

    def send_to(self, routing_id: int, body: Buffer, *, timeout: float | None = UNSET) -> None:
        """SERVER: send a message to the peer that ``recv_from`` has named; ``Unreachable`` if it is gone."""
        self._as(Server, "sends to").send_to(
            routing_id, checked(body), self.options["sndtimeo"] if timeout is UNSET else timeout
        )

    def send_group(self, group: bytes | str, body: Buffer) -> None:
        """RADIO: send a message to every DISH that has joined a group.  ``send`` is for the empty group."""
        self._as(Radio, "sends to").send_group(_octets(group), checked(body))

    # ------------------------------------------------------------------ receiving

    def recv_from(self, *, timeout: float | None = UNSET) -> tuple[int, bytes]:
        """SERVER: wait for a message; return the routing id of its peer, for ``send_to``, and it."""
        server = self._as(Server, "receives from")
        self._await_part(timeout)
        return self._taken(
            lambda: (self._next_part(), server.sender_of(self.envelope))[::-1],
            lambda message: self._give_back_part(message[1]),
        )

    def recv_group(self, *, timeout: float | None = UNSET) -> tuple[bytes, bytes]:
        """DISH: return the group of the next message, and the message; wait for it."""
        dish = self._as(Dish, "receives of")
        self._await_part(timeout)
        return self._taken(
            lambda: (self._next_part(), dish.group_of(self.envelope))[::-1],
            lambda message: self._give_back_part(message[1]),
        )

    def _as(self, kind: type[P], does: str) -> P:
        if not isinstance(self._pattern, kind):
            what = "a routing id" if kind is Server else "a group"
            raise NotSupported(f"{self.type} has no such call; {kind.kind} {does} {what}")
        return self._pattern

    def recv(self, *, timeout: float | None = UNSET) -> bytes:
        """Return the next message, or the next part of a message of several (see ``more``); wait for it.

        ``Again`` after ``timeout`` seconds; by default ``rcvtimeo``.
        """
        # A ``for`` takes one item without a call.  These messages have been taken, and are returned even if
        # the socket or its context has been closed.
        for body in self._plain:
            return body  # type: ignore[no-any-return]
        end, pattern = self._end, self._pattern
        lease = end.leased
        if (
            lease is not None
            # REQ: there has to be a question. REP: there must be none.
            and (pattern.open is not None) is pattern.asks
            and (lease.active or self._nothing_left())
        ):
            wait = self.options["rcvtimeo"] if timeout is UNSET else timeout
            if wait != 0:
                until = 0.0 if wait is None else time.monotonic() + wait
                body = lease.receive(wait)
                if body is not None:
                    # No call up to the return, as in ``_send``.
                    pattern.open = end.before
                    return body  # type: ignore[no-any-return]
                if wait is not None:
                    timeout = max(_SOON, until - time.monotonic())
        self._await_part(timeout)
        if self._begin_single():
            opened = pattern.opens(self.envelope)
            for body in self._bodies:
                pattern.open = opened
                return body  # type: ignore[no-any-return]
        return self._taken(self._next_part, self._give_back_part)

    def _recv_leased(self) -> Any:
        """Receive with the lease that there is, without waiting; None: receive in the usual way.

        ``NOT_YET``: nothing has come to its socket, and the bell is armed (``Lease.receive_now``).
        """
        end, pattern = self._end, self._pattern
        lease = end.leased
        # As in ``recv``.
        if lease is None or (pattern.open is not None) is not pattern.asks:
            return None
        if not (lease.active or self._nothing_left()):
            return None
        body = lease.receive_now()
        if body is not None and body is not NOT_YET:
            pattern.open = end.before
        return body

    def _readable_leased(self) -> bool | None:
        """Whether ``_recv_leased`` would return a message; None: look in the usual way."""
        end, pattern = self._end, self._pattern
        lease = end.leased
        if lease is None or not (lease.active or self._nothing_left()):
            return None
        if (pattern.open is not None) is not pattern.asks:
            # One that has not begun is no reason to do without a look.
            return False if lease.active else None
        if lease.kept is None:
            body = lease.receive_now()
            if body is None or body is NOT_YET:
                return None if body is None else False
            lease.kept = body
        return True

    def _begin_single(self) -> bool:
        """Begin to receive a batch of messages of one part, if one is next and the type is a usual one.

        A handler of a signal may raise anywhere in it.
        """
        inbox = self._end.inbox
        if self._parts or self._left() or not self._is_usual or not inbox or inbox[0].multipart:
            return False
        batch = inbox[0]
        bodies = iter(list(batch.bodies))
        # No call from here on.
        self._batch, self._bodies = batch, bodies
        if not self._pattern.turns:
            self._plain = bodies
        del inbox[0]
        return True

    def _next_part(self) -> bytes:
        if not self._parts:
            self._parts = list(reversed(self._next_message(0)))
        return self._parts.pop()

    def _give_back_part(self, part: bytes) -> None:
        self._give_back_parts([part])

    def _taken(self, take: Callable[[], T], give_back: Callable[[T], Any]) -> T:
        """Return what ``take`` returns, unless a handler of a signal raises: then it is given back."""
        taken: list[T] = []
        try:
            with UNINTERRUPTED:
                taken.append(take())
        except BaseException:
            if taken:
                with UNINTERRUPTED:
                    give_back(taken[0])
            raise
        return taken[0]

    def _await_part(self, timeout: float | None) -> None:
        """Wait until there is a part of a message."""
        if not self._parts:
            self._await(timeout)

    def _await(self, timeout: float | None) -> None:
        """Wait until there is a message.  It stays where it is."""
        if not self._left():
            self._pattern.before_receiving()
            self._end.await_batch(self.options["rcvtimeo"] if timeout is UNSET else timeout)

    def _nothing_left(self) -> bool:
        """Whether all that came through the poll thread was received."""
        return not (self._parts or self._left() or self._end.inbox)

    @property
    def more(self) -> bool:
        """Whether the part that ``recv`` returned last has others behind it in its message."""
        return bool(self._parts)

    @property
    def envelope(self) -> Envelope:
        """Facts of the last message received: the property ``user_id``, if its peer has logged in."""
        return PLAIN if self._batch is None else self._batch.envelope

    def recv_multipart(self, *, timeout: float | None = UNSET) -> list[bytes]:
        """Return all parts of the next message, or the rest of one that ``recv`` has begun."""
        for body in self._plain:
            return [body]
        self._await_part(timeout)
        if self._begin_single():
            opened = self._pattern.opens(self.envelope)
            for body in self._bodies:
                self._pattern.open = opened
                return [body]
        return self._taken(self._next_parts, self._give_back_parts)

    def _next_parts(self) -> list[bytes]:
        if self._parts:
            parts, self._parts = self._parts, []
            return parts[::-1]
        return list(self._next_message(0))

    def _give_back_parts(self, parts: list[bytes]) -> None:
        # What is left of its batch would be received before ``_parts`` are.
        if length_hint(self._plain):
            self._give_back_bodies(parts)
        else:
            self._parts += parts[::-1]

    def recv_many(self, most: int = ALL, *, timeout: float | None = UNSET) -> list[bytes]:
        """Return messages of one part that have come, at least one and at most ``most``; wait for the first.

        ``ValueError`` if the next message has several parts: ``recv_multipart_many`` returns it.
        """
        if most > 0:
            self._await(timeout)
        found = self._taken(lambda: self._some(most, timeout, multipart=False), self._give_back_bodies)
        if not found:
            raise ValueError("the next message has several parts: receive it with recv_multipart_many")
        return found

    def _give_back_bodies(self, bodies: list[bytes]) -> None:
        self._bodies = iter([*bodies, *self._bodies])
        if not self._pattern.turns:
            self._plain = self._bodies

    def recv_multipart_many(self, most: int = ALL, *, timeout: float | None = UNSET) -> list[list[bytes]]:
        """Return messages with all of their parts, at least one and at most ``most``; wait for the first."""
        if self._parts:
            return [self.recv_multipart()]
        if most > 0:
            self._await(timeout)
        return self._taken(lambda: self._some_whole(most, timeout), self._give_back_whole)

    def _some_whole(self, most: int, timeout: float | None) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        while len(found) < most and (not found or self._has_more()):
            bodies = self._some(most - len(found), timeout, multipart=False)
            found += [[body] for body in bodies]
            if not bodies:
                found += map(list, self._some(most - len(found), timeout, multipart=True))
        return found

    def _give_back_whole(self, messages: list[list[bytes]]) -> None:
        singles = [(body,) for body in self._bodies]
        self._messages = iter([*messages, *singles, *self._messages])

    def _has_more(self) -> bool:
        return not self._pattern.turns and (self._left() or self._end.ready())

    def _left(self) -> bool:
        """Whether something of the present batch is left.  Looks without taking."""
        # Both are iterators of lists, which know how many items are left.
        return length_hint(self._bodies) + length_hint(self._messages) > 0

    def _some(self, most: int, timeout: float | None, *, multipart: bool) -> list[Any]:
        """Return messages of one form, without their end; none if the next one has the other form."""
        if self._pattern.turns:
            most = min(most, 1)
        found: list[Any] = []
        while len(found) < most:
            source, other = (self._messages, self._bodies) if multipart else (self._bodies, self._messages)
            if length_hint(other):
                break
            if not length_hint(source):
                if found and not self._end.ready():
                    break
                batch = self._next_batch(timeout)
                # Most often all of it is wanted: then there is no step for each message.
                if batch.multipart is multipart and len(batch) <= most - len(found):
                    found += batch.bodies
                    self._received()
                else:
                    self._begin(batch)
                continue
            found += islice(source, most - len(found))
            self._received()
        return found

    def _next_message(self, timeout: float | None) -> Sequence[bytes]:
        """Return the parts of the next message."""
        while True:
            for body in self._bodies:
                self._received()
                return (body,)
            for parts in self._messages:
                self._received()
                return parts  # type: ignore[no-any-return]
            self._begin(self._next_batch(timeout))

    def _next_batch(self, timeout: float | None) -> Batch:
        self._pattern.before_receiving()
        self._batch = batch = self._end.next_batch(self.options["rcvtimeo"] if timeout is UNSET else timeout)
        return batch

    def _begin(self, batch: Batch) -> None:
        """Receive the messages of a batch from now on."""
        # Lists: ``_left`` asks their iterators how many items are left.
        if batch.multipart:
            self._messages = iter(list(batch.bodies))
        else:
            self._bodies = iter(list(batch.bodies))
            if not self._pattern.turns:
                self._plain = self._bodies

    def _received(self) -> None:
        if self._batch is not None:
            self._pattern.received(self._batch.envelope)

    # ------------------------------------------------------------------ subscriptions

    def subscribe(self, prefix: bytes | str = b"") -> None:
        """SUB and XSUB: ask for messages that begin with ``prefix``; empty: for all.

        XPUB with ``xpub_manual``: let the peer whose subscription was received last have them.
        """
        with UNINTERRUPTED:
            self._pattern.subscribe(_octets(prefix))

    def unsubscribe(self, prefix: bytes | str = b"") -> None:
        """Take a subscription back."""
        with UNINTERRUPTED:
            self._pattern.unsubscribe(_octets(prefix))

    def join(self, group: bytes | str) -> None:
        """DISH: ask for messages of a group."""
        with UNINTERRUPTED:
            self._as(Dish, "joins").join(_octets(group))

    def leave(self, group: bytes | str) -> None:
        """DISH: take a ``join`` back."""
        with UNINTERRUPTED:
            self._as(Dish, "leaves").leave(_octets(group))

    def subscribers(self, topic: bytes | str | None = None) -> int:
        """PUB and XPUB: return how many peers get messages that begin with ``topic``; None: any messages.

        RADIO: how many have joined the group ``topic``.
        """
        self._end.look()
        return self._pattern.subscribers(None if topic is None else _octets(topic))

    def topics(self) -> int:
        """PUB, XPUB: return how many prefixes peers have subscribed to; SUB, XSUB: how many this socket has.

        A prefix counts once, however many have it.
        """
        self._end.look()
        return self._pattern.topics()

    def wait_for_subscribers(
        self, count: int = 1, topic: bytes | str | None = None, *, timeout: float | None = None
    ) -> None:
        """PUB and XPUB: wait until ``count`` peers would get a message that begins with ``topic``.

        What is sent afterwards reaches them: no message is lost because a subscriber is slow to join.
        """
        if self.subscribers(topic) < count:
            self._end.wait(
                lambda: self.subscribers(topic) >= count,
                timeout,
                f"fewer than {count} subscribers" + ("" if topic is None else f" to {topic!r}"),
            )

    # ------------------------------------------------------------------ waiting

    def poll(self, timeout: float | None = None) -> bool:
        """Wait until something can be received, at most ``timeout`` seconds; return whether it can."""
        return bool(poll([self], timeout=timeout))

    def readable(self) -> bool:
        """Whether ``recv`` would return at once."""
        if self._parts or self._left():
            return True
        self._end.look()
        return self._end.ready()

    def writable(self) -> bool:
        """Whether ``send`` would return at once."""
        self._end.look()
        return self._pattern.may_send()

    def fileno(self) -> int:
        """Return a descriptor for other event loops.  Readable: look with ``readable`` until it is false."""
        end = self._end
        if end.closed:
            # Raises: its descriptor is that of another socket by now.
            end.look()
        if not end.arm() or self.readable():
            end.caller.wake()
        return end.caller.fileno()

    @property
    def relayed(self) -> bool:
        """Whether the kernel's thread chooses who gets what is sent (``Pattern.relayed``)."""
        return self._pattern.relayed

    def statistics(self) -> SocketStatistics:
        """Return how many messages wait for and from each peer, and how many were dropped."""
        return self._place.statistics(dropped=getattr(self._pattern, "dropped", 0))

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def close(self, linger: float | None = UNSET) -> None:
        """Close it; returns at once.  Any thread: a call in which another one waits raises ``SocketClosed``.

        What was sent is still written, for ``linger`` seconds (None: no limit).
        """
        if not self._closed:
            self._closed = True
            self._fast.plug(None)
            self._end.leave()
            self._waiting.close()
            self.stop_watching()
            self._place.close(self.options["linger"] if linger is UNSET else linger)
            self._on_close(self)

    def _forked(self) -> None:
        """This process is a child that was forked: refuse each call.  The parent receives what has come."""
        # Whoever is in the middle of one of them has the iterator.
        deque(self._bodies, 0)
        deque(self._messages, 0)
        self._parts.clear()
        self._end.forked()

    def __enter__(self) -> Socket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(UNSET if error is None else 0)

    def __iter__(self) -> Iterator[bytes]:
        """Receive messages of one part for ever."""
        while True:
            yield self.recv()

    def __repr__(self) -> str:
        return f"<Socket {self.name} {self.last_endpoint or 'without a place'}>"


def _octets(name: bytes | str) -> bytes:
    """Return a prefix, a group or a topic as octets."""
    if isinstance(name, str):
        return name.encode()
    try:
        return bytes(memoryview(name))
    except TypeError:
        raise TypeError(f"a prefix, or a group, is bytes or text, not {type(name).__name__}") from None


def poll(
    sockets: Sequence[Socket], *, sending: Sequence[Socket] = (), timeout: float | None = None
) -> list[Socket]:
    """Wait until one of ``sockets`` can receive, or one of ``sending`` can send; return all that can.

    Empty after ``timeout`` seconds.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    everybody = list(dict.fromkeys([*sockets, *sending]))
    while True:
        ready = [each for each in sockets if each._waiting.readable()]
        ready += [each for each in sending if each.writable() and each not in ready]
        left = deadline - time.monotonic()
        if ready or left <= 0:
            return ready
        _sleep(everybody, left)


def _sleep(sockets: list[Socket], seconds: float) -> None:
    """Sleep until something was posted to one of them, or has come to one with a lease."""
    begun: list[End] = []
    try:
        for each in sockets:
            each._end.begin_wait()
            begun.append(each._end)
        # One that has something ends the look; those that were armed are disarmed below.
        if all(each._waiting.arm() for each in sockets):
            waiting = select.poll()
            for each in sockets:
                waiting.register(each._waiting.fileno(), select.POLLIN)
                seconds = min(seconds, each._end.until_stall_timeout())
            waiting.poll(None if seconds == math.inf else max(0.0, seconds * 1000))
    finally:
        for end in begun:
            end.disarm()
            end.end_wait()
