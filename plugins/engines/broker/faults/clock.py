"""Clock: a host whose clock a test can set forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import trio

    from kernel.contracts.engine import EngineEvent, Host, Poller, Port, PortOwner


class FastHost:
    """A host that passes everything on, and adds to the time what ``advance`` was told."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.ahead = 0.0
        """Seconds that the clock was set forward by so far."""
        self._timers: dict[object, tuple[float, Callable[[], None]]] = {}
        self.rendezvous: dict[str, Any] = host.rendezvous
        self.nursery: trio.Nursery = host.nursery
        self.soon = host.soon
        self.post = host.post
        self.processor_time = host.processor_time
        self.linger_left = host.linger_left

    @property
    def poller(self) -> Poller:
        """Watches descriptors for this thread."""
        return self._host.poller

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> Port:
        """Open one more port of the engine."""
        return self._host.port(name, owner, options)

    def report(self, event: EngineEvent) -> None:
        """Report an event."""
        self._host.report(event)

    def now(self) -> float:
        """Return the time that the engine is to believe."""
        return self._host.now() + self.ahead

    def set_timer(self, when: float | None, callback: Callable[[], None], key: object) -> None:
        """Call ``callback`` at ``when``, a time of ``now``; None cancels it."""
        if when is None:
            self._timers.pop(key, None)
            self._host.set_timer(None, callback, key)
            return
        self._timers[key] = when, callback
        self._host.set_timer(when - self.ahead, lambda: self._fire(key), key)

    def advance(self, seconds: float) -> None:
        """Set the clock forward.  Timers that are due by then fire in later turns, the earliest first."""
        self.ahead += seconds
        for key, (when, callback) in list(self._timers.items()):
            self.set_timer(when, callback, key)

    def fire_due(self) -> None:
        """Fire now what is due, the earliest first."""
        now = self.now()
        due = sorted(
            (when, number, key) for number, (key, (when, _)) in enumerate(self._timers.items()) if when <= now
        )
        for _, _, key in due:
            # One that fired before may have put it off, or cancelled it.
            if key in self._timers and self._timers[key][0] <= now:
                self._host.set_timer(None, self._timers[key][1], key)
                self._fire(key)

    def end(self) -> None:
        """Forget the timers.

        Sockets that wait for one to be closed are closed with the last reference to them.
        """
        self._timers.clear()

    def _fire(self, key: object) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer[1]()
