"""Stored set: messages that a front end keeps on the disk under numbers of its own, and that nobody consumes.

Examples: the last message of each topic, and the packet identifiers that a client has published and not yet
released.  A set has a name, and belongs to a virtual host as a durable queue does: it is there after a
restart, until it is deleted, also if no front end asks for it any more.

**Numbers.**  In the store a number is what the position of a message is in a queue.  It is given to one
message only, and a dropped number stays dropped.  So numbers ascend: ``keep`` takes ``next_number`` or more.
An owner whose own numbers are few and come again (the identifiers of a protocol, 1 to 65,535) takes
``number_for(identifier)``.  It returns the next number with the identifier in its lowest 16 bits, so that the
identifier is known after a restart, when no body was read yet.

**One record with the queues.**  If ``keep`` is called in the same turn as ``VirtualHost.publish`` with the
same ``Batch`` object, the message and its number are in one record of the store.  After a crash both are
there or neither is.  Two kinds of batches reach queues as other objects: what a full queue has accepted of a
batch of several messages (``publish`` returns less than the length of the batch), and messages with a header
BCC.  Publish one message at a time if it must be in one record whatever queues do.

**What is safe.**  As for queues: what was kept or dropped is on the disk when ``store.safe`` has reached
``store.mark``.  A drop that a client is told of needs ``store.demand()``: otherwise it is not synced at once,
and after a loss of power the number may be there again.  A message that replaces another is kept before the
other is dropped.  A crash between the two leaves both, and the higher number is the later one.

Without a directory a set keeps nothing.  Its numbers ascend, and ``numbers`` and ``messages`` are empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kernel.contracts.message import Envelope
    from plugins.engines.broker.paged import Paged
    from plugins.engines.broker.span import Span
    from plugins.engines.broker.virtual_host import VirtualHost


class KeptMessage(NamedTuple):
    """A message of a set, read from the disk."""

    number: int
    envelope: Envelope
    body: bytes
    expires_at: float | None
    """On the clock of the broker, as it was in the span; it may have passed."""


class StoredSet:
    """One set of a virtual host.  ``VirtualHost.stored_set`` makes it."""

    __slots__ = ("_unread", "name", "next_number", "noted", "stored", "vhost")

    def __init__(self, name: str, vhost: VirtualHost) -> None:
        self.name = name
        self.vhost = vhost
        self.next_number = 0
        """No message has this number or a higher one, and none had it before a restart."""
        self.noted = 0
        """What a segment of the store says of ``next_number`` at its beginning.

        It covers the numbers that were dropped, whose records may be gone.  The others have records.  It
        must not cover more: messages that come behind it in the segment may be cut off by a crash.
        """
        self.stored: Any = None
        """The store's object; None: nothing is stored, or the set was deleted.  Opaque here."""
        self._unread: list[Paged] = []
        """What the store had at the start and ``messages`` has not returned yet, the last page first."""

    def __repr__(self) -> str:
        return f"<StoredSet {self.name!r}, next number {self.next_number}>"

    def keep(self, span: Span) -> None:
        """Keep messages: message ``i`` of the batch has the number ``span.base + i``.

        Their envelope need not be persistent.  Raises ``PreconditionFailed`` for an envelope that cannot be
        written.
        """
        # Not only for whoever breaks the rule: a number that was dropped once would be kept without an error
        # now, and be gone after the next restart.
        if span.first < self.next_number:
            raise ValueError(
                f"{self!r}: a message cannot be kept under number {span.first}, which is not a new one"
            )
        # Here as well as where routes are found: a message that reaches no queue is not checked there.
        self.vhost.store.check_envelope(span.envelope)
        self.next_number = span.base + span.stop
        self.vhost.store.keep_in_set(self, span)

    def drop(self, first: int, stop: int) -> None:
        """The messages with numbers from ``first`` up to ``stop`` are not needed any more.

        Numbers without a message are ignored.
        """
        self.noted = max(self.noted, min(stop, self.next_number))
        self.vhost.store.drop_from_set(self, first, stop)

    def number_for(self, identifier: int, bits: int = 16) -> int:
        """Return the next number whose lowest bits are ``identifier``."""
        lowest = self.next_number
        number = lowest >> bits << bits | identifier
        return number if number >= lowest else number + (1 << bits)

    def numbers(self) -> list[tuple[int, int]]:
        """Return the numbers of all messages, as ranges ``[first, stop)`` in order; no body is read."""
        return self.vhost.store.numbers_of_set(self)

    def messages(self) -> Iterator[KeptMessage]:
        """Return what the set had when the broker started and was not dropped since, in order of the numbers.

        Each message once: it is for the owner's start.  Messages are read while the iterator is used, some
        256 KiB at a time.  Those that cannot be read are reported, and have no number any more.
        """
        while self._unread:
            yield from self.vhost.store.read_set(self._unread.pop())

    def restore(self, pages: Sequence[Paged], next_number: int) -> None:
        """Set what a store has recovered, in order of the numbers."""
        # Reversed, so that each page is taken off the end.
        self._unread = list(reversed(pages))
        self.next_number = self.noted = next_number

    def forget_unread(self) -> None:
        """The set is deleted: what it has on the disk will not be read."""
        while self._unread:
            self._unread.pop().detach()
