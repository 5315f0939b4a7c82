"""By prefix: as by key, and messages without a key are routed by their first octets (ØMQ)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from kernel.contracts.key_trie import PREFIX
from kernel.contracts.message import Batch, batch_of
from kernel.contracts.prefix_table import PrefixTable
from kernel.contracts.router import Outlet
from kernel.routing.by_key import ByKey, _Value

_REMEMBERED = 16_384
"""Beginnings of messages whose readers are remembered.  When there are more, all are forgotten."""


class ByPrefix(ByKey):
    """Chooses the pipes whose readers have subscribed to the key, or to the beginning of the first part.

    Prefixes are compared octet by octet, so they need not be text.  Patterns of words are about keys only.
    """

    def __init__(self) -> None:
        super().__init__()
        # Not in the trie, which has a table for prefixes of text: a prefix of octets may end in the middle of
        # a character.
        self._octets: PrefixTable[bytes, _Value] = PrefixTable()
        """Those of prefixes.  ``_trie`` has those of words."""
        self._everything: dict[_Value, int] = {}
        """How often each reader has subscribed to the empty prefix."""
        self._longest = 0
        """Octets of the longest prefix.  More of a message would only fill the memory."""
        self._known: dict[bytes, tuple[_Value, ...]] = {}
        """Readers by the first octets of a message, until a subscription changes."""
        self._distinct: dict[tuple[_Value, ...], tuple[_Value, ...]] = {}
        self._by_text: dict[str, tuple[_Value, ...]] = {}
        """Readers by key, until a subscription changes."""

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give each pipe the messages that it subscribed to."""
        if batch.envelope.key:
            return self._chosen(batch, self._by_key(batch.envelope.key))
        bodies = batch.bodies
        if len(bodies) == 1:
            # Fewer steps for the one message of a call.
            first = (bodies[0] or (b"",))[0] if batch.multipart else bodies[0]
            head = first[: self._longest]
            # A view of memory that can be written has no hash, and any view would keep its whole buffer in
            # ``_known``.
            if type(head) is not bytes:
                head = bytes(head)
            one = self._known.get(head)
            if one is None:
                one = self._look_up(head)
            if self._groups or batch.group:
                return self._chosen(batch, one)
            return [(outlet, batch) for outlet in one]  # type: ignore[misc]  # there are no groups
        found = self._by_heads(batch)
        # The last one first: to compare all of them takes as long as to look them up.
        if found[-1] is found[0] and found.count(found[0]) == len(found):
            return self._chosen(batch, found[0])
        return self._divided(batch, found)

    def _divided(self, batch: Batch, found: Sequence[tuple[_Value, ...]]) -> Sequence[tuple[Outlet, Batch]]:
        """Give each reader its messages of a batch, in their order."""
        # Heads with the same readers have the same tuple (``_look_up``).
        bodies_of: defaultdict[int, list[Any]] = defaultdict(list)
        # By identity, so that no tuple is hashed for each message. All of them stay in ``found`` meanwhile,
        # so that no other object gets one of these numbers.
        numbers = list(map(id, found))
        for body, number in zip(batch.bodies, numbers, strict=True):
            bodies_of[number].append(body)
        values_of = dict(zip(numbers, found, strict=True))
        chosen: list[tuple[Outlet, Batch]] = []
        several: dict[_Value, list[Any]] = {}
        times = Counter(chain.from_iterable(values_of.values()))
        for number, bodies in bodies_of.items():
            # Readers of the same prefixes share a batch.
            alone = [value for value in values_of[number] if times[value] == 1]
            if alone:
                chosen += self._chosen(_part(batch, bodies), alone)
        # Readers of several prefixes get a batch of their own, so that they have the order of this one.
        if max(times.values(), default=0) > 1:
            for body, values in zip(batch.bodies, found, strict=True):
                for value in values:
                    if times[value] > 1:
                        several.setdefault(value, []).append(body)
            for value, bodies in several.items():
                part = batch if len(bodies) == len(found) else _part(batch, bodies)
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

    def all_to_all(self) -> bool:
        """Whether every reader has subscribed to the empty prefix, and none as a member of a group."""
        # A reader that has everything and is in a group as well gets what is chosen for the group once more.
        return not self._groups and all(self._everything.values())

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe, which has no subscriptions yet."""
        super().attach(outlet, options)
        self._everything[outlet] = 0

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe and its subscriptions."""
        super().detach(outlet)
        del self._everything[outlet]

    def _values(self, batch: Batch) -> tuple[_Value, ...]:
        if batch.envelope.key:
            return self._by_key(batch.envelope.key)
        return tuple(dict.fromkeys(value for values in self._by_heads(batch) for value in values))

    def _by_key(self, key: str) -> tuple[_Value, ...]:
        found = self._by_text.get(key)
        if found is None:
            # A key is compared in UTF-8, as the prefixes are. The trie remembers its own answers only, so
            # what both give is remembered here.
            values = [*self._octets.find(_octets_of(key)), *self._trie.match(key)]
            if len(self._by_text) >= _REMEMBERED:
                self._by_text.clear()
            found = self._by_text[key] = _each_once(values)
        return found

    def _by_heads(self, batch: Batch) -> list[tuple[_Value, ...]]:
        """Return what is chosen for each message without a key."""
        longest = self._longest
        firsts: Iterable[Any] = batch.bodies
        if batch.multipart:
            firsts = [parts[0] if parts else b"" for parts in batch.bodies]
        heads = [first[:longest] for first in firsts]
        if set(map(type, heads)) != {bytes}:
            heads = list(map(bytes, heads))
        found = list(map(self._known.get, heads))
        # Also where nobody has subscribed: to look for None takes four times as long.
        if not all(found):
            found = [
                self._look_up(head) if values is None else values
                for head, values in zip(heads, found, strict=True)
            ]
        return found  # type: ignore[return-value]  # None is no longer in it

    def _look_up(self, head: bytes) -> tuple[_Value, ...]:
        values = self._octets.find(head)
        # Mostly it is empty: subscriptions of ØMQ are prefixes.
        if self._trie:
            # Readers of all keys, such as ``#``.
            values += self._trie.match("")
        found = _each_once(values)
        # In the middle of a batch two equal answers may be two objects after this. ``_divided`` takes their
        # readers for those of several prefixes then, and the order is kept.
        if len(self._known) >= _REMEMBERED:
            self._forget()
        # The same object for the same readers: batches are divided by it.
        found = self._known[head] = self._distinct.setdefault(found, found)
        return found

    def _forget(self) -> None:
        self._known.clear()
        self._distinct.clear()
        self._by_text.clear()

    def _add(self, pattern: str, value: _Value) -> None:
        self._forget()
        # A group is not in ``_everything``: each message is for one of its members only.
        if pattern == PREFIX and value in self._everything:
            self._everything[value] += 1
        if pattern.startswith(PREFIX):
            self._octets.add(_octets_of(pattern[len(PREFIX) :]), value)
            # Heads that were remembered were cut to the old length. They have been forgotten above.
            self._longest = self._octets.longest()
        else:
            super()._add(pattern, value)

    def _take_back(self, pattern: str, value: _Value) -> None:
        self._forget()
        if pattern == PREFIX and value in self._everything:
            self._everything[value] -= 1
        if pattern.startswith(PREFIX):
            self._octets.remove(_octets_of(pattern[len(PREFIX) :]), value)
            self._longest = self._octets.longest()
        else:
            super()._take_back(pattern, value)


def _part(batch: Batch, bodies: list[Any]) -> Batch:
    # Bodies of one width have it in any choice of them: nothing has to be measured.
    if batch.width:
        return Batch(bodies, batch.width * len(bodies), batch.envelope, width=batch.width)
    return batch_of(bodies, batch.envelope, multipart=batch.multipart)


def _each_once(values: list[_Value]) -> tuple[_Value, ...]:
    """Several patterns of one reader may match."""
    return tuple(values if len(values) < 2 else dict.fromkeys(values))


def _octets_of(text: str) -> bytes:
    """Return the octets of a text, in which lone surrogates stand for octets that are no text."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # A surrogate that stands for no octet. Such a text cannot come from octets, and only has to differ
        # from others.
        return text.encode("utf-8", "surrogatepass")
