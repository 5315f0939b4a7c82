"""Host: what one engine sees of the thread that hosts it."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING, Any

import trio

from kernel.contracts.engine import EngineEvent, PortOwner
from kernel.dispatcher.dispatcher import Dispatcher, ThreadSlot
from kernel.dispatcher.port import Port
from kernel.threads.loop import Loop

if TYPE_CHECKING:
    from kernel.hosting.lease import HasTurn

Report = Callable[[EngineEvent], Any]


class EngineHost:
    """One life of one engine: its ports, descriptors and timers, which are all released at its end."""

    def __init__(
        self,
        engine: str,
        loop: Loop,
        slot: ThreadSlot,
        dispatcher: Dispatcher,
        nursery: trio.Nursery,
        report: Report,
        linger_left: Callable[[], float],
    ) -> None:
        self.linger_left = linger_left
        """Returns the seconds that the engine may take to end its conversations, when it is cancelled."""
        # The clock's own method, as an attribute: each read asks for the time several times.
        self.now: Callable[[], float] = trio.lowlevel.current_clock().current_time
        """Returns the seconds of the thread's clock."""
        self.nursery = nursery
        self.poller = self
        self.rendezvous: dict[str, Any] = dispatcher.rendezvous
        self.failure: Exception | None = None
        self._engine = engine
        self._loop = loop
        self._slot = slot
        self._dispatcher = dispatcher
        self._report = report
        self._fds: set[int] = set()
        # A set that keeps the order in which the ports were opened, in which ``release`` closes them.
        self._ports: dict[Port, None] = {}
        self._timer_keys: set[object] = set()

    def processor_time(self) -> float:
        """Seconds that the thread has worked."""
        return thread_time()

    def lend_turn(self) -> HasTurn | None:
        """Return what has the lock that the thread holds while it works; None if there is none."""
        return self._loop.lend_turn()

    def soon(self, callback: Callable[[], Any]) -> None:
        """Call in a later turn."""
        # Posted to this thread itself, behind what others have posted: the engine gives way to them.
        self._slot.mailbox.post(lambda: self._call(callback))

    def post(self, callback: Callable[[], Any]) -> None:
        """Call in a later turn; from any thread."""
        self._slot.mailbox.post(lambda: self._call(callback))

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> Port:
        """Join the dispatcher as one more port of this engine."""
        group = name if options and options.get("apart") else self._engine
        port = self._dispatcher.open_port(self._slot, name, group, owner, options)
        # From here on what the owner raises in a call of the port ends this engine only.
        port.on_failure = self.fail
        self._host_stall_watch(port)
        self._ports[port] = None
        # The port may be closed by its owner or by ``release``; both have to take it out of ``_ports``.
        leave = port.leave

        def forget(port: Port) -> None:
            """Drop what belonged to the port as well: its owner may hold a buffer of many megabytes."""
            self._ports.pop(port, None)
            leave(port)

        port.leave = forget
        return port

    def _host_stall_watch(self, port: Port) -> None:
        watch = port.stall_watch
        watch.now = self._loop.now
        # The watch has no timer of its own. It is the key of the timer here, one for each port.
        watch.on_change = lambda: self.set_timer(watch.deadline(), port.check_stalls, watch)
        watch.report = lambda what, text: self._report(
            EngineEvent(engine=self._engine, what=what, detail=text)
        )

    def watch(
        self,
        fd: int,
        *,
        readable: Callable[[], int | None] | None = None,
        writable: Callable[[], None] | None = None,
    ) -> None:
        """Watch a descriptor, change how it is watched, or forget it."""
        if readable or writable:
            self._fds.add(fd)
        else:
            self._fds.discard(fd)
        self._loop.poller.watch(fd, readable, writable, self.fail)

    @property
    def more(self) -> bool:
        """Whether another descriptor of this engine was found ready with this one, and comes next."""
        return self._loop.poller.following in self._fds

    def set_timer(self, when: float | None, callback: Callable[[], Any], key: object) -> None:
        """Set the timer of this key; None cancels it."""
        if when is None:
            self._timer_keys.discard(key)
        else:
            self._timer_keys.add(key)
        # Engines of one thread share the loop, and may use equal keys.
        self._loop.set_timer(when, callback, (id(self), key), self.fail)

    def report(self, event: EngineEvent) -> None:
        """Tell the supervisor, the log and the metrics."""
        self._report(event)

    def fail(self, error: Exception) -> None:
        """A callback of the engine has raised: end its life with this error."""
        if self.failure is None:
            self.failure = error
        # Each failure cancels, the first one is kept: later ones are mostly its consequences.
        self.nursery.cancel_scope.cancel()

    def release(self) -> None:
        """Give back everything that the engine has from the thread: descriptors, timers and ports."""
        # First descriptors and timers, so that nothing calls the engine while its ports leave.
        for fd in list(self._fds):
            self.watch(fd)
        for key in list(self._timer_keys):
            self.set_timer(None, _nothing, key)
        for port in list(self._ports):
            port.close()
        self._ports.clear()

    def _call(self, callback: Callable[[], Any]) -> None:
        try:
            callback()
        except Exception as error:
            self.fail(error)


def _nothing() -> None:
    """Never called."""
