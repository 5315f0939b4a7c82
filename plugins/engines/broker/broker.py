"""Broker: virtual hosts, and the one list of what is to be done when.

A front-end calls operations on the virtual hosts, then ``settle`` once a turn; it asks
``next_deadline`` and calls ``handle_timeout``.  Nothing here waits, reads a clock or touches a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from types import MappingProxyType
from typing import Any

from plugins.engines.broker.errors import NotAllowed
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.store import EmptyStore, Store
from plugins.engines.broker.timer import Timed
from plugins.engines.broker.virtual_host import VirtualHost


class Broker:
    """The whole model."""

    def __init__(
        self,
        vhosts: Iterable[str] = ("/",),
        *,
        seed: int = 0,
        store: Store | None = None,
        now: float = 0.0,
        clock: float = 0.0,
        exchange_types: ExchangeTypes = MappingProxyType({}),
        report: Callable[[str, str], None] = lambda what, detail: None,
    ) -> None:
        """``clock`` is the time of day at ``now``; ``seed`` makes the names that the broker invents.

        ``exchange_types``: those that plugins bring, besides ours.  ``report`` tells an operator what happened
        and the details.
        """
        self.report = report
        self.exchange_types = exchange_types
        self.store: Store = store or EmptyStore()
        self.random = Random(seed)
        self.vhosts = {name: VirtualHost(name, self) for name in vhosts}
        self._clock_ahead = clock - now
        self._deadlines: list[tuple[float, int, Timed]] = []
        self._asked = 0

    def vhost(self, name: str) -> VirtualHost:
        """Return a virtual host, or refuse."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        return vhost

    def add_vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name, new if there was none."""
        return self.vhosts.setdefault(name, VirtualHost(name, self))

    def settle(self, now: float) -> None:
        """Settle the queues, and let the store write."""
        self.settle_queues(now)
        self.store.flush()

    def settle_queues(self, now: float) -> None:
        """Let every queue that was touched do what follows from it, until nothing more follows."""
        for vhost in self.vhosts.values():
            if vhost.touched:
                vhost.settle(now)

    def share_memory(self) -> None:
        """Have the store divide anew what memory the queues may have; to be called now and then."""
        self.store.share_memory([queue for vhost in self.vhosts.values() for queue in vhost.queues.values()])

    @property
    def touched(self) -> bool:
        """Whether ``settle`` has something to do."""
        for vhost in self.vhosts.values():  # noqa: SIM110 - each turn; a generator costs more than all it asks
            if vhost.touched:
                return True
        return False

    def call_at(self, when: float, timed: Timed) -> None:
        """Call ``handle_timeout`` of a queue, a ``Timer`` or any other at ``when``.

        If it is to be called before that anyway, nothing changes.
        """
        if timed.called_at is not None and timed.called_at <= when:
            return
        timed.called_at = when
        self._asked += 1
        heappush(self._deadlines, (when, self._asked, timed))

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` wants to be called."""
        return self._deadlines[0][0] if self._deadlines else None

    def handle_timeout(self, now: float) -> None:
        """Do what is due, and settle."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            when, _, timed = heappop(deadlines)
            if timed.called_at == when:
                timed.called_at = None
                timed.handle_timeout(now)
        self.settle(now)

    def clock(self, now: float) -> float:
        """Return the time of day at ``now``."""
        return now + self._clock_ahead

    def statistics(self) -> dict[str, Any]:
        """Return counters of this moment, by virtual host."""
        return {name: vhost.statistics() for name, vhost in self.vhosts.items()}
