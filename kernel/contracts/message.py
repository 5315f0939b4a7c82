"""Message, envelope and batch: what flows through the kernel.

What many messages have in common is stored once, in an immutable :class:`Envelope` that is compared by
identity. Consecutive messages with the same envelope travel as one :class:`Batch`: a list of bodies and one
reference to the envelope.  Pipes, routers, codecs and the journal work on batches.  So what depends on the
envelope is decided and encoded once for a batch, not once for each message
(docs/decisions/0001-batches-not-messages.md).

:class:`Message` is a single message as an application sees it.  Between two connections there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What a body may be.  The owner of a mutable buffer must not change it until the kernel has released it
(see :func:`kernel.contracts.loan.lend`)."""

Body: TypeAlias = Buffer | tuple[Buffer, ...]
"""The body of one message: a buffer, or in a multi-part batch a tuple of buffers (the parts)."""

# Read-only, since all envelopes without properties share it.
_NOTHING: Mapping[str, Any] = MappingProxyType({})


# ``gc=False`` here and below: the collector does not track these objects, of which there are many.  So
# nothing that they hold may refer back to them: such a cycle would never be freed.
class Envelope(msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True, omit_defaults=True):
    """What messages of one flow have in common.  Immutable, shared, equal only to itself.

    ``properties`` has what only some protocols know, with the names and types of
    ``kernel.contracts.properties``. Some protocols decode it at the first access, so do not read it where it
    is not needed.
    """

    key: str = ""
    """Routing key, topic or subject."""
    exchange: str = ""
    reply_to: str = ""
    persistent: bool = False
    priority: int = 0
    expiration: int | None = None
    """How long the message may wait for delivery, in milliseconds; None: for ever."""
    properties: Mapping[str, Any] = _NOTHING

    def __reduce__(self) -> Any:
        """Have ``pickle`` and ``copy.deepcopy`` make one with the same fields."""
        if self is PLAIN:
            return "PLAIN"
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        return partial(Envelope, **{**said, "properties": _plain(self.properties)}), ()


def _plain(value: Any) -> Any:
    """Return a value with dictionaries instead of other mappings, and bytes instead of views."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return bytes(value) if isinstance(value, memoryview) else value


PLAIN = Envelope()
"""The envelope of messages that have only a body."""


# Not frozen: its maker appends to it (``extend``), and a protocol leaves ``encoded`` in it. Whoever gets it
# from a pipe shares it with others.
class Batch(msgspec.Struct, gc=False):
    """Consecutive messages under one envelope.

    ``bodies`` belongs to the batch: a reader may slice it but never change it, because the same batch
    may be on its way to a thousand subscribers.  ``size`` is the sum of the body sizes in bytes.
    In a ``multipart`` batch each body is a tuple of parts.

    ``width`` is the size of each body in bytes, if all have the same; 0: they differ, or it is not known.
    The maker of a batch mostly knows it, and encoders and the journal use it: to find it out again costs 15
    ns for each message.
    """

    bodies: Sequence[Any]
    size: int
    envelope: Envelope = PLAIN
    multipart: bool = False
    width: int = 0
    group: str = ""
    """The subscription ``group:NAME:PATTERN`` for which a router chose this reader; empty: it is in no group.

    For readers that have several subscriptions and share them out again.
    """
    # One tuple, so that readers in several threads see all of it or nothing. If two of them set it at once,
    # either will do.
    encoded: tuple[object, Sequence[Buffer]] | None = None
    """What a protocol has made of it, for others to whom the same goes, and by what: they compare
    that with their own.

    It stays as long as the batch, which may wait for a slow reader.
    """

    def __len__(self) -> int:
        return len(self.bodies)

    def slice(self, start: int, stop: int) -> Batch:
        """Return the messages from ``start`` up to ``stop`` as a batch of their own."""
        bodies = self.bodies[start:stop]
        width = self.width
        if width:
            # A known width makes the size a product. Multi-part batches have no width, so ``multipart`` is
            # False here.
            return Batch(bodies, len(bodies) * width, self.envelope, False, width, self.group)
        # A slice of bodies of several sizes may have one: ``batch_of`` looks again.
        batch = batch_of(bodies, self.envelope, multipart=self.multipart)
        batch.group = self.group
        return batch

    def under(self, envelope: Envelope) -> Batch:
        """Return the same messages under another envelope."""
        # Without ``encoded``: protocols may have put the envelope into it.
        return Batch(self.bodies, self.size, envelope, self.multipart, self.width, self.group)

    def chosen_for(self, group: str) -> Batch:
        """Return the same messages, chosen for a member of ``group``; empty: for somebody who is in none."""
        return Batch(self.bodies, self.size, self.envelope, self.multipart, self.width, group)

    def extend(self, batch: Batch) -> None:
        """Append the messages of another batch.

        Only the maker of a batch may do this, before it passes the batch on; ``bodies`` has to be a list.
        """
        self.bodies += batch.bodies  # type: ignore[operator]
        self.size += batch.size
        # 0 also says "not known", so it is always right.
        if batch.width != self.width:
            self.width = 0


def batch_of(bodies: Sequence[Any], envelope: Envelope = PLAIN, *, multipart: bool = False) -> Batch:
    """Return a batch of these bodies; computes its sizes (about 15 ns for each message)."""
    if multipart:
        return Batch(bodies, sum(map(_size_of_parts, bodies)), envelope, True)
    # In C, once for each batch. Encoders rely on the width, and each of them would have to compute it.
    sizes = list(map(len, bodies))
    width = sizes[0] if sizes else 0
    if sizes.count(width) == len(sizes):
        return Batch(bodies, len(sizes) * width, envelope, False, width)
    return Batch(bodies, sum(sizes), envelope)


def batch_of_one(body: Buffer, envelope: Envelope = PLAIN) -> Batch:
    """Return a batch of one message."""
    size = len(body)
    return Batch([body], size, envelope, False, size)


def _size_of_parts(parts: Iterable[Buffer]) -> int:
    return sum(map(len, parts))


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as an application sees it."""

    body: Buffer
    envelope: Envelope = PLAIN
    parts: tuple[Buffer, ...] = ()
    """All parts of a multi-part message; empty for a message of a single part."""

    @property
    def key(self) -> str:
        """The routing key, topic or subject."""
        return self.envelope.key

    def __bytes__(self) -> bytes:
        return bytes(self.body)

    def __reduce__(self) -> Any:
        """Have ``pickle`` and ``copy.deepcopy`` make one with bytes: a view belongs to its buffer."""
        return Message, (_plain(self.body), self.envelope, _plain(self.parts))


def messages_of(batch: Batch) -> list[Message]:
    """Return the messages of a batch one by one.  The body of a multi-part one is its parts joined."""
    envelope = batch.envelope
    if batch.multipart:
        return [Message(b"".join(parts), envelope, tuple(parts)) for parts in batch.bodies]
    return [Message(body, envelope) for body in batch.bodies]
