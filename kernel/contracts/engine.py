"""Engine: what a thread hosts; a transport, a store or application code on one side, ports on the other.

An engine is passive: the thread that hosts it calls it when a pipe, a descriptor or a deadline has
something for it.  It does a bounded amount of work a call, and never waits in one.  What is best said as a task
(dial, accept, shake hands, wait for a timer) it starts in the nursery that ``run`` is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Envelope

if TYPE_CHECKING:
    import trio

    from kernel.contracts.router import Outlet


class PortOwner(Interface):
    """What a port calls.  Always in the thread that the port lives in; may not wait or raise."""

    def on_output(self) -> None:
        """Pipes have something: call ``port.take``.  Called again at the next change only."""
        ...

    def on_writable(self) -> None:
        """``port.send`` had asked to stop; the source may be read again."""
        ...

    def on_confirmed(self, position: int) -> None:
        """Every destination has confirmed what this port sent up to ``position`` (see ``Port.sent``)."""
        ...


class HearsSubscriptions(Interface):
    """Optional for the owner of a port: to pass on what the readers of its messages have subscribed to."""

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A reader has subscribed or unsubscribed (``verb``: ``subscribe`` or ``unsubscribe``), or has left.

        Called once for each subscription of each reader, after the router; ``Port.asked`` has the sums.  A reader that
        leaves takes each of its subscriptions back.  The port's own subscriptions are not among them: nothing is passed
        back to where it came from.
        """
        ...


class HearsEffect(Interface):
    """Optional for the owner of a port: to know when its own subscriptions are in effect."""

    def on_subscribed(self) -> None:
        """All sources in this kernel have applied what the port has subscribed to (``Port.subscribed``)."""
        ...


class Taken(msgspec.Struct, frozen=True, gc=False):
    """What ``Port.take`` returns.  False when there was nothing."""

    batches: list[Batch]
    """In order.  The receiver may keep the list."""
    count: int
    """How many messages they are."""
    position: int | None
    """The position of the last of them; None when nobody waits for a confirmation of them.

    The port numbers the messages that are taken from it: 1, 2, 3 ...  The number of a message is its position.
    So the first of these has the position ``position - count + 1``.  Messages that nobody waits for are
    numbered as well.
    """

    def __bool__(self) -> bool:
        return self.count > 0

    def split(self, count: int) -> tuple[Taken, Taken]:
        """Return the first ``count`` messages, which have to be fewer than all, and the rest."""
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
        position = None if self.position is None else self.position - self.count + count
        return Taken(first, count, position), Taken(list(rest), self.count - count, self.position)


NOTHING_TAKEN = Taken([], 0, None)


class Port(Interface):
    """An engine's own face towards the dispatcher.  Used by the thread that owns the engine."""

    name: str

    @property
    def routes(self) -> Sized:
        """The routes that begin here.  The same object all the time: false while there are none."""
        ...

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches.  False: a pipe is full and blocks, stop reading the source until ``on_writable``."""
        ...

    def wants(self, what: Envelope | Batch) -> bool:
        """Whether messages under this envelope, or these, have somewhere to go now.

        True if a route from here lets them pass and its router, if it can tell (``Selective``), would find somebody.
        """
        ...

    def take(self, most: int = ...) -> Taken:
        """Take about ``most`` messages from the incoming pipes in turn (fair queueing)."""
        ...

    @property
    def origin(self) -> tuple[str, str]:
        """The names of the port and of the route that what was last taken came from."""
        ...

    def has_input(self) -> bool:
        """Whether ``take`` would find something."""
        ...

    def confirm_through(self, position: int | None) -> None:
        """Take the responsibility for all messages taken up to ``position``.

        They are written down, or the peer has confirmed them.  Cumulative: a position that is lower than an
        earlier one does nothing, nor does one for which nobody waits any more, nor does None.
        """
        ...

    def confirm_only(self, first: int, last: int) -> None:
        """Take the responsibility for the messages with positions ``first`` to ``last``, out of order.

        The source is told when all before them are confirmed as well, but neither ``rewind`` nor a successor of this
        port gets them again.  Costs more than ``confirm_through`` when many before them are open.
        """
        ...

    def refuse(self, first: int, last: int, reason: str) -> None:
        """Say that the messages with positions ``first`` to ``last`` will never be taken here, and why.

        They go to the dead letters of their route (``dead_letters``), or are dropped; they are counted in both cases.  The
        source is told that they are confirmed once the dead letters' engine has confirmed them.  Positions
        that nobody waits for are ignored.
        """
        ...

    @property
    def confirms(self) -> bool:
        """Whether a route out confirms, so that ``on_confirmed`` will be called."""
        ...

    def sent(self) -> int:
        """The position of the last message sent.

        The messages that are sent while ``confirms`` are numbered from 1 on.
        """
        ...

    def confirmed(self) -> int:
        """The position up to which every destination has confirmed."""
        ...

    def rewind(self) -> Taken:
        """Take what was taken and never confirmed once more, to send it again after a reconnection.

        The messages get new positions, behind all others.  The old positions mean nothing from here on.
        """
        ...

    def subscribe(self, pattern: str) -> None:
        """Ask the routes that lead here for messages whose key matches ``pattern``.

        With ``group:NAME:`` in front of the pattern (``kernel.contracts.groups``) each message goes to one member of the group.
        """
        ...

    def subscribed(self) -> bool:
        """Whether all that was subscribed to is in effect at the sources in this kernel.  See ``HearsEffect``."""
        ...

    @property
    def asked(self) -> Mapping[str, int]:
        """What the readers of what is sent here have subscribed to, with the number of subscriptions to each pattern.

        Kept for owners with ``on_asked`` (``HearsSubscriptions``); empty for others.
        """
        ...

    def unsubscribe(self, pattern: str) -> None:
        """Take a subscription back."""
        ...

    def close(self) -> None:
        """Leave the dispatcher: what was not confirmed goes back to the routes; readers see the end."""
        ...


class PortGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Says of a port that it is one of several that are one destination together (option ``share`` of ``Host.port``).

    Routes give each source port to one of them: the others know nothing of it when that one is full.
    """

    whole: str
    """The name of the destination."""
    index: int
    """Counted from 0; they are opened in this order, without a pause."""
    of: int
    """How many there are."""


class Poller(Interface):
    """The thread's watch over descriptors.  Level-triggered; callbacks run in the thread's turn."""

    def watch(
        self, fd: int, *, readable: Callable[[], None] | None, writable: Callable[[], None] | None
    ) -> None:
        """Watch, or watch otherwise; with neither callback: forget the descriptor."""
        ...


class Host(Interface):
    """What a thread gives to the engines that it hosts."""

    @property
    def poller(self) -> Poller:
        """The thread's watch over descriptors."""
        ...

    rendezvous: dict[str, Any]
    """Where engines of one kernel leave what others look for by name; one atomic operation at a time."""
    nursery: trio.Nursery
    """Tasks of engines live here; a task that raises takes its engine down, not the thread."""

    def now(self) -> float:
        """Seconds of the thread's monotonic clock."""
        ...

    def soon(self, callback: Callable[[], Any]) -> None:
        """Call in a later turn of this thread, after the others had theirs."""
        ...

    def post(self, callback: Callable[[], Any]) -> None:
        """The same, from any thread."""
        ...

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> Port:
        """Join the dispatcher as one more port of this engine; its routes apply at once.

        Sync and quick.  ``options`` reach the routers of the routes that lead here; ``share`` (a ``PortGroup``) says that this
        port and others are one destination.
        """
        ...

    def set_timer(self, when: float | None, callback: Callable[[], None], key: object) -> None:
        """Call back at ``when`` (this clock); one timer a key, None cancels it."""
        ...

    def report(self, event: EngineEvent) -> None:
        """Tell the supervisor, the log and the metrics.  Rare things only."""
        ...


class EngineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something an operator would want to know of an engine."""

    engine: str
    what: str
    """``listening``, ``connected``, ``disconnected``, ``refused``, ``retrying``, ``failed`` ..."""
    peer: str = ""
    detail: str = ""
    next_try: float | None = None
    """Seconds until the next attempt."""


class Engine(Interface):
    """What an engine kind constructs."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Live: from here until cancelled.  ``task_status.started(address)`` once usable.

        When it returns or raises, the supervisor applies the engine's restart policy.
        """
        ...

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment, by the standard names (``messages_in``, ``bytes_out`` ...).  Any thread."""
        ...


class Inspectable(Interface):
    """Optional for an engine: the rows of the tables that its kind announces (``EngineKind.tables``)."""

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each thing of the sort ``what``; none of a sort that is unknown here.

        Called in the engine's thread, like everything but ``statistics``: short, and no waiting.
        """
        ...


class Operable(Interface):
    """Optional for an engine: what an operator can have it do, besides telling."""

    def operate(self, what: str, argument: Any) -> Any:
        """Do it, and return what came of it, as JSON has it; ``KernelError`` in words for what cannot be done.

        Called in the engine's thread, and so to be done quickly, without waiting.
        """
        ...
