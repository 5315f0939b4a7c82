"""PUSH, PULL, DEALER and PAIR: each message goes to one peer, and messages of all peers are taken in turn."""

from __future__ import annotations

from typing import ClassVar

from plugins.apis.sockets.errors import NotSupported
from plugins.apis.sockets.patterns.base import Pattern, ReceivingPattern


class Push(Pattern):
    """PUSH."""

    kind: ClassVar[str] = "PUSH"
    takes: ClassVar[bool] = False
    router: str = "round-robin"

    def before_receiving(self) -> None:
        """Refuse: nothing comes."""
        raise NotSupported("PUSH does not receive; PULL does")


class Pull(ReceivingPattern):
    """PULL."""

    kind: ClassVar[str] = "PULL"
    instead: ClassVar[str] = "PUSH does"


class Dealer(Pattern):
    """DEALER."""

    kind: ClassVar[str] = "DEALER"
    lends: ClassVar[bool] = True
    router: str = "round-robin"


class Pair(Pattern):
    """PAIR."""

    kind: ClassVar[str] = "PAIR"
    lends: ClassVar[bool] = True
