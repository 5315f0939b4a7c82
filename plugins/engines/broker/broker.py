"""Broker: the virtual hosts and the deadlines of their queues; the root of the model.

The engine calls operations on the virtual hosts, then ``process`` once a turn.  It calls ``handle_timeout``
at ``next_deadline``.  The model does no I/O but through its store: it does not wait, read a clock or use a
socket.  Time is an argument and random numbers come from ``seed``, so that tests can repeat a run exactly.

Deadlines are in a heap, and an entry is never removed from its middle.  ``Timed.called_at`` says which entry
of an object counts; all others are skipped when their time comes.  When the heap has become twice as long,
the others are removed: a session that expires in a day may be set again each second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plugins.engines.broker.errors import NotAllowed
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.policies import Policies
from plugins.engines.broker.store import EmptyStore, Store
from plugins.engines.broker.timer import Timed
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.clearance import Clearance
    from plugins.engines.broker.receiver import Receiver

_SWEEP_FROM = 1024
"""Entries of the heap of deadlines up to which none is removed early."""


class Broker:
    """All virtual hosts.  Used by one thread."""

    vhost_type: type[VirtualHost] = VirtualHost
    """What its virtual hosts are.  A broker for tests has others (``faults/``)."""

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
        """``clock`` is the time of day at ``now``.  ``seed`` is for the names that the broker chooses.

        ``exchange_types``: types of plugins, besides the built-in ones.  ``report(what, detail)`` reports an
        event to operators.
        """
        self.report = report
        self.exchange_types = exchange_types
        self.store: Store = store or EmptyStore()
        self.is_durable = store is not None
        """Whether the store keeps anything."""
        self.random = Random(seed)
        self.policies = Policies()
        self.global_parameters: dict[str, Any] = {}
        """What operators and tools keep in the broker.  It means nothing to the model."""
        self.vhosts = {name: self.vhost_type(name, self) for name in vhosts}
        self.leaving: dict[str, VirtualHost] = {}
        """Virtual hosts that are being removed, until the last queue is."""
        self.detached: dict[Receiver, int] = {}
        """Receivers without a connection that have unacknowledged messages, and the octets of their bodies.

        ``Receiver`` keeps this.  No client reports these octets to the alarms, since there is no client.
        """
        self.clearances: dict[Clearance, None] = {}
        """What is left to do for the messages of queues that were purged or deleted."""
        self.clock_ahead = clock - now
        """What to add to a time of the broker for the time of day.  It changes when that is set."""
        self._deadlines: list[tuple[float, int, Timed]] = []
        self._sweep_at = _SWEEP_FROM
        """Entries at which those that count no more are removed: on average, a step for each ``call_at``."""
        self._asked = 0

    def vhost(self, name: str) -> VirtualHost:
        """Return a virtual host; raise ``NotAllowed`` if it does not exist."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        return vhost

    def add_vhost(self, name: str) -> VirtualHost:
        """Return the virtual host of that name; create it if it does not exist."""
        if name in self.leaving:
            raise NotAllowed(f"vhost {name} is being deleted")
        return self.vhosts.setdefault(name, self.vhost_type(name, self))

    def remove_vhost(self, name: str, now: Callable[[], float]) -> Iterator[None]:
        """Remove a virtual host: at once for all who ask for it, and step by step what it has."""
        vhost = self.leaving[name] = self.vhosts.pop(name)
        try:
            yield
            yield from vhost.removal(now)
        finally:
            del self.leaving[name]

    def forget_permissions(self) -> None:
        """Permissions have changed.

        Publishers cache what they were allowed to publish (``Publisher.admit``).
        """
        for vhost in self.vhosts.values():
            vhost.routes.forget()

    def apply_policies(self, now: float) -> None:
        """Policies have changed: each queue and each exchange gets the one that applies to it now."""
        for vhost in self.vhosts.values():
            vhost.apply_policies(now)

    def process(self, now: float) -> None:
        """Process the queues that were touched, and let the store write."""
        self.process_queues(now)
        self.store.flush()

    def process_queues(self, now: float) -> None:
        """Process the queues that were touched, until none is touched any more."""
        for vhost in self.vhosts.values():
            if vhost.touched:
                vhost.process(now)

    def share_memory(self) -> None:
        """Have the store divide the memory among all queues again; called from time to time."""
        self.store.share_memory([queue for vhost in self.vhosts.values() for queue in vhost.queues.values()])

    @property
    def touched(self) -> bool:
        """Whether a queue has to be processed."""
        for vhost in self.vhosts.values():  # noqa: SIM110 - each turn; a generator costs more than the loop
            if vhost.touched:
                return True
        return False

    def call_at(self, when: float, timed: Timed) -> None:
        """Have ``timed.handle_timeout`` called at ``when``.

        If it will be called earlier anyway, nothing changes.
        """
        if timed.called_at is not None and timed.called_at <= when:
            return
        timed.called_at = when
        # The number orders entries of the same time, since timed objects cannot be compared.
        self._asked += 1
        heappush(self._deadlines, (when, self._asked, timed))
        if len(self._deadlines) > self._sweep_at:
            self._deadlines = [entry for entry in self._deadlines if entry[2].called_at == entry[0]]
            heapify(self._deadlines)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._deadlines))

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` has to be called; None: not at all."""
        # This may be the time of an entry that counts no more.  The call then does nothing.
        return self._deadlines[0][0] if self._deadlines else None

    def handle_timeout(self, now: float) -> None:
        """Call ``handle_timeout`` of everything that is due, and process the queues."""
        # Not in a local variable: a call may ask for another time, and so replace the list.
        while self._deadlines and self._deadlines[0][0] <= now:
            when, _, timed = heappop(self._deadlines)
            if timed.called_at == when:
                # Cleared first: the call may ask for another time.
                timed.called_at = None
                timed.handle_timeout(now)
        self.process(now)

    def finish_clearances(self) -> None:
        """Do at once what is left to do for purged and deleted queues: the store is going to be closed."""
        for clearance in list(self.clearances):
            clearance.finish()

    def clock(self, now: float) -> float:
        """Return the time of day at ``now``."""
        return now + self.clock_ahead

    def kept_time(self, now: float) -> float:
        """Return what the store's clock shows at ``now``: it goes on from one broker to the next."""
        return now + self.store.clock_ahead

    def statistics(self) -> dict[str, Any]:
        """Return the present counters, by virtual host.  Any thread."""
        # A copy, which is made in one step: virtual hosts come and go.
        return {name: vhost.statistics() for name, vhost in list(self.vhosts.items())}
