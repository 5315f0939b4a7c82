"""Peer patterns: what a peer has subscribed to, over one conversation after the other."""

from __future__ import annotations

from collections import Counter

from kernel.contracts.engine import Port


class PeerPatterns:
    """Keeps a port's subscriptions in step with a peer that subscribes anew in each conversation.

    What a peer had subscribed to stays in force while it is away, so that messages wait for it.  What it subscribes to
    again counts once; what it does not is taken back when the conversation after that begins.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def begin(self, port: Port) -> None:
        """A conversation begins."""
        for pattern in self._before.elements():
            port.unsubscribe(pattern)
        self._before, self._now = self._now, Counter()

    def ask(self, port: Port, verb: str, pattern: str) -> None:
        """The peer says ``subscribe`` or ``unsubscribe``."""
        if verb == "subscribe":
            self._now[pattern] += 1
            if self._before[pattern]:
                self._before[pattern] -= 1
            else:
                port.subscribe(pattern)
        elif self._now[pattern]:  # else it was never subscribed to
            self._now[pattern] -= 1
            port.unsubscribe(pattern)
