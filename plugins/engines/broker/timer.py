"""Timer: what the broker calls at a time: a queue, a will, the end of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker


class Timed(Interface):
    """What ``Broker.call_at`` calls.  It is asked for one time at once, the earliest."""

    called_at: float | None
    """When it will be called; the broker sets it.  Set to None, it is not called."""

    def handle_timeout(self, now: float) -> None:
        """The time has come, and ``called_at`` is None.  In the broker's thread, in a turn of its own."""
        ...


class Timer:
    """Calls a function at a time that can be changed.  Used by the broker's thread."""

    __slots__ = ("_broker", "_callback", "called_at")

    def __init__(self, broker: Broker, callback: Callable[[float], None]) -> None:
        """``callback`` gets the time at which it is called, on the clock of the broker's thread."""
        self.called_at: float | None = None
        self._broker = broker
        self._callback = callback

    def set(self, when: float) -> None:
        """Call at ``when``, and not at the time that was set before.  A time that has passed is one at once."""
        self.called_at = None
        self._broker.call_at(when, self)

    def cancel(self) -> None:
        """Do not call."""
        self.called_at = None

    def handle_timeout(self, now: float) -> None:
        """The time has come."""
        self._callback(now)
