"""Sink: a destination of bindings besides queues and exchanges.  It takes messages and has no backlog.

Examples: a subscriber without acknowledgements, which so needs no queue of its own; the store of retained
messages; a tap; a recorder.

A queue limits what it delivers by the window of a connection.  A sink is given every message at once.  So a
sink that passes messages on to a client has to look at ``Client.unwritten`` and drop what is too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Protocol as Interface

if TYPE_CHECKING:
    from kernel.contracts.explaining import Row
    from kernel.contracts.message import Batch, Envelope
    from kernel.contracts.mixed_batch import KeyedBatch
    from plugins.engines.broker.binding import Binding, Identity


class Sink(Interface):
    """A front end binds it to an exchange with ``VirtualHost.bind``, and removes it with ``remove_sink``."""

    name: str
    """The name that operators see; it need not be unique."""
    durable: bool
    """Set it to False.  The store cannot write a binding to a sink, which a restart could not make again."""
    incoming: dict[Identity, Binding]
    """The bindings to it.  The virtual host changes this."""

    def publish(self, batch: Batch, now: float) -> bool:
        """Take a batch; return whether it was used.

        Called in the broker's thread, in the publisher's turn.  The work must be bounded; it must not wait
        and must not raise.  It may call ``BrokerEngine.is_busy``, and must neither bind nor publish: the
        publisher is in the middle of its route.  The batch is shared and must not be changed.
        """
        ...


class KeyedSink(Interface):
    """Optional for a sink: it takes messages that differ in their keys together.

    A sink without it is given them in batches, one after the other.
    """

    def publish_keyed(self, batch: KeyedBatch, now: float) -> Sequence[bool]:
        """Take messages; return for each of them whether it was used.

        What is said of ``Sink.publish`` holds here.
        """
        ...


class ExplainsSink(Interface):
    """Optional for a sink: who would get a message behind it, for ``kernel explain``."""

    def explain(self, envelope: Envelope) -> list[Row]:
        """Return rows (``kernel.contracts.explaining``).  Called in the broker's thread; must be quick."""
        ...
