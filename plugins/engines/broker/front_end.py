"""Front end: one protocol that a broker serves, and the interfaces that it implements for the broker.

A broker engine has one or more front ends.  All of them, their clients and the broker itself live in one
thread, so nothing here has a lock.

A *turn* is what one readable socket, one timer or one batch from the routes brings.  A front end that has
called operations of the broker says which of its clients have something to write (``BrokerEngine.is_busy``)
and ends the turn (``BrokerEngine.finish_turn``).  That processes the queues, which deliver to receivers, and
calls ``finish`` of each busy client, which writes once.

A client begins with ``BrokerEngine.add``, which the front end calls.  It ends with
``BrokerEngine.has_ended``, which the client calls itself, exactly once, whoever wanted the end.

An exception from one of these methods ends the broker's engine, with everybody who is connected to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

if TYPE_CHECKING:
    from kernel.contracts.explaining import Row
    from kernel.contracts.message import Envelope
    from plugins.engines.broker.virtual_host import VirtualHost


class Client(Interface):
    """One client of a front end: a connection and its session.

    Called in the broker's thread; may not wait or raise.  A session without a connection is no client (see
    ``Receiver.detach``).
    """

    peer: str
    """The client's address, as operators see it."""

    @property
    def bytes_in(self) -> int:
        """How many bytes it has sent."""
        ...

    @property
    def bytes_out(self) -> int:
        """How many bytes were produced for it, written or not."""
        ...

    @property
    def messages_in(self) -> int:
        """How many messages it has published."""
        ...

    @property
    def messages_out(self) -> int:
        """How many messages were delivered to it."""
        ...

    @property
    def unwritten(self) -> int:
        """How many bytes its socket has not taken yet."""
        ...

    @property
    def unacked_bytes(self) -> int:
        """An estimate of the octets of bodies that were delivered to it and not acknowledged."""
        ...

    @property
    def unpublished_bytes(self) -> int:
        """About how many bytes it has sent of messages that no queue has yet.

        They are not complete, or their transaction is not committed.
        """
        ...

    @property
    def published(self) -> bool:
        """Whether it has published in this turn.  Then the broker may call ``hold_back`` or ``block``.

        A part of a message counts, and so does a message in a transaction.  The client sets it when it
        publishes, and resets it in ``finish``, which the broker calls after these.
        """
        ...

    @property
    def confirming(self) -> bool:
        """Whether messages that it has published are not confirmed yet.

        Then the broker makes it busy when the routes confirm.  For the store it has to ask
        ``Store.when_safe``.
        """
        ...

    def finish(self, now: float) -> None:
        """The turn ends: encode and write what the broker has for the client.

        Called once for each turn in which the client is busy.
        """
        ...

    def hold_back(self) -> None:
        """The routes are full, or the disk is behind: do not read from it until ``go_on``.

        May be called again before ``go_on`` is.
        """
        ...

    def go_on(self) -> None:
        """The routes have room and the disk has caught up.  Also called for clients that did not wait."""
        ...

    def block(self, reason: str) -> None:
        """An alarm is raised: tell it, if the protocol can, and do not read from it until ``unblock``.

        Only clients that publish are blocked, since consumers are what frees the memory.  May be called again
        before ``unblock`` is.
        """
        ...

    def unblock(self) -> None:
        """The last alarm was lifted.  Also called for clients that were not blocked."""
        ...

    def hang_up(self, reason: str) -> None:
        """Close the connection without waiting: the broker stops, or an operator wants it.

        Tell the client if the protocol can and the socket takes it at once.  ``BrokerEngine.running`` is
        False if the broker stops.
        """
        ...

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator: ``connections`` (one), ``consumers`` and others.

        No rows for a table that it does not know.  ``CLIENT_TABLES`` has the tables and their columns.
        """
        ...


class FrontEnd(Interface):
    """One listener of a protocol.  Created by ``FrontEndKind.create``; called in the broker's thread."""

    def start(self) -> str:
        """Listen, and return the address, with the port that the system chose.

        The broker is complete by now, with what was restored from disk.  ``OSError``: the address cannot be
        bound.
        """
        ...

    def stop(self) -> None:
        """Stop listening.  The broker then closes the clients that are left."""
        ...

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator that belong to no client.

        An example are the ``consumers`` of sessions without a connection.
        """
        ...

    def statistics(self) -> dict[str, int]:
        """Return the present counters: ``accepted`` and ``refused`` connections.

        Called by any thread.
        """
        ...


class Explains(Interface):
    """Optional for a front end: what ``kernel explain`` says of its protocol.

    Called in the broker's thread.
    """

    def address_of_topic(self, topic: str) -> tuple[str, str]:
        """Return the exchange and the key under which a topic of the protocol is published."""
        ...

    def explain(self, vhost: VirtualHost, envelope: Envelope) -> list[Row]:
        """Return rows of what bindings do not show, such as retained messages.

        ``kernel.contracts.explaining`` says what is in a row.
        """
        ...
