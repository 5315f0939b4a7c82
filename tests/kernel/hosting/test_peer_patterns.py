"""What a peer has subscribed to, when it comes back."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kernel.hosting.peer_patterns import PeerPatterns


class Subscribed:
    """As much of a port as is used."""

    def __init__(self) -> None:
        self.patterns: Counter[str] = Counter()

    def subscribe(self, pattern: str) -> None:
        self.patterns[pattern] += 1

    def unsubscribe(self, pattern: str) -> None:
        self.patterns[pattern] -= 1
        self.patterns += Counter()  # drops what is at 0


def test_a_peer_that_subscribes_again_counts_once() -> None:
    port: Any = Subscribed()
    patterns = PeerPatterns()
    for _ in range(3):
        patterns.begin(port)
        patterns.ask(port, "subscribe", "k")
        assert port.patterns == {"k": 1}
    patterns.ask(port, "unsubscribe", "k")
    assert not port.patterns


def test_what_it_does_not_subscribe_to_again_stays_while_it_is_away_and_goes_afterwards() -> None:
    port: Any = Subscribed()
    patterns = PeerPatterns()
    patterns.begin(port)
    patterns.ask(port, "subscribe", "old")
    patterns.begin(port)
    patterns.ask(port, "subscribe", "new")
    assert port.patterns == {"old": 1, "new": 1}
    patterns.begin(port)
    assert port.patterns == {"new": 1}


def test_what_was_never_subscribed_to_is_not_taken_back() -> None:
    port: Any = Subscribed()
    port.subscribe("somebody else's")
    patterns = PeerPatterns()
    patterns.begin(port)
    patterns.ask(port, "unsubscribe", "somebody else's")
    assert port.patterns == {"somebody else's": 1}
