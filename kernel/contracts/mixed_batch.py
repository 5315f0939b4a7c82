"""Mixed batch: consecutive messages each of which has an envelope of its own.

Where every message has another key, a :class:`Batch` for each of them, and an :class:`Envelope`, cost more
than all else (docs/decisions/0042-many-envelopes.md).  So the two ends of a way may pass them on together: an
application whose messages go to one pipe, and a protocol and a reader that have said that they accept it.
All others get batches: ports and pipes divide a mixed batch for them (``divided``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.message import Batch, Envelope, batch_of

# A key as it is, since to make an envelope takes 0.3 to 0.5 us, and mostly nobody asks for it.
Entry: TypeAlias = Envelope | str
"""The envelope of one message.  A string stands for an envelope that has this key and nothing else."""

# An object of its own, unlike ``PLAIN``: by it a mixed batch is found among others without a look at classes
# (``has_mixed``).
MIXED = Envelope()
"""What ``envelope`` of a mixed batch is: its messages have others."""

LONGEST_KEY = 255
"""Octets of a key of a keyed batch (AMQP 0-9-1 has no longer ones)."""

_MOST_KEYS = 4096

envelope_of: Callable[[Batch], Envelope] = attrgetter("envelope")


# One object and not two items of the pipe, between which the handler of a signal could raise
# (docs/decisions/0042-many-envelopes.md).
class Under(msgspec.Struct, frozen=True, gc=False):
    """One message under an envelope.

    An application appends it to a pipe (``kernel.contracts.api.FastPipe``).
    """

    entry: Entry
    body: bytes


class EnvelopesByKey(dict[str, Envelope]):
    """Envelopes that have only a key.  A key that is met again gives the same object, while it is remembered.

    Routers and codecs decide once for each envelope object.
    """

    __slots__ = ()

    def __missing__(self, key: str) -> Envelope:
        # Keys may be without end (an order number in each).  A cache that is cleared as a whole needs no
        # bookkeeping per message, and keys that are in use come back with their next message.
        if len(self) >= _MOST_KEYS:
            self.clear()
        envelope = self[key] = Envelope(key=key)
        return envelope

    def of(self, entry: Entry) -> Envelope:
        """Return the envelope of an entry."""
        return self[entry] if isinstance(entry, str) else entry


class MixedBatch(Batch, gc=False):
    """Consecutive messages of one part, each under an envelope of its own.

    ``entries`` has as many items as ``bodies``.

    Only those get one who have said that they accept it.
    """

    entries: Sequence[Entry] = ()

    def slice(self, start: int, stop: int) -> MixedBatch:
        """Return the messages from ``start`` up to ``stop`` as a mixed batch of their own."""
        return mixed_batch(self.bodies[start:stop], self.entries[start:stop])

    def divided(self, by_key: EnvelopesByKey) -> list[Batch]:
        """Return the same messages as batches, in order: one for neighbours that share an envelope."""
        return batches_of(
            self.bodies, [by_key[entry] if type(entry) is str else entry for entry in self.entries]
        )


def mixed_batch(bodies: Sequence[Any], entries: Sequence[Entry]) -> MixedBatch:
    """Return a mixed batch of these bodies, each with the entry at the same place."""
    return MixedBatch(bodies, sum(map(len, bodies)), MIXED, entries=entries)


class KeyedBatch(Batch, gc=False):
    """Consecutive messages whose envelopes differ in their keys only.

    ``keys`` has as many items as ``bodies``, in UTF-8.

    ``envelope`` is what they have in common: that of a message with an empty key.  Only those get one who
    have said that they accept it; all others get what ``divided`` returns.
    """

    # As octets: they are decoded and matched all at once (``key_texts``).
    keys: Sequence[bytes] = ()
    """Each has at most ``LONGEST_KEY`` octets, so that no protocol refuses some of them."""
    envelope_of: Callable[[str], Envelope] = EnvelopesByKey().of
    """Returns the envelope of a key.  Equal keys should get the same object, while it is remembered."""
    parts: list[Batch] | None = None
    """What ``divided`` has returned: the same batch may be divided for many queues."""

    def slice(self, start: int, stop: int) -> KeyedBatch:
        """Return the messages from ``start`` up to ``stop`` as a keyed batch of their own."""
        return self.part(self.bodies[start:stop], self.keys[start:stop])

    def part(self, bodies: Sequence[Any], keys: Sequence[bytes]) -> KeyedBatch:
        """Return some of the messages as a keyed batch of their own."""
        size = sum(map(len, bodies))
        return KeyedBatch(
            bodies, size, self.envelope, False, self.width, keys=keys, envelope_of=self.envelope_of
        )

    def key_texts(self) -> list[str]:
        """Return the keys as text; octets that are no UTF-8 become surrogates."""
        # All at once: a call for each takes three times as long.
        texts = b"\0".join(self.keys).decode("utf-8", "surrogateescape").split("\0")
        # A key has a zero octet in it, and was divided.
        if len(texts) != len(self.keys):
            return [key.decode("utf-8", "surrogateescape") for key in self.keys]
        return texts

    def divided(self) -> list[Batch]:
        """Return the same messages as batches, in order: one for neighbours that share a key."""
        if self.parts is None:
            self.parts = batches_of(self.bodies, map(self.envelope_of, self.key_texts()))
        return self.parts

    def per_message(self, answers: Iterable[bool]) -> list[bool]:
        """Return for each message what is said of its batch among those that ``divided`` returns."""
        return [
            answer
            for part, answer in zip(self.divided(), answers, strict=True)
            for _ in range(len(part.bodies))
        ]


def batches_of(bodies: Iterable[Any], envelopes: Iterable[Any]) -> list[Batch]:
    """Return batches of these bodies, each with the envelope at the same place; neighbours may share one."""
    batches: list[Batch] = []
    last: Envelope | None = None
    several = False
    for body, envelope in zip(bodies, envelopes, strict=True):
        if envelope is last:
            batches[-1].bodies.append(body)  # type: ignore[attr-defined]  # a list that this call has made
            several = True
        else:
            size = len(body)
            batches.append(Batch([body], size, envelope, False, size))
            last = envelope
    # The sizes of batches of several messages are not known yet.
    return [batch_of(batch.bodies, batch.envelope) for batch in batches] if several else batches


def has_mixed(batches: Iterable[Batch]) -> bool:
    """Whether there is a mixed batch among these.

    What runs for each message does the same without this call.
    """
    return MIXED in map(envelope_of, batches)


def all_divided(batches: Iterable[Batch], by_key: EnvelopesByKey) -> list[Batch]:
    """Return the same messages, with batches in place of mixed ones."""
    divided: list[Batch] = []
    for batch in batches:
        if type(batch) is MixedBatch:
            divided += batch.divided(by_key)
        else:
            divided.append(batch)
    return divided
