"""Taps: notes messages that are published, for operators who watch.

A tap is a sink that the routes add to what a message reaches anyway (``Routes.taps``), so that nothing has
to be bound, and a broker without taps does nothing for them.  It keeps a few batches until it is asked for
them; what comes meanwhile is dropped and counted.  The messages are looked at when they are asked for, and
not when they are published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kernel.contracts.errors import KernelError
from kernel.contracts.shown import Row, Selection, Selector, shown

if TYPE_CHECKING:
    from kernel.contracts.engine import Host
    from kernel.contracts.message import Batch, Envelope
    from plugins.engines.broker.binding import Binding, Identity
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.virtual_host import VirtualHost

_MOST_WAITING = 1000
_MOST_WAITING_BYTES = 8 * 1024 * 1024
"""Messages and octets of bodies that a tap keeps.  One batch may exceed it."""
_MOST_TAPS = 20
LEASE = 10.0
"""Seconds after which a tap is removed that nobody has asked for."""


class BrokerTapWanted(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of ``tap``: what is published into a queue, or to an exchange, or anywhere."""

    queue: str | None = None
    exchange: str | None = None
    vhost: str = "/"


class TapRead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of ``tap-read`` and of ``tap-end``."""

    tap: int
    most: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class BrokerTap:
    """One tap: a sink without bindings."""

    name = "tap"
    durable = False

    def __init__(self, vhost: VirtualHost, wanted: BrokerTapWanted) -> None:
        self.vhost = vhost
        self.incoming: dict[Identity, Binding] = {}
        self.dropped = 0
        self._queue = wanted.queue
        self._exchange = wanted.exchange
        self._selector = Selector(wanted)
        self._waiting: deque[Batch] = deque()
        self._count = self._size = 0

    def watches(self, envelope: Envelope, queues: tuple[Queue, ...]) -> bool:
        """Whether messages under this envelope, which reach these queues, are wanted."""
        if self._exchange is not None and envelope.exchange != self._exchange:
            return False
        # By name: a queue may be deleted and declared again.
        if self._queue is not None and all(queue.name != self._queue for queue in queues):
            return False
        return self._selector.fits(envelope)

    def publish(self, batch: Batch, now: float) -> bool:
        """Note a batch.  False: a message that only a tap gets is one that nobody wants."""
        if self._count >= _MOST_WAITING or self._size >= _MOST_WAITING_BYTES:
            self.dropped += len(batch.bodies)
        else:
            self._waiting.append(batch)
            self._count += len(batch.bodies)
            self._size += batch.size
        return False

    def take(self, most: int) -> list[Row]:
        """Return what has passed, ``most`` messages at most; what came with them is dropped."""
        rows: list[Row] = []
        for batch in self._waiting:
            for body in self._selector.bodies(batch):
                if len(rows) >= most:
                    self.dropped += 1
                else:
                    rows.append(shown(batch.envelope, body))
        self._waiting.clear()
        self._count = self._size = 0
        return rows


class Taps:
    """The taps of one broker, by number.  Used by the broker's thread."""

    def __init__(self, host: Host, find_vhost: Callable[[str], VirtualHost]) -> None:
        self._host = host
        self._find_vhost = find_vhost
        self._taps: dict[int, BrokerTap] = {}
        self._last = 0

    def add(self, wanted: BrokerTapWanted) -> dict[str, Any]:
        """Open a tap; return its number.  ``KernelError`` for a queue or exchange that does not exist."""
        if len(self._taps) >= _MOST_TAPS:
            raise KernelError(f"there are {_MOST_TAPS} taps already; end another one first")
        try:
            tap = BrokerTap(self._find_vhost(wanted.vhost), wanted)
        except ValueError as error:
            raise KernelError(str(error)) from None
        self._last += 1
        self._taps[self._last] = tap
        tap.vhost.routes.add_tap(tap)
        self._renew(self._last, tap)
        return {"tap": self._last}

    def read(self, wanted: TapRead) -> dict[str, Any]:
        """Return what has passed since the last question."""
        tap = self._taps.get(wanted.tap)
        if tap is None:
            raise KernelError(f"there is no tap {wanted.tap} (any more): open another one")
        self._renew(wanted.tap, tap)
        return {"messages": tap.take(wanted.most), "dropped": tap.dropped}

    def end(self, number: int) -> None:
        """Remove a tap.  It is no error if it does not exist."""
        tap = self._taps.pop(number, None)
        if tap is not None:
            self._host.set_timer(None, _nothing, tap)
            tap.vhost.routes.remove_tap(tap)

    def _renew(self, number: int, tap: BrokerTap) -> None:
        self._host.set_timer(self._host.now() + LEASE, lambda: self.end(number), tap)


def _nothing() -> None:
    """Do nothing.  A timer is removed by its key, and the call needs a callback."""
