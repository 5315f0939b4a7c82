"""PUSH, PULL, DEALER and PAIR: each message goes to one peer, and messages of all peers are taken in turn."""

from __future__ import annotations

from typing import ClassVar

from kernel.contracts.message import Batch, Buffer
from plugins.apis.sockets.errors import NotSupported
from plugins.apis.sockets.patterns.base import Pattern


class Push(Pattern):
    """PUSH."""

    kind: ClassVar[str] = "PUSH"
    takes: ClassVar[bool] = False
    router: ClassVar[str] = "round-robin"

    def before_receiving(self) -> None:
        """Refuse: nothing comes."""
        raise NotSupported("PUSH does not receive; PULL does")


class Pull(Pattern):
    """PULL."""

    kind: ClassVar[str] = "PULL"
    gives: ClassVar[bool] = False

    def before_sending(self) -> None:
        """Refuse."""
        raise NotSupported("PULL does not send; PUSH does")

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Refuse."""
        self.before_sending()

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        self.before_sending()

    def may_send(self) -> bool:
        """Return False."""
        return False


class Dealer(Pattern):
    """DEALER."""

    kind: ClassVar[str] = "DEALER"
    router: ClassVar[str] = "round-robin"


class Pair(Pattern):
    """PAIR."""

    kind: ClassVar[str] = "PAIR"
