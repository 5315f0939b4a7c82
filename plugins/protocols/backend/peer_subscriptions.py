"""PeerSubscriptions: what a peer has subscribed to, with limits on number and size."""

from __future__ import annotations

from collections import Counter

from kernel.contracts.errors import RemoteProtocolError


class PeerSubscriptions:
    """Counts the patterns of a peer and their bytes, and enforces the limits."""

    __slots__ = ("_bytes", "_most", "_most_bytes", "_number", "_patterns", "news")

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._number = 0
        self._bytes = 0
        self._patterns: Counter[str] = Counter()
        self.news: list[tuple[str, str]] = []
        """("subscribe" or "unsubscribe", pattern).  The host reads and removes the entries."""

    def subscribe(self, payload: bytes) -> None:
        """Process the payload of a SUBSCRIBE.  Raises ``RemoteProtocolError`` beyond a limit."""
        pattern = _pattern(payload)
        # Counted before the check: the connection ends at the limit, so the counts need not be right
        # afterwards.
        self._number += 1
        self._bytes += len(payload)
        if self._number > self._most:
            raise RemoteProtocolError(f"{self._number} subscriptions; max_subscriptions is {self._most}")
        if self._bytes > self._most_bytes:
            raise RemoteProtocolError(
                f"subscriptions of {self._bytes} bytes; subscription_bytes is {self._most_bytes}"
            )
        self._patterns[pattern] += 1
        self.news.append(("subscribe", pattern))

    def unsubscribe(self, payload: bytes) -> None:
        """Process the payload of an UNSUBSCRIBE."""
        pattern = _pattern(payload)
        self.news.append(("unsubscribe", pattern))
        count = self._patterns.get(pattern, 0)
        # A pattern that was never subscribed to must not free anything.
        if count:
            self._number -= 1
            self._bytes -= len(payload)
            self._patterns[pattern] = count - 1
        if count == 1:
            del self._patterns[pattern]


def _pattern(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a subscription that is not UTF-8") from None
