"""Alarms: while memory or disk space is low, publishers are blocked.

Each alarm gets a function that reads its figure.  An alarm is raised when the figure passes the limit, and
lifted when it is better than the limit by a tenth of it, so that it does not change all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from plugins.engines.broker.backlog import PER_MESSAGE

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker

PERIOD = 0.5
"""Seconds between two checks.  A publisher at one gigabyte a second exceeds a limit by half a gigabyte
meanwhile."""

_HYSTERESIS = 10
"""An alarm is lifted when its figure is better than the limit by this part of it: a tenth."""


def bytes_in_queues(broker: Broker) -> int:
    """Return an upper estimate of the octets of memory that messages take, without what clients report.

    It is an upper estimate because queues may share bodies.  What connected clients have not acknowledged,
    or not published yet, is not included (``Client.unacked_bytes``, ``Client.unpublished_bytes``).
    Unacknowledged messages of sessions without a connection are.
    """
    # Every queue is visited, twice a second at most (``PERIOD``), so each costs only a few operations here.
    held = sum(broker.detached.values())
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            backlog = queue.backlog
            # Bodies in pages are on disk.  How many messages these are is not counted, so it is estimated
            # from their share of the size.
            here = backlog.size - backlog.paged
            count = backlog.count * here // backlog.size if backlog.paged else backlog.count
            held += here + PER_MESSAGE * (count + queue.outstanding)
    return held


class Alarm(Interface):
    """One resource that is monitored."""

    name: str
    """The resource, as publishers are told: "low on <name>"."""
    raised: bool

    def check(self) -> None:
        """Read the figure, and raise or lift the alarm."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Return the figure that was read last, and the limit."""
        ...


class QueuedAlarm:
    """Limits the memory of messages."""

    name = "memory"

    def __init__(self, limit: int, held: Callable[[], int]) -> None:
        self.limit = limit
        self.raised = False
        self.held = held
        self._last = 0

    def check(self) -> None:
        """Read the figure, and raise or lift the alarm."""
        self._last = self.held()
        self.raised = self._last > (_nine_tenths(self.limit) if self.raised else self.limit)

    def statistics(self) -> dict[str, Any]:
        """Return the figure that was read last, and the limit."""
        return {"queued": self._last, "queued_limit": self.limit}


class ProcessAlarm:
    """Limits the resident memory of the process.

    An allocator keeps fragmented memory after messages were freed.  So the alarm asks it to return what it
    can.  The alarm is raised only while messages take at least a tenth of the limit: with fewer messages,
    blocking publishers and emptying queues could never lift it.
    """

    name = "memory"

    def __init__(
        self,
        limit: int,
        resident: Callable[[], int],
        held: Callable[[], int],
        give_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit = limit
        self.raised = False
        self.resident = resident
        self._held = held
        self._give_back = give_back
        self._last = 0

    def check(self) -> None:
        """Read the figure, and raise or lift the alarm."""
        self._last = self.resident()
        share = self.limit // _HYSTERESIS
        if not self.raised:
            self.raised = self._last > self.limit and self._held() > share
            return
        enough = _nine_tenths(self.limit)
        if self._last > enough and self._held() < enough:
            # This takes milliseconds for each gigabyte, so it is done only if messages alone do not explain
            # the figure: then part of it is memory that was freed and that the allocator has kept.
            self._give_back()
            self._last = self.resident()
        self.raised = self._last > enough and self._held() > _nine_tenths(share)

    def statistics(self) -> dict[str, Any]:
        """Return the figure that was read last, and the limit."""
        return {"memory": self._last, "memory_limit": self.limit}


class DiskAlarm:
    """Limits how much of a disk is used: ``limit`` octets must stay free."""

    name = "disk"

    def __init__(self, limit: int, free: Callable[[], int]) -> None:
        self.limit = limit
        self.raised = False
        self.free = free
        self._last = 0

    def check(self) -> None:
        """Read the figure, and raise or lift the alarm."""
        self._last = self.free()
        enough = self.limit + self.limit // _HYSTERESIS if self.raised else self.limit
        self.raised = self._last < enough

    def statistics(self) -> dict[str, Any]:
        """Return the figure that was read last, and the limit."""
        return {"disk_free": self._last, "disk_free_limit": self.limit}


class Alarms:
    """All alarms of one broker.

    The engine calls ``check`` at the end of a turn if ``next_check`` has come, and every ``PERIOD`` while an
    alarm is raised.  So an idle broker is not woken.
    """

    def __init__(self, alarms: Sequence[Alarm]) -> None:
        self.alarms = alarms
        self.next_check = 0.0
        self.raised: tuple[str, ...] = ()
        """The names of the raised alarms, sorted."""
        self.unread: dict[str, str] = {}
        """The error of each alarm whose figure could not be read at the last check.  These alarms do not
        change."""

    @property
    def reason(self) -> str:
        """What publishers are told, in RabbitMQ's words; empty: no alarm is raised."""
        return f"low on {' & '.join(self.raised)}" if self.raised else ""

    def check(self, now: float) -> bool:
        """Check all alarms; return whether the set of raised alarms has changed."""
        self.next_check = now + PERIOD
        for alarm in self.alarms:
            # To read a figure may fail: no file descriptor is free for /proc, or the disk is gone.  The alarm
            # keeps its state, and the broker goes on serving.
            try:
                alarm.check()
                self.unread.pop(alarm.name, None)
            except OSError as error:
                self.unread[alarm.name] = str(error)
        before = self.raised
        # Two alarms have the name "memory", and a set has it once.
        self.raised = tuple(sorted({alarm.name for alarm in self.alarms if alarm.raised}))
        return self.raised != before

    def statistics(self) -> dict[str, Any]:
        """Return the raised alarms, the figures that were read last, and the limits."""
        figures: dict[str, Any] = {"alarms": ", ".join(self.raised)}
        for alarm in self.alarms:
            figures |= alarm.statistics()
        return figures


def _nine_tenths(limit: int) -> int:
    return limit - limit // _HYSTERESIS
