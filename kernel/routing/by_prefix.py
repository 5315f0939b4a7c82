"""By prefix: as by key, and messages without a key are chosen for by the octets that they begin with (ØMQ)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernel.contracts.key_trie import PREFIX, KeyTrie
from kernel.contracts.message import Batch, batch_of
from kernel.contracts.router import Outlet
from kernel.routing.by_key import ByKey, _Value


class ByPrefix(ByKey):
    """Chooses the pipes whose readers have subscribed to the key, or to the beginning of the first part.

    Prefixes are compared octet by octet, so they need not be text.  Patterns of words are about keys only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._octets: KeyTrie[_Value] = KeyTrie()
        """Those of prefixes, with one character for each octet.  ``_trie`` has those of words."""

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give each pipe the messages that it subscribed to."""
        if batch.envelope.key:
            return self._chosen(batch, self._by_key(batch.envelope.key))
        found = self._by_heads(batch)
        if len(found) == 1 or found.count(found[0]) == len(found):
            return self._chosen(batch, found[0])
        return self._divided(batch, found)

    def _divided(self, batch: Batch, found: Sequence[tuple[_Value, ...]]) -> Sequence[tuple[Outlet, Batch]]:
        """Give each reader its messages of a batch, in their order."""
        bodies_of: dict[_Value, list[Any]] = {}
        for body, values in zip(batch.bodies, found, strict=True):
            for value in values:
                bodies_of.setdefault(value, []).append(body)
        chosen: list[tuple[Outlet, Batch]] = []
        count = len(batch.bodies)
        for value, bodies in bodies_of.items():
            part = batch
            if len(bodies) < count:
                part = batch_of(bodies, batch.envelope, multipart=batch.multipart)
            chosen += self._chosen(part, (value,))
        return chosen

    def peek(self, batch: Batch) -> Iterable[Outlet]:
        """Return the pipes that ``choose`` would return; of a group all members that are ready."""
        return self._ready(self._values(batch))

    def wants(self, batch: Batch) -> bool:
        """Whether anybody subscribed to some of it."""
        # Without a key the envelope alone does not decide.
        if not batch.envelope.key and not batch.bodies:
            return True
        return bool(self._values(batch))

    def _values(self, batch: Batch) -> tuple[_Value, ...]:
        if batch.envelope.key:
            return self._by_key(batch.envelope.key)
        return tuple(dict.fromkeys(value for values in self._by_heads(batch) for value in values))

    def _by_key(self, key: str) -> tuple[_Value, ...]:
        found = self._octets.match(_one_for_each_octet(key))
        return tuple(dict.fromkeys((*found, *self._trie.match(key)))) if self._trie else found

    def _by_heads(self, batch: Batch) -> list[tuple[_Value, ...]]:
        """Return what is chosen for each message without a key."""
        longest = self._octets.longest_prefix()
        # ``str`` takes any buffer.  More of a message than a prefix has would only fill the trie's memory.
        heads: Iterable[Any] = batch.bodies
        if batch.multipart:
            heads = (parts[0] if parts else b"" for parts in batch.bodies)
        match = self._octets.match
        found = [match(str(head[:longest], "latin-1")) for head in heads]
        if self._trie:
            # Readers of all keys, such as ``#``.
            everything = self._trie.match("")
            found = [tuple(dict.fromkeys((*each, *everything))) for each in found]
        return found

    def _add(self, pattern: str, value: _Value) -> None:
        if pattern.startswith(PREFIX):
            self._octets.add(_one_for_each_octet(pattern), value)
        else:
            super()._add(pattern, value)

    def _take_back(self, pattern: str, value: _Value) -> None:
        if pattern.startswith(PREFIX):
            self._octets.remove(_one_for_each_octet(pattern), value)
        else:
            super()._take_back(pattern, value)


def _one_for_each_octet(text: str) -> str:
    """Return a text with a character for each octet of this one; lone surrogates stand for octets that are no text."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("latin-1")
