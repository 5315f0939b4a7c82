"""End: the application's end of a socket, a port with what is needed to wait.

Any thread may use it, one at a time.  As for a channel, what other threads want of it is posted, and done in
the next call.  The order of the steps of a wait is that of ``CallerThread.wait_until``.

Only to close it, another thread need not wait for the end of a call.  A thread that waits is woken then, and
leaves the kernel itself: its bell belongs to somebody else as soon as the end has left (``leave``).

What was taken from the pipes waits in ``inbox``.  A pattern may change it on its way there (``incoming``),
and append messages of its own.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any
from typing import Protocol as Interface

from kernel.contracts.api import CallerPort, CallerThread, Join, Lease
from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import PortOwner
from kernel.contracts.message import Batch, Envelope, batch_of_one
from kernel.contracts.prefix_table import PrefixTable
from kernel.contracts.router import Outlet
from kernel.hosting.borrower import Borrower
from kernel.hosting.fast_sender import FastSender, fast_sender, send_whole
from kernel.hosting.forking import FORKED
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.sockets.errors import Again, AgainLater, ContextClosed, SocketClosed

AT_ONCE = 65_536
"""About how many messages are taken from the pipes at once, at the most."""


class Lending(Interface):
    """What an end has to know of the pattern of a socket that may use a lease."""

    @property
    def asks(self) -> bool:
        """Whether each message that it sends is a question."""
        ...

    @property
    def answers(self) -> bool:
        """Whether each message that it sends is an answer."""
        ...

    def next_question(self) -> Envelope:
        """Return the envelope of the questions that are sent with a lease."""
        ...


class End(PortOwner):
    """``kernel.contracts.api.Api``, and the owner of the port."""

    def __init__(self, name: str, join: Join) -> None:
        self.name = name
        self.inbox: deque[Batch] = deque()
        self._arrived: deque[Batch] = deque()
        """What was taken from the pipes on its way to the inbox."""
        self.incoming: Callable[[Batch], Batch | None] | None = None
        """What the pattern does with a batch; None: nothing."""
        self._reason = ""
        self._left = False
        """Whether the application has closed the socket, and not its context."""
        self._leaving = False
        """Whether the application has closed the socket, or the kernel has ended; the end leaves then."""
        self._waiter = 0
        """The thread that waits in a call; 0: none does."""
        self._to_dispose = [True]
        """Not empty until a thread has begun to leave the kernel: to take the item is atomic."""
        self.leased: Lease | None = None
        """The lease that is used.  While it is active, nothing is in the inbox and in the pipes."""
        self.before: Envelope | None = None
        self.after: Envelope | None = None
        """Which question is open (``Pattern.open``) when the lease may send a message, and when it was
        sent."""
        self._borrower: Borrower | None = None
        self._lending: Lending | None = None
        self._find_short_cut: Callable[[], None] = lambda: None
        self.caller: CallerThread = join(self)
        self.port: CallerPort = self.caller.port
        self.posted = self.caller.posted

    def fast(self, long_way: Callable[[Any, str | None, float | None], None]) -> FastSender:
        """Return a sender for bare bodies; ``long_way`` sends the others."""
        # ``int``: one thread after the other may use it.
        sender = fast_sender(self.posted, long_way, int)

        def find_short_cut() -> None:
            # With a lease each message takes the long way, where the lease is.
            pipe = self.port.short_cut() if self.leased is None else None
            # Bare bodies are appended without a look at the marks, so not for a pipe that drops.
            sender.plug(pipe if pipe is not None and pipe.marks.when_full == "block" else None)

        def changed() -> None:
            if self.leased is None:
                find_short_cut()
            else:
                self._end_lease()

        self.port.on_topology = changed
        self._find_short_cut = find_short_cut
        find_short_cut()
        return sender

    # ------------------------------------------------------------------ without the poll thread

    def borrow(self, lending: Lending) -> None:
        """Use leases from now on (``kernel.hosting.lease``).

        Whoever sends and receives tries the lease first, if there is one.  All other calls end it (``look``,
        ``arm``).
        """
        self._lending = lending
        self._borrower = Borrower(lambda: self.caller.ask_lease(lending.next_question()))

    @property
    def borrows(self) -> bool:
        """Whether it may use leases."""
        return self._borrower is not None

    def waited(self) -> None:
        """Take notice that a task has waited, for messages perhaps."""
        if self._borrower is not None and not self._reason and self.ready():
            self._waited(self._borrower)

    def _waited(self, borrower: Borrower) -> None:
        """Take notice that a wait for messages has ended."""
        inbox = self.inbox
        lone = len(inbox) == 1 and not inbox[0].multipart and len(inbox[0].bodies) == 1
        lease = borrower.waited(lone=lone)
        lending = self._lending
        if lease is not None and lending is not None:
            with UNINTERRUPTED:
                self.before = lease.envelope if lending.answers else None
                self.after = lease.envelope if lending.asks else None
                self.leased = lease
                self._find_short_cut()

    def _end_lease(self) -> None:
        """Have the connection read by the poll thread again."""
        with UNINTERRUPTED:
            lease = self.leased
            if lease is not None:
                lease.give_back()
                if lease.kept is not None:
                    self.inbox.append(batch_of_one(lease.kept, lease.envelope))
                    lease.kept = None
                self.leased = None
                if self._borrower is not None:
                    self._borrower.gave_back(lease)
                self._find_short_cut()

    # ------------------------------------------------------------------ sending

    def room_for(self, batch: Batch) -> bool:
        """Whether this batch need not wait."""
        return self.port.has_room_for(batch)

    def send(self, batch: Batch, timeout: float | None) -> None:
        """Send a batch; wait for room."""
        self.look()
        port = self.port
        if not port.has_room_for(batch):
            with UNINTERRUPTED:
                port.stop()
            self.wait(
                lambda: port.has_room_for(batch), timeout, "no peer has room for a message, or there is none"
            )
        send_whole(port, batch)

    # ------------------------------------------------------------------ receiving

    def ready(self) -> bool:
        """Whether something can be received; takes it from the pipes."""
        inbox = self.inbox
        if inbox:
            return True
        with UNINTERRUPTED:
            while not inbox:
                taken = self.port.take(AT_ONCE)
                self._arrived += taken.batches
                if not self._arrived:
                    return False
                if self.incoming is None:
                    inbox += self._arrived
                    self._arrived.clear()
                else:
                    self._pass_on(self.incoming)
        return True

    def next_batch(self, timeout: float | None) -> Batch:
        """Return the next batch; wait for it."""
        self.await_batch(timeout)
        return self.inbox.popleft()

    def await_batch(self, timeout: float | None) -> None:
        """Wait until there is a batch in the inbox."""
        if self._take_alone():
            return
        self.look()
        if not self.inbox and not ((self.port.has_input() or self._arrived) and self.ready()):
            if timeout == 0:
                raise Again(self._text("no message has come"))
            self.begin_wait()
            try:
                has_come = self.caller.wait_for(self._attempt, timeout)
            finally:
                self.end_wait()
            if not has_come:
                self.caller.disarm()
                raise AgainLater(f"{self._text('no message has come')} (waited {in_seconds(timeout or 0)})")
            if self._reason and not self.ready():
                self._raise_closed()
            if self._borrower is not None and not self._reason:
                self._waited(self._borrower)

    def _take_alone(self) -> bool:
        """Take what the only peer has sent, if nothing else is to do (``CallerPort.take_alone``)."""
        if self.leased is not None or self.inbox or self._reason:
            return False
        # Something may be left in ``_arrived`` by a call in which a handler of a signal has raised.
        if not (self.posted or self.port.has_input() or self._arrived):
            return False
        incoming = self.incoming
        into = self.inbox if incoming is None else self._arrived
        if self.port.take_alone(self.posted, into, AT_ONCE) is None:
            return False
        if incoming is not None:
            self._pass_on(incoming)
        return bool(self.inbox)

    def _pass_on(self, incoming: Callable[[Batch], Batch | None]) -> None:
        """Do with what has arrived what the pattern does."""
        arrived = self._arrived
        while arrived:
            batch = incoming(arrived[0])
            # No call up to ``del``: the batch is in one of the places.
            if batch is not None:
                self.inbox += (batch,)
            del arrived[0]

    def _attempt(self) -> bool:
        # Nothing but a call of another thread or a stall timeout makes a difference.
        if not self.posted and self.caller.until_stall_timeout():
            return False
        return self._take_alone() or self.caller.serve(self._ready_or_closed)

    # ------------------------------------------------------------------ waiting

    def look(self) -> None:
        """Do what other threads have posted.  Raises if the end is closed."""
        # One that has not begun hinders nobody.
        lease = self.leased
        if lease is not None and (lease.active or not lease.offered):
            self._end_lease()
        if self.posted:
            with UNINTERRUPTED:
                self.caller.process()
        if self._reason:
            self._raise_closed()

    def _ready_or_closed(self) -> bool:
        return bool(self._reason) or self.ready()

    def _raise_closed(self) -> None:
        if self._leaving:
            # If this thread was woken for that (``leave``).
            self._dispose()
        if self._left:
            raise SocketClosed(f"socket {self.name!r} was closed; make another one")
        raise ContextClosed(f"socket {self.name!r}: {self._reason}")

    def wait(self, done: Callable[[], bool], timeout: float | None, why: str) -> None:
        """Wait until ``done()``; raise ``Again`` after ``timeout`` seconds."""
        self._wait(lambda: bool(self._reason) or done(), timeout, why)
        if self._reason and not done():
            self._raise_closed()

    def _wait(self, done: Callable[[], bool], timeout: float | None, why: str) -> None:
        if timeout == 0:
            raise Again(self._text(why))
        self.begin_wait()
        try:
            is_done = self.caller.wait_until(done, timeout)
        finally:
            self.end_wait()
        if not is_done:
            self.caller.disarm()
            raise AgainLater(f"{self._text(why)} (waited {in_seconds(timeout or 0)})")

    def begin_wait(self) -> None:
        """This thread waits from now on.  Raises if the end is closed."""
        self._waiter = get_ident()
        # Behind it, as ``leave`` sets the flag before it looks for a thread that waits.
        if self._leaving:
            self._waiter = 0
            self._raise_closed()

    def end_wait(self) -> None:
        """It does not wait any more."""
        self._waiter = 0
        if self._leaving:
            self._dispose()

    def _text(self, why: str) -> str:
        return f"socket {self.name!r}: {why}"

    def arm(self) -> bool:
        """Prepare to wait for the descriptor; False if there may be something already."""
        # Who watches the descriptor looks for messages without waiting in a call.
        if self._borrower is not None:
            self._end_lease()
            self._borrower.forget()
        return self.arm_to_receive()

    def arm_to_receive(self) -> bool:
        """As ``arm``, for who waits for a message and says so afterwards (``waited``).

        If a lease is active, its socket is waited for as well (``LeasedSocket``).
        """
        return self.caller.arm() and not self._reason

    def disarm(self) -> None:
        """Take ``arm`` back, and do what has come."""
        with UNINTERRUPTED:
            self.caller.disarm()
            self.caller.clear()
            self.caller.process()

    def serve(self) -> None:
        """As ``disarm``, for who is not woken by the descriptor."""
        with UNINTERRUPTED:
            self.caller.disarm()
            self.caller.process()

    def until_stall_timeout(self) -> float:
        """Return the longest time to wait for the descriptor."""
        return min(self.caller.until_stall_timeout(), math.inf)

    # ------------------------------------------------------------------ the port's owner

    # Called inside ``process``: whoever waits tests its condition next.

    def on_output(self) -> None:
        """Something has come."""

    def on_writable(self) -> None:
        """There is room."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is confirmed on the routes of sockets."""

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether it has left the kernel."""
        return self.port.closed

    def kernel_closed(self, reason: str) -> None:
        """Wake whoever waits.  Any thread."""
        self.caller.post(lambda: self._close(reason))

    def _close(self, reason: str) -> None:
        self._reason = self._reason or reason
        # Nobody would wake a thread that waits with a lease from now on.  A message that has come is still
        # received.
        self._end_lease()

    def forked(self) -> None:
        """This process is a child that was forked: refuse each call, and forget what has come."""
        self._reason = FORKED
        self.inbox.clear()

    def leave(self) -> None:
        """Leave the kernel, because the application has closed the socket.  Any thread.

        One that waits in a call is woken, and leaves itself.
        """
        self._left, self._leaving = not self._reason, True
        self._reason = self._reason or "the socket was closed"
        self._leave_soon()

    def dispose(self) -> None:
        """Leave the kernel, because it has ended."""
        if self._to_dispose:
            self._leaving = True
            # Who waits may just be about to ask the system, with the number of the descriptor.
            self.caller.keep_bell()
            self._leave_soon()

    def _leave_soon(self) -> None:
        """Leave the kernel, or have the thread do so that waits in a call."""
        lease = self.leased
        if lease is not None:
            lease.abandon(self._dispose)
        self.caller.post(_nothing)
        # Behind the post: a thread that is not seen here has still to look whether something was posted.  It
        # may be this one, if a handler of a signal closes the socket.
        if not (self._waiter or (lease is not None and lease.waits())):
            self._dispose()

    def _dispose(self) -> None:
        """Leave the kernel."""
        if not self._to_dispose:
            return
        try:
            self._to_dispose.pop()
        except IndexError:
            # Another thread was faster.
            return
        self._end_lease()
        self.port.on_topology = lambda: None
        self._close("the context was closed")
        self.caller.close()


def _nothing() -> None:
    """What is posted to wake a thread."""


class Relay(Interface):
    """What routes in the thread of the engine, as the end sees it (``plugins/engines/zmq/relay.py``)."""

    @property
    def name(self) -> str:
        """The name of its port."""
        ...

    def drop(self, lost: Counter[Outlet], then: Callable[[], Any]) -> None:
        """Count messages that it could not be given, by the pipes to peers; call ``then`` afterwards."""
        ...


class PublishingEnd(End):
    """The end of a socket whose peers subscribe."""

    def __init__(self, name: str, join: Join) -> None:
        self.wanted: PrefixTable[bytes, Outlet] = PrefixTable()
        """Who has subscribed to which prefix, and how often."""
        self.on_subscription: Callable[[str, bytes, bool, str], Any] | None = None
        """Called with ``subscribe`` or ``unsubscribe``, the prefix, whether it is the first or the last, and
        the name of the port of the peer."""
        self.relay: Relay | None = None
        """What chooses the peers; None: this end does."""
        self.room = 0
        """How many messages the relay has room for, whatever their size."""
        self.lost: Counter[Outlet] = Counter()
        """Messages that the relay had no room for, and that it was not told of yet, by the pipes to peers."""
        self._telling = False
        """Whether the relay has been told of some, and has not counted them yet."""
        super().__init__(name, join)

    def publish(self, batch: Batch) -> None:
        """Send a batch without waiting: it is dropped, and counted, where there is no room."""
        self.look()
        if self.relay is None:
            send_whole(self.port, batch)
            return
        pipe = self.port.short_cut()
        if pipe is None:
            # The engine has failed.  Nobody is there, and its route would keep the messages.
            return
        # With large messages the mark of bytes comes first.  It does not hold for what may wait for a
        # single peer.
        if pipe.full() and pipe.depth() >= self.room:
            with UNINTERRUPTED:
                self._drop(batch, self.relay)
        else:
            send_whole(self.port, batch)

    def _drop(self, batch: Batch, relay: Relay) -> None:
        longest = self.wanted.longest()
        for body in batch.bodies:
            first = body[0] if batch.multipart else body
            # A peer counts once, whatever it has subscribed to.
            self.lost.update(set(self.wanted.find(bytes(first[:longest]))))
        # One call at a time, so that calls do not wait in heaps where messages are lost in heaps.
        if self.lost and not self._telling:
            self._telling = True
            lost, self.lost = self.lost, Counter()
            relay.drop(lost, self._told)

    def _told(self) -> None:
        self._telling = False

    def hear(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """Take notice of ``on_asked`` of the relay.  Any thread."""
        if not self.closed:
            self.caller.post(partial(self.on_asked, verb, pattern, outlet))

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A peer has subscribed or unsubscribed, or has gone."""
        # The pattern is ``prefix:`` and the octets of the prefix: sockets of this API have no keys.
        prefix = pattern.partition(":")[2].encode("utf-8", "surrogateescape")
        before = bool(self.wanted.at(prefix))
        if verb == "subscribe":
            self.wanted.add(prefix, outlet)
        else:
            self.wanted.remove(prefix, outlet)
        after = bool(self.wanted.at(prefix))
        if self.on_subscription is not None:
            self.on_subscription(verb, prefix, before != after, outlet.target)

    def subscribers(self, topic: bytes | None, *, exact: bool = False) -> int:
        """Return how many peers get messages that begin with ``topic`` or are it; None: any messages."""
        if topic is None:
            return len(self.wanted.values())
        return len(set(self.wanted.at(topic) if exact else self.wanted.find(topic)))
