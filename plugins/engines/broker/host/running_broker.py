"""Running broker: how an application finds the broker engine of its own kernel.

The object is in the kernel's rendezvous under ``running_broker_key(engine)``.  Whoever comes first creates
it, the application or the engine.  So an application may start before the broker, and may wait while a broker
restarts.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine


class RunningBroker:
    """Has the broker engine of one name while it runs.

    Any thread calls ``wait``; the broker's calls the others.
    """

    def __init__(self) -> None:
        self._engine: BrokerEngine | None = None
        self._running = Event()

    def set(self, engine: BrokerEngine) -> None:
        """The engine has started."""
        # Before the event: another thread may go on as soon as it is set.
        self._engine = engine
        self._running.set()

    def clear(self, engine: BrokerEngine) -> None:
        """The engine stops.  If its successor has been set already, nothing changes."""
        # An engine that is replaced may have moved to another thread, and then the new one can start first.
        if self._engine is engine:
            self._running.clear()
            self._engine = None

    def wait(self, timeout: float) -> BrokerEngine | None:
        """Return the engine, waiting up to ``timeout`` seconds until it runs; None: it does not run."""
        self._running.wait(timeout)
        # May be None although the event was set: the engine has stopped in between.
        return self._engine


def running_broker_key(engine: str) -> str:
    """Return the key in the rendezvous for the broker engine of this name."""
    return f"running broker {engine}"
