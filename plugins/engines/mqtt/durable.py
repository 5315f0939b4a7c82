"""Durable: what of the sessions is on disk, in stored sets of their virtual host (decisions 30 and 31).

``mqtt.sessions``
    A message for each session that outlives its connection: a ``Description``, with its will.  A change keeps
    a new description and drops the one before it.  If the session has many subscriptions, a change keeps a
    message with those that have changed, until these messages have as many as the session has.
``mqtt.received.CLIENT``
    Packet identifiers of QoS 2 messages that the client has published and not released: the lowest 16 bits of
    the numbers.  The message of a number is the published one, in one record with the queues that have it.
``mqtt.released.CLIENT``
    Messages for which the client has sent PUBREC and no PUBCOMP: those of the session's queue by their
    positions, those of shared subscriptions by ``SHARED`` and their packet identifier.  Each message of the
    set has those of one PUBREC, eight bytes each.
``mqtt.begun.CLIENT``
    Messages of shared subscriptions that are sent with QoS 2, until PUBREC comes.  The lowest 16 bits
    of a number are the packet identifier, the message of the set says which queue has the message,
    and at which position.

What a client is told waits for the disk: PUBREC for the identifiers that were received, PUBREL for the note
of what is released, PUBCOMP for its removal.  Otherwise the client could forget an identifier that the broker
remembers after a crash, use it for the next message, and lose that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, iter_unpack, pack
from typing import Self

import msgspec

from kernel.contracts.message import Batch, batch_of, batch_of_one
from plugins.engines.broker.public import Queue, Span, VirtualHost
from plugins.protocols.mqtt.fields import Fields, encode_properties
from plugins.protocols.mqtt.packets import Will
from plugins.protocols.mqtt.properties import WILL

_SESSIONS = "mqtt.sessions"


class DescribedSubscription(msgspec.Struct, frozen=True):
    """A subscription in a description."""

    name: str
    topic_filter: str
    share_name: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int


class DescribedWill(msgspec.Struct, frozen=True):
    """A will in a description."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    """As in a CONNECT of MQTT 5."""
    user: str
    """Whose rights it takes to publish it."""

    @classmethod
    def of(cls, will: Will, user: str) -> Self:
        """Describe a will."""
        properties = encode_properties(will.properties, WILL)
        return cls(will.topic, will.payload, will.qos, will.retain, properties, user)

    def will(self) -> Will:
        """Return the will."""
        # The parser has read them before: they are in order.
        properties = Fields(self.properties, 0, len(self.properties), "a will on disk").properties(WILL)
        return Will(self.topic, self.payload, self.qos, self.retain, properties)


class Description(msgspec.Struct, frozen=True):
    """What is on disk of a session.  Fields may be added, with a default."""

    client_id: str
    exchange: str
    expiry: int
    left_at: float
    """The time of the store's clock at which its connection was lost; 0: it has one."""
    subscriptions: tuple[DescribedSubscription, ...]
    will: DescribedWill | None = None
    begun: tuple[int, ...] = ()
    """Positions of messages that were sent with QoS 2, and that the subscriptions want
    with another one now."""
    is_change: bool = False
    """Whether ``subscriptions`` are only those that are new or have changed since the one before it."""
    gone: tuple[str, ...] = ()
    """The names of subscriptions that are gone since the one before it."""


_MANY = 100
"""With fewer subscriptions, a description is written as a whole each time."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Description).decode


class Descriptions:
    """The descriptions of the sessions of one virtual host."""

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost
        self._numbers: dict[str, list[int]] = {}
        """By client identifier: of the last whole description, and of the changes since."""
        self._changed: dict[str, int] = {}
        """How many subscriptions these changes have; no entry: none."""

    def read(self) -> Iterator[Description]:
        """Yield what the store has, at the start of the broker."""
        found = self._vhost.stored_sets.get(_SESSIONS)
        if found is None:
            return
        latest: dict[str, Description] = {}
        subscriptions: dict[str, dict[str, DescribedSubscription]] = {}
        for kept in found.messages():
            try:
                description = _decode(kept.body)
            except msgspec.MsgspecError as error:
                self._vhost.broker.report("not restored", f"an MQTT session of {self._vhost.name!r}: {error}")
                continue
            client_id = description.client_id
            if not description.is_change:
                # A crash may have left the one before it.
                self._drop(client_id)
                subscriptions[client_id] = {}
            elif client_id not in latest:
                # A crash has left a change of a description that is gone: the next one is whole.
                found.drop(kept.number, kept.number + 1)
                continue
            self._add(description, kept.number)
            latest[client_id] = description
            subscriptions[client_id].update({each.name: each for each in description.subscriptions})
            for name in description.gone:
                subscriptions[client_id].pop(name, None)
        for client_id, description in latest.items():
            whole = tuple(subscriptions[client_id].values())
            yield msgspec.structs.replace(description, subscriptions=whole, is_change=False, gone=())

    def takes_change(self, client_id: str, changed: int, subscriptions: int) -> bool:
        """Whether a description may be written as the change of so many of a session's subscriptions.

        So each whole description is written after as many changes as it has subscriptions.
        """
        return (
            subscriptions >= _MANY
            and client_id in self._numbers
            and self._changed.get(client_id, 0) + changed < subscriptions
        )

    def keep(self, description: Description) -> None:
        """Write a description: a whole one in place of the one before it, or a change of that one."""
        client_id = description.client_id
        stored = self._vhost.stored_set(_SESSIONS)
        number = stored.next_number
        # The new one first: a crash in between leaves both, and ``read`` takes the later one. In the other
        # order it could leave none.
        stored.keep(Span(number, batch_of_one(_encode(description)), 0, 1))
        if not description.is_change:
            self._drop(client_id)
        self._add(description, number)

    def drop(self, client_id: str) -> None:
        """The session has ended."""
        self._drop(client_id)
        for sort in (_RECEIVED, _RELEASED, _BEGUN):
            self._vhost.delete_stored_set(f"{sort}.{client_id}")

    def _add(self, description: Description, number: int) -> None:
        client_id = description.client_id
        self._numbers.setdefault(client_id, []).append(number)
        if description.is_change:
            # One at least: a change of something else takes room, too.
            changed = max(len(description.subscriptions) + len(description.gone), 1)
            self._changed[client_id] = self._changed.get(client_id, 0) + changed

    def _drop(self, client_id: str) -> None:
        self._changed.pop(client_id, None)
        for number in self._numbers.pop(client_id, ()):
            self._vhost.stored_set(_SESSIONS).drop(number, number + 1)


_RECEIVED = "mqtt.received"
_RELEASED = "mqtt.released"
_BEGUN = "mqtt.begun"
_ID_BITS = 16


class Received:
    """The packet identifiers of QoS 2 messages that a client has published and not released."""

    def __init__(self, vhost: VirtualHost, client_id: str, *, durable: bool) -> None:
        self._vhost = vhost
        self._name = f"{_RECEIVED}.{client_id}"
        self._durable = durable
        self._numbers: dict[int, int] = {}
        """The numbers in the stored set, by identifier."""
        stored = vhost.stored_sets.get(self._name) if durable else None
        for first, stop in () if stored is None else stored.numbers():
            for number in range(first, stop):
                self._numbers[number & 0xFFFF] = number

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def has_none_of(self, ids: Sequence[int]) -> bool:
        """Whether all these identifiers are new."""
        return self._numbers.keys().isdisjoint(ids)

    def add(self, ids: Sequence[int], batch: Batch) -> None:
        """The messages of a batch were published just now, with these identifiers."""
        if not self._durable:
            self._numbers.update(zip(ids, ids, strict=True))
            return
        stored = self._vhost.stored_set(self._name)
        for start, stop in _consecutive(ids):
            number = stored.number_for(ids[start], _ID_BITS)
            stored.keep(Span(number - start, batch, start, stop))
            for index in range(start, stop):
                self._numbers[ids[index]] = number + index - start

    def discard(self, ids: Sequence[int]) -> int:
        """Forget identifiers; return the mark of the store after which they stay forgotten, 0: at once."""
        numbers = [number for number in [self._numbers.pop(one, None) for one in ids] if number is not None]
        if not self._durable or not numbers:
            return 0
        stored = self._vhost.stored_set(self._name)
        for start, stop in _consecutive(numbers):
            stored.drop(numbers[start], numbers[start] + stop - start)
        return self._vhost.store.demand()


SHARED = 1 << 63
"""Added to the identifier of a message of a shared subscription.  Positions are smaller."""


class Released:
    """The messages of a session for which PUBREC has come, and PUBCOMP has not."""

    def __init__(self, vhost: VirtualHost, client_id: str, *, durable: bool) -> None:
        self._vhost = vhost
        self._name = f"{_RELEASED}.{client_id}"
        self.durable = durable
        """Whether the session outlives the broker."""
        self.store = vhost.store
        self._number_of: dict[int, int] = {}
        """The number in the stored set, by position."""
        self._left: dict[int, int] = {}
        """How many positions of each number are not completed."""
        stored = vhost.stored_sets.get(self._name) if durable else None
        for kept in () if stored is None else stored.messages():
            positions = [position for (position,) in iter_unpack(">Q", kept.body)]
            self._note(kept.number, positions)

    def positions(self) -> list[int]:
        """Return the positions of all messages that are released."""
        return list(self._number_of)

    def mark(self) -> int:
        """Return the mark of the store after which all notes so far are safe, 0: nothing is noted."""
        return self._vhost.store.demand() if self._number_of else 0

    def add(self, positions: Sequence[int]) -> int:
        """PUBREC has come; return the mark of the store after which PUBREL may be sent, 0: at once."""
        if not self.durable or not positions:
            return 0
        stored = self._vhost.stored_set(self._name)
        number = stored.next_number
        stored.keep(Span(number, batch_of_one(pack(f">{len(positions)}Q", *positions)), 0, 1))
        self._note(number, positions)
        return self._vhost.store.demand()

    def _note(self, number: int, positions: Sequence[int]) -> None:
        self._left[number] = len(positions)
        self._number_of.update(dict.fromkeys(positions, number))

    def discard(self, positions: Sequence[int]) -> None:
        """PUBCOMP has come.  If this is lost in a crash, PUBREL is sent again, which does no harm."""
        for position in positions:
            number = self._number_of.pop(position, None)
            if number is None:
                continue
            # One message of the set has the positions of several PUBREC. It can be dropped when all of them
            # are completed.
            self._left[number] -= 1
            if not self._left[number]:
                del self._left[number]
                self._vhost.stored_set(self._name).drop(number, number + 1)


class Begun:
    """The messages of shared subscriptions that are sent to a session with QoS 2, until PUBREC comes.

    A note says which message has an identifier.  It is on disk before the message is sent, so that after a
    crash the session gets this message again, and nobody else does.  It is dropped after the message.
    """

    def __init__(self, vhost: VirtualHost, client_id: str) -> None:
        self._vhost = vhost
        self._name = f"{_BEGUN}.{client_id}"
        self._numbers: dict[int, int] = {}
        """The numbers in the stored set, by identifier."""
        self._found: list[tuple[int, int, int]] = []
        stored = vhost.stored_sets.get(self._name)
        for kept in () if stored is None else stored.messages():
            number = kept.number & 0xFFFF
            self._numbers[number] = kept.number
            self._found.append((number, *_POSITION.unpack(kept.body)))

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def take_found(self) -> list[tuple[int, Queue | None, int]]:
        """Return what a crash has left: identifier, queue and position.  None: the queue is gone."""
        found, self._found = self._found, []
        store = self._vhost.store
        queues = {store.number_of(queue): queue for queue in self._vhost.queues.values()} if found else {}
        return [(number, queues.get(queue), position) for number, queue, position in found]

    def add(self, ids: Sequence[int], queue: Queue, first: int) -> None:
        """Messages of a queue, from the position ``first`` on, will be sent with these identifiers."""
        of_queue = self._vhost.store.number_of(queue)
        bodies = [_POSITION.pack(of_queue, position) for position in range(first, first + len(ids))]
        batch = batch_of(bodies)
        stored = self._vhost.stored_set(self._name)
        for start, stop in _consecutive(ids):
            number = stored.number_for(ids[start], _ID_BITS)
            stored.keep(Span(number - start, batch, start, stop))
            for index in range(start, stop):
                self._numbers[ids[index]] = number + index - start

    def discard(self, ids: Sequence[int]) -> None:
        """The messages have left their queues, or go back to them without having been sent."""
        numbers = [number for number in [self._numbers.pop(one, None) for one in ids] if number is not None]
        for start, stop in _consecutive(numbers):
            self._vhost.stored_set(self._name).drop(numbers[start], numbers[start] + stop - start)


_POSITION = Struct(">QQ")
"""The number of a queue in the store, and a position in it."""


def _consecutive(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of indices in which the numbers count up by one."""
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            yield start, index
            start = index
