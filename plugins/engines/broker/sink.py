"""Sink: what a binding may lead to besides queues and exchanges: it takes messages and keeps no backlog.

Subscribers without acknowledgement get a live feed this way without a queue each; so do the store of retained
messages, a tap and a recorder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from kernel.contracts.message import Batch
    from plugins.engines.broker.binding import Binding, Identity


class Sink(Interface):
    """What a front end binds to an exchange with ``VirtualHost.bind``, and removes with ``remove_sink``."""

    name: str
    """What an operator sees; it need not be unique."""
    durable: bool
    """False: a binding to it does not survive a restart."""
    incoming: dict[Identity, Binding]
    """The bindings that lead to it; the virtual host keeps them."""

    def publish(self, batch: Batch, now: float) -> bool:
        """Take a batch; return whether anybody wanted it.

        In the broker's thread, in the publisher's turn: bounded work, no waiting, no exception.  It may say that
        clients are busy; it may neither bind nor publish.
        """
        ...
