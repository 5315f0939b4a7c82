"""Door: where an application finds a broker of its own kernel.

It is in the kernel's rendezvous under ``place_of_door(engine)``, made by whoever comes first, so that an application may be
there before the broker is, or after it lives again.
"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine


class Door:
    """One broker's door.  ``wait`` is for any thread, the others for the broker's."""

    def __init__(self) -> None:
        self._engine: BrokerEngine | None = None
        self._open = Event()

    def open(self, engine: BrokerEngine) -> None:
        """The broker is there."""
        self._engine = engine
        self._open.set()

    def close(self, engine: BrokerEngine) -> None:
        """The broker goes; one that came in its place may have opened the door before that."""
        if self._engine is engine:
            self._open.clear()
            self._engine = None

    def wait(self, timeout: float) -> BrokerEngine | None:
        """Return the broker, waiting for it at most so many seconds; None: it is not there."""
        self._open.wait(timeout)
        return self._engine


def place_of_door(engine: str) -> str:
    """Return where in the rendezvous the door of this engine's broker is."""
    return f"door of {engine}"
