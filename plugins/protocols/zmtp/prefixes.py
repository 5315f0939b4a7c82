"""Prefixes: subscriptions of ØMQ, and which messages they let through."""

from __future__ import annotations

import codecs
from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

from kernel.contracts.key_trie import PREFIX
from kernel.contracts.message import Batch, batch_of
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES

_FEW = 8
"""Prefixes that are tried one after the other."""


class Prefixes:
    """A counted set of prefixes.

    A test tries one slice for each length that a prefix has, so its cost does not grow with their number.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._having: dict[int, int] = {}
        """How many prefixes there are of each length."""
        self._lengths: list[int] = []
        self.size = 0
        """Bytes of all subscriptions together, repeated ones as often."""
        self.number = 0

    def add(self, prefix: bytes) -> bool:
        """Count a subscription; return whether it is the first to this prefix."""
        self.size += len(prefix)
        self.number += 1
        count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        if count > 1:
            return False
        length = len(prefix)
        self._having[length] = self._having.get(length, 0) + 1
        if self._having[length] == 1:
            insort(self._lengths, length)
        return True

    def remove(self, prefix: bytes) -> bool:
        """Take back one subscription; return whether it was the last to this prefix.

        A prefix that was never added changes nothing.
        """
        count = self._counts.get(prefix, 0)
        if not count:
            return False
        self.size -= len(prefix)
        self.number -= 1
        if count > 1:
            self._counts[prefix] = count - 1
            return False
        del self._counts[prefix]
        length = len(prefix)
        self._having[length] -= 1
        if not self._having[length]:
            del self._having[length]
            self._lengths.remove(length)
        return True

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._counts

    def match(self, octets: Any) -> bool:
        """Whether a message that begins with these octets is subscribed to."""
        size = len(octets)
        counts = self._counts
        for length in self._lengths:
            # The lengths are in ascending order, so none of the others fits.
            if length > size:
                return False
            # ``bytes``: a slice of a bytearray cannot be looked up.
            if bytes(octets[:length]) in counts:
                return True
        return False

    def _matches(self, heads: Sequence[Any]) -> Iterable[bool]:
        """Return what ``match`` says of each of them, if possible without a call for each."""
        counts = self._counts
        # Other buffers have no ``startswith``, and slices that cannot be looked up.
        if set(map(type, heads)) == {bytes}:
            if len(counts) <= _FEW:
                few = tuple(counts)
                return [head.startswith(few) for head in heads]
            if len(self._lengths) == 1:
                return map(counts.__contains__, map(itemgetter(slice(self._lengths[0])), heads))
        return map(self.match, heads)

    def sift(self, batch: Batch) -> Batch | None:
        """Return the messages that are subscribed to, by their first parts; None if there are none."""
        # Subscribed to everything, as most are: nothing has to be looked at.
        if b"" in self._counts:
            return batch
        # A message of no parts begins with nothing, which is not subscribed to.
        heads = [parts[0] if parts else b"" for parts in batch.bodies] if batch.multipart else batch.bodies
        if len(heads) == 1:
            return batch if self.match(heads[0]) else None
        bodies = list(compress(batch.bodies, self._matches(heads)))
        if len(bodies) == len(batch.bodies):
            return batch
        return batch_of(bodies, batch.envelope, multipart=batch.multipart) if bodies else None


class Excluded(Prefixes):
    """The same for subscriptions that are inverted (``ZMQ_INVERT_MATCHING``): what matches is not wanted."""

    def match(self, octets: Any) -> bool:
        """Whether nothing that a message begins with was subscribed to."""
        return not super().match(octets)

    def sift(self, batch: Batch) -> Batch | None:
        """Return the messages that were not subscribed to, by their first parts; None if there are none."""
        heads = [parts[0] if parts else b"" for parts in batch.bodies] if batch.multipart else batch.bodies
        bodies = list(compress(batch.bodies, map(self.match, heads)))
        return batch_of(bodies, batch.envelope, multipart=batch.multipart) if bodies else None


class Groups(Prefixes):
    """The same for groups (48/RADIO-DISH), which messages name as a whole."""

    def match(self, octets: Any) -> bool:
        """Whether the group of a message was joined."""
        return bytes(octets) in self._counts

    def sift(self, batch: Batch) -> Batch | None:
        """Return the messages whose first part is a group that was joined; None if there are none."""
        if not batch.multipart:
            return batch
        bodies = [parts for parts in batch.bodies if self.match(parts[0])]
        return batch_of(bodies, batch.envelope, multipart=True) if bodies else None


def subscriptions_of(options: ZmtpOptions) -> Prefixes:
    """Return an empty set of subscriptions for a conversation with these options."""
    if SOCKET_TYPES[options.type].grouped:
        return Groups()
    return Excluded() if options.invert_matching else Prefixes()


def pattern_of(prefix: bytes) -> str:
    """Return the pattern of a route for a peer's subscription.

    Keys are text and subscriptions are octets.  A prefix may end in the middle of a character: then the
    pattern is that of the characters before it, and the conversation sifts what comes.  Octets that are not
    text cannot begin a key; only messages without a key can begin with them.
    """
    try:
        # Not final: octets of a character that is not complete are left out, and are no error.
        text, _ = codecs.utf_8_decode(prefix, "strict", False)
    except UnicodeDecodeError:
        text = ""
    return PREFIX + text


def exact_pattern_of(prefix: bytes) -> str:
    """Return a pattern that ``prefix_of`` turns back into these octets, for sockets without keys."""
    return PREFIX + prefix.decode("utf-8", "surrogateescape")


def prefix_of(pattern: str) -> bytes:
    """Return the prefix that has all keys that match a pattern of a route, and maybe more."""
    if pattern.startswith(PREFIX):
        text = pattern[len(PREFIX) :]
        try:
            return text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogatepass")
    literal: list[str] = []
    for word in pattern.split("."):
        if word == "#":
            # ``a.#`` matches ``a``, too.
            return ".".join(literal).encode("utf-8", "surrogatepass")
        if word == "*":
            # With the dot: a key needs one more word to match.
            return "".join(each + "." for each in literal).encode("utf-8", "surrogatepass")
        literal.append(word)
    return ".".join(literal).encode("utf-8", "surrogatepass")
