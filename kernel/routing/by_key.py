"""By key: the pipes whose subscriptions match the envelope's key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from kernel.contracts.groups import split_group
from kernel.contracts.key_trie import KeyTrie
from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.routing.dealing import deal


class _Group:
    """The members of a subscription group for one pattern: each message goes to one of them, in turn."""

    __slots__ = ("members", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        """The whole subscription (``group:NAME:PATTERN``): ``Batch.group`` of what goes to a member."""
        self.members: list[Outlet] = []
        """A member that subscribed several times is here as often."""
        self.turn = 0

    def ready(self) -> list[Outlet]:
        """Return the members that are not full, or all when all are."""
        # Each once, in order: a member that subscribed twice does not get twice the share.
        members = list(dict.fromkeys(self.members))
        # If all are full, one of them gets the message all the same: the route defers it, or drops it as the
        # marks say. An empty answer would mean that nobody wants it.
        return [member for member in members if not member.full()] or members

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Distribute a batch over the members that are ready."""
        chosen, self.turn = deal(batch, self.ready(), self.turn)
        name = self.name
        return [(outlet, part.chosen_for(name)) for outlet, part in chosen]


_Value: TypeAlias = "Outlet | _Group"
"""What a pattern leads to."""


class ByKey:
    """Chooses the pipes whose readers have subscribed to the key.

    A pipe without a subscription gets nothing.
    """

    def __init__(self) -> None:
        # Without a lock: each port of the source engine has a router of its own, which only its thread uses.
        self._trie: KeyTrie[_Value] = KeyTrie()
        # Counted: who has subscribed twice to a pattern has to unsubscribe twice.
        self._patterns: dict[Outlet, Counter[str]] = {}
        self._groups: dict[str, _Group] = {}
        """By the whole subscription: ``group:NAME:PATTERN``."""

    def attach(self, outlet: Outlet, options: dict[str, Any]) -> None:
        """Add a pipe, which has no subscriptions yet."""
        self._patterns[outlet] = Counter()

    def detach(self, outlet: Outlet) -> None:
        """Remove a pipe and its subscriptions."""
        # ``elements`` yields each pattern as often as it was subscribed to: the trie counts, too.
        for pattern in self._patterns.pop(outlet).elements():
            self._remove(outlet, pattern)

    def choose(self, batch: Batch) -> Sequence[tuple[Outlet, Batch]]:
        """Give the whole batch to each pipe that subscribed to its key.

        Of the members of a group, each message goes to one.
        """
        return self._chosen(batch, self._trie.match(batch.envelope.key))

    def _chosen(self, batch: Batch, found: Iterable[_Value]) -> Sequence[tuple[Outlet, Batch]]:
        # The router of an earlier route has chosen a member of a group there. For the readers here that means
        # nothing.
        # Another batch and not a change of this one, which other routes and readers share.
        if batch.group:
            batch = batch.chosen_for("")
        # Without groups, which is usual, no value has to be looked at: each is a pipe.
        if self._groups:
            return self._with_groups(batch, found)
        return [(outlet, batch) for outlet in found]  # type: ignore[misc]  # there are no groups

    def _with_groups(self, batch: Batch, found: Iterable[_Value]) -> Sequence[tuple[Outlet, Batch]]:
        groups = [value for value in found if isinstance(value, _Group)]
        alone = [value for value in found if not isinstance(value, _Group)]
        chosen = [(outlet, batch) for outlet in alone]
        for group in groups:
            chosen += group.choose(batch)
        return chosen

    def peek(self, batch: Batch) -> Iterable[Outlet]:
        """Return the pipes that ``choose`` would return; of a group all members that are ready."""
        return self._ready(self._trie.match(batch.envelope.key))

    def _ready(self, found: Iterable[_Value]) -> Iterable[Outlet]:
        if not self._groups:
            return found  # type: ignore[return-value]  # there are no groups
        return [
            outlet for value in found for outlet in (value.ready() if isinstance(value, _Group) else (value,))
        ]

    def wants(self, batch: Batch) -> bool:
        """Whether anybody subscribed to its key."""
        # A group that is in the trie has a member (``_remove``), so no group has to be looked into.
        return bool(self._trie.match(batch.envelope.key))

    def subscribe(self, outlet: Outlet, pattern: str) -> None:
        """Add a subscription; with ``group:NAME:`` in front of the pattern, as a member of that group."""
        self._patterns[outlet][pattern] += 1
        name, wanted = split_group(pattern)
        if not name:
            self._add(pattern, outlet)
            return
        group = self._groups.get(pattern)
        if group is None:
            group = self._groups[pattern] = _Group(pattern)
            # One value in the trie for the whole group, so a look-up does not grow with its members.
            self._add(wanted, group)
        group.members.append(outlet)

    def unsubscribe(self, outlet: Outlet, pattern: str) -> None:
        """Take back a subscription; does nothing if there is none."""
        patterns = self._patterns[outlet]
        if patterns[pattern]:
            patterns[pattern] -= 1
            # Not kept at 0: subscriptions come and go.
            if not patterns[pattern]:
                del patterns[pattern]
            self._remove(outlet, pattern)

    def _remove(self, outlet: Outlet, pattern: str) -> None:
        name, wanted = split_group(pattern)
        if not name:
            self._take_back(pattern, outlet)
            return
        group = self._groups[pattern]
        # One entry for each subscription: the member stays while it has another one.
        group.members.remove(outlet)
        if not group.members:
            del self._groups[pattern]
            self._take_back(wanted, group)

    def _add(self, pattern: str, value: _Value) -> None:
        """Add what is chosen for a pattern."""
        self._trie.add(pattern, value)

    def _take_back(self, pattern: str, value: _Value) -> None:
        """Take back an ``_add``."""
        self._trie.remove(pattern, value)
