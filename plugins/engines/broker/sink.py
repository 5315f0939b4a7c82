"""Sink: a destination of bindings besides queues and exchanges.  It takes messages and has no backlog.

Examples: a subscriber without acknowledgements, which so needs no queue of its own; the store of retained
messages; a tap; a recorder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from kernel.contracts.message import Batch
    from plugins.engines.broker.binding import Binding, Identity


class Sink(Interface):
    """A front end binds it to an exchange with ``VirtualHost.bind``, and removes it with ``remove_sink``."""

    name: str
    """The name that operators see; it need not be unique."""
    durable: bool
    """False: a binding to it does not survive a restart."""
    incoming: dict[Identity, Binding]
    """The bindings to it.  The virtual host changes this."""

    def publish(self, batch: Batch, now: float) -> bool:
        """Take a batch; return whether it was used.

        Called in the broker's thread, in the publisher's turn.  The work must be bounded; it must not wait
        and must not raise.  It may call ``BrokerEngine.is_busy``, and must neither bind nor publish.
        """
        ...
