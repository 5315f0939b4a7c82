"""Running broker: how an application finds the broker engine of its own kernel.

The object is in the kernel's rendezvous under ``running_broker_key(engine)``.  Whoever comes first creates
it, the application or the engine.  So an application may start before the broker, and may wait while a broker
restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
        self._bells: list[Event] = []
        """Those of the applications that wait."""

    def set(self, engine: BrokerEngine) -> None:
        """The engine has started."""
        # Before the events: another thread may go on as soon as its own is set.
        self._engine = engine
        for bell in list(self._bells):
            bell.set()

    def clear(self, engine: BrokerEngine) -> None:
        """The engine stops.  If its successor has been set already, nothing changes."""
        # An engine that is replaced may have moved to another thread, and then the new one can start first.
        if self._engine is engine:
            self._engine = None

    def wait(self, timeout: float, bell: Event, over: Callable[[], bool]) -> BrokerEngine | None:
        """Return the engine, waiting up to ``timeout`` seconds until it runs; None: it does not run.

        ``bell`` is the caller's own.  Whoever sets it has ``over`` asked whether to wait no more.
        """
        deadline = time.monotonic() + timeout
        self._bells.append(bell)
        try:
            while True:
                # Cleared before the look: a change behind it sets the event again.
                bell.clear()
                engine = self._engine
                left = deadline - time.monotonic()
                if engine is not None or over() or left <= 0:
                    return engine
                bell.wait(left)
        finally:
            self._bells.remove(bell)


def running_broker_key(engine: str) -> str:
    """Return the key in the rendezvous for the broker engine of this name."""
    return f"running broker {engine}"
