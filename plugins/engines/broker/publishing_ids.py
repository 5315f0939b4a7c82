"""Publishing ids: a message that its publisher has numbered reaches the queues once.

A publisher that wants this gives each message two headers: ``x-publisher``, a name of its own, and
``x-publishing-id``, a number that grows from message to message (gaps are allowed).  They mean what they mean
in RabbitMQ's streams.  For each name the broker knows the highest number that its queues have taken.  A
message with this number or a lower one is a repeated one: it is confirmed, and dropped.  So a publisher that
has lost its connection sends everything again that was not confirmed, and nothing comes twice.

The two headers are for the broker that takes the message.  Consumers do not see them: whoever passes a
message on with all its headers would otherwise repeat a number, and lose the message.

**What is stored.**  A number is kept in a stored set, one for each name, in the record that has the message
(``stored_set.py``).  After a crash both are there or neither is.  A number that no queue has stored a message
for is in memory only: after a crash the message is gone, and may come again.

**What is not noted.**  What a full queue refuses, and what reaches no queue: the publisher is told, and may
send it again.

**Bounds.**  A virtual host knows the names that were used last, ``MOST_PUBLISHERS`` of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.span import Span

if TYPE_CHECKING:
    from kernel.contracts.message import Batch
    from plugins.engines.broker.virtual_host import VirtualHost

PUBLISHER = "x-publisher"
"""The header with a publisher's name."""
PUBLISHING_ID = "x-publishing-id"
"""The header with the number of a message."""
FOR_THE_BROKER = (PUBLISHER, PUBLISHING_ID, "BCC")
"""The headers that a consumer does not see."""
MOST_PUBLISHERS = 10_000
REPEATED = -1
"""What ``VirtualHost.publish`` returns for a repeated message."""

_MOST_OCTETS = 255
_NUMBERS = 1 << 62
"""Numbers are below this one: the store adds to them, and has 63 bits."""
_DIGITS = 19
_SETS = "publisher."


class PublishingId(NamedTuple):
    """The name of a publisher, and the number of a message."""

    publisher: str
    number: int


def publishing_id_of(headers: Mapping[str, Any]) -> PublishingId:
    """Return what the headers of a numbered message say; raise ``PreconditionFailed`` if that is nothing."""
    publisher, number = headers.get(PUBLISHER), headers[PUBLISHING_ID]
    # The headers of some protocols are text.
    if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) <= _DIGITS:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _NUMBERS:
        raise PreconditionFailed(
            f"header {PUBLISHING_ID} is {number!r:.80}: it must be a whole number, not below 0 and below 2^62"
        )
    if not isinstance(publisher, str) or not 0 < len(publisher.encode(errors="replace")) <= _MOST_OCTETS:
        raise PreconditionFailed(
            f"header {PUBLISHER} is {publisher!r:.80}: a message with {PUBLISHING_ID} needs there the name of"
            f" its publisher, a text of 1 to {_MOST_OCTETS} octets"
        )
    return PublishingId(publisher, number)


def is_set_of_publisher(name: str) -> bool:
    """Whether the stored set of this name has the numbers of a publisher."""
    return name.startswith(_SETS)


class PublishingIds:
    """The highest number of each publisher of one virtual host.  Used by the broker's thread."""

    __slots__ = ("_last", "_not_dropped", "_vhost")

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost
        self._last: dict[str, int] | None = None
        """The highest number by name, the name that was used last at the end; None: not asked for yet."""
        self._not_dropped: dict[tuple[int, str], int] = {}
        """By the mark of the store and the name: the highest number that was kept before that mark."""

    def is_new(self, publishing_id: PublishingId) -> bool:
        """Whether no message of this publisher with this number, or a higher one, was noted."""
        publisher, number = publishing_id
        return number > self._known().get(publisher, -1)

    def note(self, publishing_id: PublishingId, batch: Batch, *, stored: bool) -> None:
        """Queues have just taken a message; ``stored``: at least one of them on the disk.

        Called directly after the queues have it, with the batch that they have.
        """
        publisher, number = publishing_id
        last = self._known()
        # Taken out first, so that it comes to the end: the order is that of the last use.
        last.pop(publisher, None)
        last[publisher] = number
        if len(last) > MOST_PUBLISHERS:
            self._forget(next(iter(last)))
        if stored:
            store = self._vhost.store
            self._vhost.stored_set(_SETS + publisher).keep(Span(number, batch, 0, 1))
            # By the mark as well: a later number of the publisher may be in a group that is not safe yet.
            self._not_dropped[store.mark, publisher] = number
            store.when_safe(self._drop_safe)

    def removal(self) -> Iterator[None]:
        """Forget all publishers, also on the disk; pause after each."""
        for publisher in list(self._known()):
            self._forget(publisher)
            yield

    def _known(self) -> dict[str, int]:
        if self._last is None:
            # A store restores the sets after the virtual host was made.
            self._last = {
                name.removeprefix(_SETS): found.next_number - 1
                for name, found in self._vhost.stored_sets.items()
                if is_set_of_publisher(name)
            }
        return self._last

    def _forget(self, publisher: str) -> None:
        self._known().pop(publisher, None)
        self._vhost.delete_stored_set(_SETS + publisher)

    def _drop_safe(self) -> None:
        """Drop numbers that are safe: the set remembers that they were given, and needs no message for that.

        Not before they are safe.  The store leaves out what is dropped before it is written, and a crash
        could then leave a message without its number.
        """
        store, sets = self._vhost.store, self._vhost.stored_sets
        safe = store.safe
        for key in [key for key in self._not_dropped if key[0] <= safe]:
            number = self._not_dropped.pop(key)
            kept = sets.get(_SETS + key[1])
            if kept is not None:
                kept.drop(0, number + 1)
        if self._not_dropped:
            store.when_safe(self._drop_safe)
