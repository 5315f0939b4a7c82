"""Alarms: when memory or disk run low, publishers have to wait until there is enough again.

What is read, and from where, is the owner's affair: each alarm is given functions.  It is raised beyond its limit
and lifted only a tenth on this side of it, so that it does not flutter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from plugins.engines.broker.backlog import PER_MESSAGE

if TYPE_CHECKING:
    from plugins.engines.broker.broker import Broker

PERIOD = 0.5
"""Seconds between two looks: a publisher at a gigabyte a second gets half of one further in between."""

_HYSTERESIS = 10


def held_in_queues(broker: Broker) -> int:
    """Return how many octets of memory the queues hold: an upper estimate, since queues may share bodies.

    The bodies of what is outstanding are with whom it was handed to (``Ledger.estimated_size``).
    """
    held = 0
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            backlog = queue.backlog
            here = backlog.size - backlog.paged
            count = backlog.count * here // backlog.size if backlog.paged else backlog.count
            held += here + PER_MESSAGE * (count + queue.outstanding)
    return held


class Alarm(Interface):
    """One resource that is watched."""

    name: str
    """What the publishers are told: "low on <name>"."""
    raised: bool

    def look(self) -> None:
        """Read, and raise or lift."""
        ...

    def statistics(self) -> dict[str, Any]:
        """What was read last, and the limit."""
        ...


class QueuedAlarm:
    """What the queues hold is limited."""

    name = "memory"

    def __init__(self, limit: int, held: Callable[[], int]) -> None:
        self.limit = limit
        self.raised = False
        self.held = held
        self._last = 0

    def look(self) -> None:
        """Read, and raise or lift."""
        self._last = self.held()
        self.raised = self._last > (_nine_tenths(self.limit) if self.raised else self.limit)

    def statistics(self) -> dict[str, Any]:
        """What was read last, and the limit."""
        return {"queued": self._last, "queued_limit": self.limit}


class ProcessAlarm:
    """What the process has is limited, as long as publishers who wait would help.

    An allocator keeps what was fragmented while it was full.  So the alarm asks it to give back what it can, and
    counts only while the queues hold a tenth of the limit themselves: with less in them, nobody who empties
    queues could ever lift it.
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

    def look(self) -> None:
        """Read, and raise or lift."""
        self._last = self.resident()
        share = self.limit // _HYSTERESIS
        if not self.raised:
            self.raised = self._last > self.limit and self._held() > share
            return
        enough = _nine_tenths(self.limit)
        if self._last > enough and self._held() < enough:
            self._give_back()  # milliseconds for each gigabyte, so only where the queues are not what fills it
            self._last = self.resident()
        self.raised = self._last > enough and self._held() > _nine_tenths(share)

    def statistics(self) -> dict[str, Any]:
        """What was read last, and the limit."""
        return {"memory": self._last, "memory_limit": self.limit}


class DiskAlarm:
    """So much of a disk has to stay free."""

    name = "disk"

    def __init__(self, limit: int, free: Callable[[], int]) -> None:
        self.limit = limit
        self.raised = False
        self.free = free
        self._last = 0

    def look(self) -> None:
        """Read, and raise or lift."""
        self._last = self.free()
        enough = self.limit + self.limit // _HYSTERESIS if self.raised else self.limit
        self.raised = self._last < enough

    def statistics(self) -> dict[str, Any]:
        """What was read last, and the limit."""
        return {"disk_free": self._last, "disk_free_limit": self.limit}


class Alarms:
    """All alarms of one broker.

    A front-end calls ``look`` when ``next_look`` is due and something was published since, and each ``PERIOD``
    while one is raised: an idle broker is not woken.
    """

    def __init__(self, alarms: Sequence[Alarm]) -> None:
        self.alarms = alarms
        self.next_look = 0.0
        self.raised: tuple[str, ...] = ()
        """The names of what is low, in order; empty: all is well."""
        self.unread: dict[str, str] = {}
        """Of alarms whose figure could not be read when it was looked at last: why.  They stay as they were."""

    @property
    def reason(self) -> str:
        """What to tell the publishers, in RabbitMQ's words."""
        return f"low on {' & '.join(self.raised)}" if self.raised else ""

    def look(self, now: float) -> bool:
        """Read everything; return whether what is raised has changed."""
        self.next_look = now + PERIOD
        for alarm in self.alarms:
            # out of file descriptors, or a disk that is gone: no reason to end the broker
            try:
                alarm.look()
                self.unread.pop(alarm.name, None)
            except OSError as error:
                self.unread[alarm.name] = str(error)
        before = self.raised
        self.raised = tuple(sorted({alarm.name for alarm in self.alarms if alarm.raised}))
        return self.raised != before

    def statistics(self) -> dict[str, Any]:
        """Return what is low, what was read last, and the limits."""
        figures: dict[str, Any] = {"alarms": ", ".join(self.raised)}
        for alarm in self.alarms:
            figures |= alarm.statistics()
        return figures


def _nine_tenths(limit: int) -> int:
    return limit - limit // _HYSTERESIS
