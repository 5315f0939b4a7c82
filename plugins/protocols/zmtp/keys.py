"""Keys: the first part of a message as the key of its envelope, and back.

A message of one part has no key: it is all body.  Nor has one whose first part is empty, not UTF-8, or longer
than ``KEY_LIMIT``; such a message keeps all of its parts.  So what comes in goes out as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of

KEY_LIMIT = 255
"""Bytes of a key that is taken from a peer, at most: as many as a routing key of AMQP can have."""

_REMEMBERED = 1024
"""Envelopes that a conversation keeps, each for one key."""


class KeySplitter:
    """Makes keys of first parts.  Consecutive messages with one key become one batch."""

    def __init__(self) -> None:
        self._envelopes: dict[bytes, Envelope | None] = {}

    def split(self, batch: Batch) -> Iterator[Batch]:
        """Return the messages of a batch, with their keys."""
        if not batch.multipart:
            yield batch
            return
        messages = batch.bodies
        size = len(messages)
        at = 0
        while at < size:
            first = messages[at]
            key, count = first[0], len(first)
            end = at + 1
            # Also as many parts: a batch has messages of one part or of several, and one that loses its key
            # may change from one to the other.
            while end < size and messages[end][0] == key and len(messages[end]) == count:
                end += 1
            yield self._under(key, messages[at:end], count)
            at = end

    def _under(self, key: bytes, messages: Any, count: int) -> Batch:
        """Return messages that have the same key and number of parts."""
        envelope = self._envelope(key)
        if envelope is None:
            return batch_of(messages, multipart=True)
        # One part is left, so it is no multi-part message any more.
        if count == 2:
            return batch_of([message[1] for message in messages], envelope)
        return batch_of([message[1:] for message in messages], envelope, multipart=True)

    def _envelope(self, key: bytes) -> Envelope | None:
        """Return the envelope of a key; None: these octets are not a key."""
        if len(key) > KEY_LIMIT:
            return None
        envelope = self._envelopes.get(key, PLAIN)
        if envelope is PLAIN:
            envelope = self._made(key)
            if len(self._envelopes) >= _REMEMBERED:
                self._envelopes.clear()
            self._envelopes[key] = envelope
        return envelope

    def _made(self, key: bytes) -> Envelope | None:
        try:
            # An empty first part is no key, since a message without a key goes out without that part.
            return Envelope(key=key.decode()) if key else None
        except UnicodeDecodeError:
            return None


class GroupSplitter(KeySplitter):
    """The same for messages of groups (48/RADIO-DISH).

    There are two parts, of which the first is the group in any case.
    """

    def split(self, batch: Batch) -> Iterator[Batch]:
        """Return the messages of a batch, with their groups.  Raises ``RemoteProtocolError``."""
        if not batch.multipart or any(len(parts) != 2 for parts in batch.bodies):
            raise RemoteProtocolError("a message without a group: it has two parts, the group and the body")
        return super().split(batch)

    def _envelope(self, key: bytes) -> Envelope:
        if len(key) > KEY_LIMIT:
            raise RemoteProtocolError(f"a group of {len(key)} bytes; it has {KEY_LIMIT} at most")
        envelope = super()._envelope(key)
        assert envelope is not None
        return envelope

    def _made(self, key: bytes) -> Envelope:
        return Envelope(key=group_text(key))


def key_of(envelope: Envelope) -> bytes:
    """Return the first part of messages under this envelope; empty: they have none."""
    # surrogatepass: whatever a key is made of, it goes out in some way.
    return envelope.key.encode("utf-8", "surrogatepass")


def group_of(envelope: Envelope) -> bytes:
    """Return the group of messages under this envelope, which may be empty."""
    try:
        return envelope.key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return key_of(envelope)


def group_text(group: bytes) -> str:
    """Return a group as a key.  Octets that are not UTF-8 are lone surrogates in it."""
    return group.decode("utf-8", "surrogateescape")
