"""Alarm watch: checks the alarms at the end of turns, and on a timer while one is raised; reports changes.

Without an alarm, turns are enough: nothing is published outside of them.  With one, publishers are not read,
so there may be no turn in which the alarm could be found lifted.  That is what the timer is for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel.contracts.engine import EngineEvent, Host
from kernel.hosting.disk import free_bytes
from plugins.engines.broker.alarms import Alarm, Alarms, DiskAlarm, ProcessAlarm, QueuedAlarm
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.resources import (
    give_memory_back,
    machine_memory,
    octets,
    resident_memory,
)


def make_alarms(options: BrokerOptions, held: Callable[[], int]) -> Alarms:
    """Return the alarms that the options ask for; ``held``: octets that the queues hold."""
    alarms: list[Alarm] = []
    whole = machine_memory()
    if limit := octets(options.memory_limit, whole):
        alarms.append(ProcessAlarm(limit, resident_memory, held, give_memory_back))
    if limit := octets(options.queued_limit, whole):
        alarms.append(QueuedAlarm(limit, held))
    if (options.disk_watched or options.data_dir) and options.disk_free_limit:
        folder = Path(options.disk_watched or options.data_dir)
        # Read once, so that a missing folder is an error at the start, and not an alarm that can never be
        # read.
        free_bytes(folder)
        alarms.append(DiskAlarm(options.disk_free_limit, lambda: free_bytes(folder)))
    return Alarms(alarms)


MEMORY_SECONDS = 10.0
"""Seconds for which consumers may empty queues before publishers are closed that hold memory themselves."""


class AlarmWatch:
    """Checks the alarms of one engine."""

    def __init__(
        self,
        alarms: Alarms,
        engine: str,
        host: Host,
        on_lifted: Callable[[], None],
        on_memory_stays_low: Callable[[], None],
    ) -> None:
        """``on_lifted`` is called when the last alarm is lifted.

        ``on_memory_stays_low`` is called at each check when an alarm of memory has been raised for
        ``MEMORY_SECONDS``.
        """
        self.alarms = alarms
        self._engine = engine
        self._host = host
        self._on_lifted = on_lifted
        self._on_memory_stays_low = on_memory_stays_low
        self._low_since: float | None = None
        """Since when an alarm of memory is raised; None: none is."""

    def check(self, now: float) -> None:
        """Check the alarms, report changes, and set the timer."""
        alarms = self.alarms
        # A figure that cannot be read keeps its alarm as it is, and is reported once, not at each check.
        unread = set(alarms.unread)
        changed = alarms.check(now)
        for name in alarms.unread.keys() - unread:
            detail = (
                f"the {name} alarm stays as it is, since its figure cannot be read: {alarms.unread[name]}"
            )
            self._host.report(EngineEvent(engine=self._engine, what="alarm unread", detail=detail))
        if changed:
            self._report()
            if not alarms.raised:
                self._on_lifted()
        if "memory" not in alarms.raised:
            self._low_since = None
        elif self._low_since is None:
            self._low_since = now
        elif now - self._low_since >= MEMORY_SECONDS:
            self._on_memory_stays_low()
        if alarms.raised:
            self._host.set_timer(alarms.next_check, self._on_timer, alarms)

    def stop(self) -> None:
        """Stop the timer."""
        self._host.set_timer(None, self._on_timer, self.alarms)

    def _on_timer(self) -> None:
        self.check(self._host.now())

    def _report(self) -> None:
        what = "blocked" if self.alarms.raised else "unblocked"
        figures = self.alarms.statistics()
        del figures["alarms"]
        read = ", ".join(f"{name} {value:,}" for name, value in figures.items())
        detail = f"{self.alarms.reason or 'enough again'}; {read} bytes"
        self._host.report(EngineEvent(engine=self._engine, what=what, detail=detail))
