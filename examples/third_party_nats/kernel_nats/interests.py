"""What one client has subscribed to, and to which of its subscriptions a message goes."""

from __future__ import annotations

from collections.abc import Iterator

from kernel.contracts.groups import in_group
from kernel.contracts.key_trie import KeyTrie
from kernel.contracts.message import Batch
from kernel_nats.subjects import pattern_of


class Subscription:
    """One SUB of the client."""

    __slots__ = ("delivered", "interest", "limit", "sid")

    def __init__(self, sid: bytes, interest: Interest) -> None:
        self.sid = sid
        self.interest = interest
        self.delivered = 0
        self.limit: int | None = None
        """How many messages it gets altogether."""


class Interest:
    """One client's subscriptions with the same subject and queue group: one subscription at the routes."""

    __slots__ = ("group", "next", "pattern", "subscriptions")

    def __init__(self, pattern: str, group: str) -> None:
        self.pattern = pattern
        """Without the group."""
        self.group = group
        """The pattern as a member of the group; empty: it is in none."""
        self.subscriptions: list[Subscription] = []
        self.next = 0

    @property
    def asked(self) -> str:
        """What is said to the routes."""
        return self.group or self.pattern


class Interests:
    """The subscriptions of one client."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """Calls to make at the routes: (``subscribe`` or ``unsubscribe``, pattern).  The caller clears it."""
        self._by_sid: dict[bytes, Subscription] = {}
        self._by_pattern: dict[str, Interest] = {}
        self._trie: KeyTrie[Interest] = KeyTrie()

    def subscribe(self, sid: bytes, subject: str, group: str) -> None:
        """Add a subscription of the client.  A known sid changes nothing.

        Raises ``ValueError`` for an invalid subject or group.
        """
        pattern = pattern_of(subject)
        marked = in_group(pattern, group) if group else ""
        if sid in self._by_sid:
            return
        asked = marked or pattern
        interest = self._by_pattern.get(asked)
        if interest is None:
            interest = self._by_pattern[asked] = Interest(pattern, marked)
            self._trie.add(pattern, interest)
            self.asked.append(("subscribe", asked))
        subscription = self._by_sid[sid] = Subscription(sid, interest)
        interest.subscriptions.append(subscription)

    def unsubscribe(self, sid: bytes, limit: int | None) -> None:
        """The client wants no more, or no more than ``limit`` altogether.  An unknown sid changes nothing."""
        subscription = self._by_sid.get(sid)
        if subscription is None:
            return
        subscription.limit = limit
        if limit is None or subscription.delivered >= limit:
            self._remove(subscription)

    def of(self, batch: Batch) -> Iterator[tuple[bytes, Batch]]:
        """Give the sids that get a batch, or a part of it."""
        group = batch.group
        if group:  # it came for one queue group; the others and single subscribers get their own
            interest = self._by_pattern.get(group)
            if interest is not None:
                yield from self._deal(interest, batch)
            return
        for interest in self._trie.match(batch.envelope.key):
            if not interest.group:
                for subscription in tuple(interest.subscriptions):
                    yield subscription.sid, self._count(subscription, batch)

    def _deal(self, interest: Interest, batch: Batch) -> Iterator[tuple[bytes, Batch]]:
        """Each message to one of the members that this client has."""
        members = tuple(interest.subscriptions)
        if len(members) == 1:
            yield members[0].sid, self._count(members[0], batch)
            return
        for at in range(len(batch)):
            members = tuple(interest.subscriptions)
            if not members:
                return
            interest.next += 1
            member = members[interest.next % len(members)]
            yield member.sid, self._count(member, batch.slice(at, at + 1))

    def _count(self, subscription: Subscription, batch: Batch) -> Batch:
        """Return the part of a batch within a subscription's limit; remove the subscription at its limit."""
        limit = subscription.limit
        if limit is not None and subscription.delivered + len(batch) >= limit:
            batch = batch.slice(0, limit - subscription.delivered)
            self._remove(subscription)
        subscription.delivered += len(batch)
        return batch

    def _remove(self, subscription: Subscription) -> None:
        del self._by_sid[subscription.sid]
        interest = subscription.interest
        interest.subscriptions.remove(subscription)
        if not interest.subscriptions:
            del self._by_pattern[interest.asked]
            self._trie.remove(interest.pattern, interest)
            self.asked.append(("unsubscribe", interest.asked))
