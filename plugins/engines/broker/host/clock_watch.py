"""Clock watch: notices that the system's clock was set.

The broker measures by a clock that nobody sets.  It adds a difference to it for the time of day, which it
writes into dead letters, and another one for times on disk (``storage/disk_clock.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernel.contracts.engine import Host

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker
    from plugins.engines.broker.storage.disk_clock import DiskClock

IDLE_PERIOD = 60.0
"""Seconds between two looks of a broker with a store that has nothing to do."""


class ClockWatch:
    """Looks at the time of day for one engine."""

    def __init__(
        self, broker: Broker, stored: DiskClock | None, host: Host, time_of_day: Callable[[], float]
    ) -> None:
        """``stored``: the clock of the store; None: there is no store, and so no timer."""
        self._broker = broker
        self._stored = stored
        self._host = host
        self._time_of_day = time_of_day
        self._set_timer(host.now())

    def look(self, now: float) -> None:
        """Have the broker go by the time of day as it is now."""
        time_of_day = self._time_of_day()
        self._broker.clock_ahead = time_of_day - now
        if self._stored is not None:
            self._stored.look(now, time_of_day)

    def stop(self) -> None:
        """Look once more, and stop the timer."""
        self.look(self._host.now())
        self._host.set_timer(None, self._on_timer, self)

    def _on_timer(self) -> None:
        now = self._host.now()
        self.look(now)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._stored is not None:
            self._host.set_timer(now + IDLE_PERIOD, self._on_timer, self)
