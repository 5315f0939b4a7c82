"""Timer: things that the broker calls at a given time, such as a queue, a will, or the end of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker


class Timed(Interface):
    """What ``Broker.call_at`` calls.

    It has one time at which it is called: the earliest that was asked for.
    """

    called_at: float | None
    """When it will be called; the broker sets it.  If the owner sets it to None, it is not called."""

    def handle_timeout(self, now: float) -> None:
        """The time has come; ``called_at`` is None again.

        Called in the broker's thread, in a turn of its own.
        """
        ...


class Timer:
    """Calls a function at a time that can be changed.  Used by the broker's thread."""

    __slots__ = ("_broker", "_callback", "called_at")

    def __init__(self, broker: Broker, callback: Callable[[float], None]) -> None:
        """``callback(now)`` gets the present time on the clock of the broker's thread."""
        self.called_at: float | None = None
        self._broker = broker
        self._callback = callback

    def set(self, when: float) -> None:
        """Call at ``when`` instead of the time that was set before.

        If ``when`` has passed, the call is made next.  Each call of ``set`` costs an entry in the broker's
        heap.  So do not set a timeout again with every message: note the time of the message, and when the
        timer calls, set it to what is left.
        """
        # Otherwise the broker would ignore a later time.  The entry of the earlier time is skipped when it
        # comes, since ``called_at`` differs from it.
        self.called_at = None
        self._broker.call_at(when, self)

    def cancel(self) -> None:
        """Do not call."""
        self.called_at = None

    def handle_timeout(self, now: float) -> None:
        """The time has come."""
        self._callback(now)
