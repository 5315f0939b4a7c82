"""Engine: what a thread hosts; a transport, a store or application code on one side, ports on the other.

An engine is passive: the thread that hosts it calls it when there is something in a pipe, when a descriptor
is ready or when a deadline has passed.  In each call it does a bounded amount of work, and does not wait.
What needs waiting (connecting, handshakes, the time to the next try) it starts as a task in the nursery of
its host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Envelope

if TYPE_CHECKING:
    import socket

    import trio

    from kernel.contracts.router import Outlet


# ``Interface``, here and in the other contracts: a protocol is a conversation in this project. An object that
# has the methods has the interface. It need not derive from it, and its plugin imports less.
class PortOwner(Interface):
    """What a port calls, always in the port's thread.  The methods must not wait.

    What one of them raises ends the engine, as a failure of ``Engine.run`` does.
    """

    # A pipe is posted once for everything that is written before the next ``take`` (``Pipe.signalled``). So
    # what an owner leaves in it causes no further call.
    def on_output(self) -> None:
        """There is something in the pipes: call ``port.take`` until it returns nothing.

        Called again only after something new was written.
        """
        ...

    def on_writable(self) -> None:
        """There is room again after ``port.send`` returned False: go on reading the source."""
        ...

    # Never inside ``Port.send``, even if all have confirmed by then: it is posted, and comes in a later turn.
    def on_confirmed(self, position: int) -> None:
        """Every destination has confirmed the messages sent up to ``position`` (see ``Port.sent``)."""
        ...


class HearsSubscriptions(Interface):
    """Optional for the owner of a port: learn what the readers of its messages have subscribed to."""

    # For each reader, and not only for the first of a pattern: an owner that passes them on to a peer tells
    # it of the first one, and of the end of the last.
    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A reader has subscribed or unsubscribed (``verb``: ``subscribe`` or ``unsubscribe``), or has left.

        Called once for each subscription of each reader, after the router was told; ``Port.asked`` has the
        sums.  When a reader leaves, this is called with ``unsubscribe`` for each of its subscriptions.  The
        port's own subscriptions are not reported, so nothing is passed back to where it came from.
        """
        ...


# In a chain of more kernels the answer is about the nearest 17 (docs/decisions/0022-subscriptions-travel.md).
HOPS = 16
"""The most connections that a question whether subscriptions are in effect may cross.

Its number of hops is decremented by each connection, so that it ends in a ring of kernels, where it would
otherwise wait for its own answer."""


class HearsEffect(Interface):
    """Optional for the owner of a port: learn when its own subscriptions are in effect."""

    def on_subscribed(self) -> None:
        """What the port has subscribed to is in effect.  Called after ``Port.subscribed`` was false."""
        ...


class AsksPeer(Interface):
    """Optional for the owner of a port that passes subscriptions on to a peer (``HearsSubscriptions``)."""

    def on_sync(self, hops: int) -> None:
        """Ask the peer whether all that it was asked for is in effect there.

        Call ``Port.synced`` with the same number when it has answered, or at once if it cannot answer.  Only
        then is this called with this number again.  Its sources may ask their own peers, ``hops - 1``
        connections further.  An owner without a peer waits for the next one and asks it (``Port.unsynced``).
        """
        ...


class Taken(msgspec.Struct, frozen=True, gc=False):
    """What ``Port.take`` returns.  False if there was nothing."""

    batches: list[Batch]
    """In order.  The receiver may keep the list."""
    count: int
    """The number of messages in them."""
    # Messages that nobody waits for have numbers, too: so the counts of a peer and the positions of a
    # conversation differ by a constant (docs/decisions/0019-positions.md).
    position: int | None
    """The position of the last message; None if no confirmation is needed.

    The port numbers the messages that are taken from it: 1, 2, 3 ...  The number of a message is its
    position.  So the first of these messages has the position ``position - count + 1``.  Messages that need
    no confirmation are numbered as well.
    """

    def __bool__(self) -> bool:
        return self.count > 0

    def split(self, count: int) -> tuple[Taken, Taken]:
        """Return the first ``count`` messages and the rest.  ``count`` has to be less than ``self.count``."""
        first: list[Batch] = []
        rest = deque(self.batches)
        left = count
        while left > 0:
            batch = rest.popleft()
            if len(batch) > left:
                rest.appendleft(batch.slice(left, len(batch)))
                batch = batch.slice(0, left)
            first.append(batch)
            left -= len(batch)
        # ``self.position`` is that of the last message. The first part ends ``self.count - count`` messages
        # before it.
        position = None if self.position is None else self.position - self.count + count
        return Taken(first, count, position), Taken(list(rest), self.count - count, self.position)


NOTHING_TAKEN = Taken([], 0, None)


class Port(Interface):
    """What an engine sends and receives batches with.  Used by the engine's thread only."""

    name: str

    @property
    def routes(self) -> Sized:
        """The routes that begin here.  Always the same object; it is false while there are none."""
        ...

    # All of them also when the answer is False: an owner that has decoded what came in one read need not keep
    # the rest of it. So a pipe may exceed its mark by what one call brings.
    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches, among them mixed ones.  All of them are accepted.

        False: a pipe that blocks is full.  Stop reading the source until ``PortOwner.on_writable``.
        """
        ...

    def accept_mixed(self, *, accepts: bool = True) -> None:
        """Say whether ``take`` may return mixed batches (``kernel.contracts.mixed_batch``).

        Without it each message under an envelope of its own is a batch.
        """
        ...

    def wants(self, what: Envelope | Batch) -> bool:
        """Return whether messages with this envelope, or these messages, would go anywhere now.

        True if the filter of a route from here accepts them, and its router would find a pipe for them.
        Routers that cannot tell (see ``Selective``) count as True.
        """
        ...

    def take(self, most: int = ...) -> Taken:
        """Take about ``most`` messages from one of the incoming pipes, in turn (fair queueing).

        Batches are not divided, so the answer may have more messages than ``most``.
        """
        ...

    # One call of ``take`` reads one pipe, so that all of its messages have the same origin.
    @property
    def origin(self) -> tuple[str, str]:
        """The names of the port and of the route from which the last messages taken came."""
        ...

    def has_input(self) -> bool:
        """Whether ``take`` would find something."""
        ...

    # Without effect where there is nothing to confirm, so that an owner need not recognise what is late: an
    # answer of a former conversation has a position below all that are waited for.
    def confirm_through(self, position: int | None) -> None:
        """Take the responsibility for all messages taken up to ``position``.

        That means: they are stored, or the next destination has confirmed them.  Cumulative.  None has no
        effect, nor has a position that is lower than an earlier one, or that belongs to messages that need no
        confirmation any more.
        """
        ...

    def confirm_only(self, first: int, last: int) -> None:
        """Take the responsibility for the messages with positions ``first`` to ``last``, out of order.

        The source is told when all messages before them are confirmed as well.  But neither ``take_again``
        nor a successor of this port gets them again.  Costs more than ``confirm_through`` if many earlier
        messages are not confirmed.
        """
        ...

    def refuse(self, first: int, last: int, reason: str) -> None:
        """Refuse the messages with positions ``first`` to ``last`` for ever.

        ``reason`` is for operators and headers.

        They go to the dead letters of their route (``dead_letters``), or are dropped; they are counted in
        both cases.  For the source they are confirmed when the engine for dead letters has confirmed them.
        Positions of messages that need no confirmation are ignored.
        """
        ...

    @property
    def confirms(self) -> bool:
        """Whether a route that begins here confirms, so that ``on_confirmed`` will be called."""
        ...

    def sent(self) -> int:
        """The position of the last message sent.

        The messages that are sent while ``confirms`` are numbered from 1 on.
        """
        ...

    def confirmed(self) -> int:
        """The position up to which every destination has confirmed."""
        ...

    # New positions, so that what the peer of the former conversation still confirms cannot be taken for a
    # confirmation of these.
    def take_again(self) -> Taken:
        """Return all messages that were taken and not confirmed, to send them again after a reconnection.

        They get new positions, behind all others.  Their old positions are not valid any more.
        """
        ...

    def subscribe(self, pattern: str) -> None:
        """Ask the routes that lead here for messages whose key matches ``pattern``.

        With ``group:NAME:`` in front of the pattern (``kernel.contracts.groups``) each message goes to one
        member of the group.
        """
        ...

    def subscribed(self) -> bool:
        """Return whether all sources have applied the subscriptions of this port.

        Those are the sources in this kernel, and those of their peers, if the peers can tell.  The first call
        after a subscription asks them, and is false if it has to wait for an answer (``HearsEffect``).
        Sources that have gone are not waited for.
        """
        ...

    def when_subscribed(self, hops: int, then: Callable[[], Any]) -> None:
        """Call ``then`` when the subscriptions of this port are in effect, at once or later, for a peer.

        Do not call it in the turn in which the port was opened: its pipes are attached in the next one.
        ``hops``: how many connections further the sources may ask; ``HOPS - 1`` at the most.  Threads of the
        application are not waited for: they apply subscriptions before they send anything else.
        """
        ...

    def forget_when_subscribed(self) -> None:
        """Forget all calls of ``when_subscribed``: the conversation that they were for is over."""
        ...

    def unsynced(self) -> Sequence[int]:
        """Return with which numbers ``on_sync`` was called and ``synced`` was not (``AsksPeer``)."""
        ...

    def synced(self, hops: int) -> None:
        """Take notice that the owner's peer has answered, or cannot answer."""
        ...

    @property
    def asked(self) -> Mapping[str, int]:
        """The patterns to which readers of this port's messages have subscribed.

        The values are the numbers of subscriptions.  Kept for owners with ``on_asked``
        (``HearsSubscriptions``); empty for others.
        """
        ...

    def unsubscribe(self, pattern: str) -> None:
        """Take a subscription back."""
        ...

    def close(self) -> None:
        """Leave the dispatcher.

        What was taken here and not confirmed goes back to the routes.  The readers of this port's messages
        take what is in the pipes, and then see the end.
        """
        ...


class PortGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a port and others are one destination (option ``port_group`` of ``Host.port``).

    A route connects each source port with one of them.  So if that one is full, the other ports are not
    affected.
    """

    whole: str
    """The name of the destination."""
    index: int
    """The number of the port in the group, from 0.  The ports have to be opened in this order, one right
    after the other."""
    of: int
    """The number of ports in the group."""


# Level-triggered: an engine that has read its share and left the rest is called again in the next turn, and
# has to keep no note of it.
class Poller(Interface):
    """Watches descriptors for a thread.  Level-triggered; callbacks are called in the thread's turn."""

    def watch(
        self, fd: int, *, readable: Callable[[], int | None] | None, writable: Callable[[], None] | None
    ) -> None:
        """Watch a descriptor, or change how it is watched; without any callback: forget it.

        ``readable`` may return how many octets it has read.  A thread that is woken very often sees by them
        whether it does well to wait (``kernel.threads.batch_scheduling``).
        """
        ...

    @property
    def more(self) -> bool:
        """While a callback runs: whether another descriptor of this engine was found ready, and comes next.

        It may be forgotten by then.
        """
        ...


class Host(Interface):
    """What a thread gives to the engines that it hosts."""

    @property
    def poller(self) -> Poller:
        """Watches descriptors for this thread."""
        ...

    rendezvous: dict[str, Any]
    """Objects that engines of one kernel share by name.  Several threads use it: one atomic operation at a
    time."""
    nursery: trio.Nursery
    """For the engine's tasks.  A task that raises ends its engine, not the thread."""

    def now(self) -> float:
        """Seconds of the thread's monotonic clock."""
        ...

    def processor_time(self) -> float:
        """Seconds that the thread has worked, without its waiting for a core or for the interpreter's lock.

        It tells what a turn costs on a busy machine, too.  It is a system call: about a microsecond.
        """
        ...

    # By way of the mailbox, behind what other threads have posted. So an engine that always has something to
    # do keeps neither them nor descriptors and timers waiting.
    def soon(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` in a later turn of this thread, after other engines had theirs."""
        ...

    def post(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` in a later turn of this thread.  Any thread."""
        ...

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> Port:
        """Open one more port of this engine.  Its routes are in place when this returns.

        Routers of the routes that lead here get ``options``.  The kernel knows five of them:
        ``subscriptions`` is a list of patterns; ``port_group`` (a ``PortGroup``) says that this port and
        others are one destination; ``echo``, if it is False, keeps what was sent here from coming back by a
        route with ``echo = true``; ``reply_name`` is a second name of the port for the router
        ``reply``; ``apart``, if it is true, gives the port the routes of an engine with its own name,
        and not those of this engine.
        """
        ...

    # Keys of one engine do not meet those of another.
    def set_timer(self, when: float | None, callback: Callable[[], None], key: object) -> None:
        """Call ``callback`` at ``when``, a time of ``now``.

        There is one timer for each key; None cancels it.
        """
        ...

    def linger_left(self) -> float:
        """Return how many seconds an engine that is being cancelled may take to end its conversations.

        It is what is left of the time to linger that ``Kernel.close`` or ``remove_engine`` was given; 0
        without any.
        """
        ...

    def report(self, event: EngineEvent) -> None:
        """Report an event to the supervisor, the log and the metrics.  For rare events only."""
        ...


# Text and numbers only: the events of a process cross its control wire as plain data.
class EngineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator wants to know about an engine."""

    engine: str
    what: str
    """``listening``, ``connected``, ``disconnected``, ``refused``, ``retrying``, ``failed`` ..."""
    peer: str = ""
    detail: str = ""
    code: str = ""
    """What the protocol or the system has for it: the status of ZAP with which a login was refused, the name
    of a fault in a handshake of ZMTP, the number of an error of the system, such as ``EMFILE``."""
    next_try: float | None = None
    """Seconds until the next attempt."""
    trace: str = ""
    """The traceback of an engine that has failed, for those who mend it."""


class Engine(Interface):
    """What an engine kind constructs."""

    # A failed engine is not run again, since it may be in any state: its kind makes another one.
    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled.  Call ``task_status.started(address)`` when the engine is usable.

        When this raises, the supervisor makes a new engine after a wait, which doubles with each failure.
        When it returns, the engine has ended, and no new one is made.
        """
        ...

    # Any thread, so that the figures of an engine that is stuck can be read as well. A counter that only its
    # own thread changes needs no lock for that (``kernel/topology/statistics.py``).
    def statistics(self) -> dict[str, Any]:
        """Return the counters, by the standard names (``messages_in``, ``bytes_out`` ...).  Any thread.

        docs/figures.md has the names.  Figures of many things are ``LazyFigures``.
        """
        ...


class Lingering(Interface):
    """Optional for an engine that writes to somewhere: say whether something is unwritten."""

    # The thread that asks is any one that is closing: it wants to know whether the whole system is at rest
    # (``kernel/topology/lingering.py``).
    def pending(self) -> bool:
        """Return whether something that was taken from the pipes is not written yet.  Any thread.

        A kernel that closes, and a call that removes the engine, wait until this is False, for a limited
        time.
        """
        ...


class Inspectable(Interface):
    """Optional for an engine: the rows of the tables that its kind announces (``EngineKind.tables``)."""

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return the rows of the table ``what``; none for a table that the engine does not know.

        Called in the engine's thread, as all methods but ``statistics``; must be quick, and must not wait.
        """
        ...


class TakesOptions(Interface):
    """Optional for an engine: take changed options while it runs (``EngineKind.live_options``)."""

    def take_options(self, options: Any) -> None:
        """Go on with these options, an instance of the kind's options class.

        Only options that ``live_options`` names differ from those of before.  Called in the engine's thread.
        What it raises is reported to whoever has changed the plan; the engine goes on.
        """
        ...


class TakesOver(Interface):
    """Optional for an engine: take a connection that another engine has begun (``System.hand_over``)."""

    # Plain data, since the two engines may be in different processes: then the socket crosses the control
    # wire.
    def take_over(self, what: Mapping[str, Any], connected: socket.socket) -> None:
        """Go on with a connection.  ``what`` is what the other engine says of it, as plain data.

        Called in the engine's thread.  The engine owns the socket from now on, whatever it makes of it.  What
        it raises is logged, and the socket is closed.
        """
        ...


class Operable(Interface):
    """Optional for an engine: operations that an operator can call."""

    # Other engines of the thread have their turns between two steps of a generator. Within a step nothing of
    # the engine changes.
    def operate(self, what: str, argument: Any) -> Any:
        """Do the operation ``what``; return its result as JSON has it.

        Raises ``KernelError`` if it cannot be done.

        Called in the engine's thread; must be quick, and must not wait.  An operation with much to do returns
        a generator: the thread goes on with it in each of its next turns, and what it returns is the result.
        It is closed if the engine ends before.  A generator that has to wait yields a function: it is called
        with another one, and the thread goes on when that is called, in this thread.
        """
        ...
