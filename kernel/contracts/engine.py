"""Engine: what a thread hosts; a transport, a store or application code on one side, ports on the other.

An engine is passive: the thread that hosts it calls it when a pipe, a descriptor or a deadline has
something for it.  It does a bounded amount of work a call, and never waits in one.  What is best said as a task
(dial, accept, shake hands, wait for a timer) it starts in the nursery that ``run`` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Envelope

if TYPE_CHECKING:
    import trio


class PortOwner(Interface):
    """What a port calls.  Always in the thread that the port lives in; may not wait or raise."""

    def on_output(self) -> None:
        """Pipes have something: call ``port.take``.  Called again at the next change only."""
        ...

    def on_writable(self) -> None:
        """``port.send`` had asked to stop; the source may be read again."""
        ...

    def on_confirmed(self, count: int) -> None:
        """Every destination has confirmed the first ``count`` messages that this port sent."""
        ...


class Port(Interface):
    """An engine's own face towards the dispatcher.  Used by the thread that owns the engine."""

    name: str

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches.  False: a pipe is full and blocks, stop reading the source until ``on_writable``."""
        ...

    def wants(self, what: Envelope | Batch) -> bool:
        """Whether messages under this envelope, or these, have somewhere to go now.

        True if a route from here lets them pass and its router, if it can tell (``Selective``), would find somebody.
        """
        ...

    def take(self, most: int = ...) -> list[Batch]:
        """Take about ``most`` messages from the incoming pipes in turn (fair queueing)."""
        ...

    @property
    def origin(self) -> tuple[str, str]:
        """The names of the port and of the route that what was last taken came from."""
        ...

    def has_input(self) -> bool:
        """Whether ``take`` would find something."""
        ...

    def confirm(self, count: int) -> None:
        """Take the responsibility for ``count`` more of the messages taken: written down, or confirmed by the peer."""
        ...

    @property
    def confirms(self) -> bool:
        """Whether a route out confirms, so that ``on_confirmed`` will be called."""
        ...

    @property
    def must_confirm(self) -> int:
        """Whether a route in confirms, so that somebody waits for ``confirm``: then it is not 0.

        Another number than before says that nobody waited meanwhile: what was taken before counts no more.
        """
        ...

    def sent(self) -> int:
        """How many messages were sent while ``confirms``, cumulatively."""
        ...

    def confirmed(self) -> int:
        """How many of those every destination has confirmed, cumulatively."""
        ...

    def rewind(self) -> list[Batch]:
        """What was taken and never confirmed, to be sent again after a reconnection."""
        ...

    def subscribe(self, pattern: str) -> None:
        """Ask the routes that lead here for messages whose key matches ``pattern``."""
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
