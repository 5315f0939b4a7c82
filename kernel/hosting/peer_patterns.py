"""Peer patterns: the subscriptions of a peer, through several conversations with it."""

from __future__ import annotations

from collections import Counter

from kernel.contracts.engine import Port


class PeerPatterns:
    """Makes a port's subscriptions follow those of a peer, which subscribes again in each conversation.

    The peer's subscriptions stay in force while it is away, so that messages wait for it.  If it subscribes
    to a pattern again, that counts once.  If it does not, the port unsubscribes when the conversation after
    that begins.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def begin(self, port: Port) -> None:
        """Begin a conversation."""
        # Left over: the peer did not subscribe to these again in the conversation that has ended.  No
        # protocol says when a peer has named all of its patterns, so its end is the first time to know
        # (docs/decisions/0022-subscriptions-travel.md).
        for pattern in self._before.elements():
            port.unsubscribe(pattern)
        self._before, self._now = self._now, Counter()

    def ask(self, port: Port, verb: str, pattern: str) -> None:
        """Apply ``subscribe`` or ``unsubscribe`` of the peer."""
        if verb == "subscribe":
            self._now[pattern] += 1
            # The port has this subscription since the conversation before.
            if self._before[pattern]:
                self._before[pattern] -= 1
            else:
                port.subscribe(pattern)
        # A peer may take back what it never subscribed to.  The port counts, so that must not reach it.
        elif self._now[pattern]:
            self._now[pattern] -= 1
            port.unsubscribe(pattern)
