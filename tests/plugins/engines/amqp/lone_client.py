"""A session's client without a socket: what a test reads or sets instead of a connection."""

from __future__ import annotations

from collections.abc import Callable

from plugins.engines.broker.public import Window

WINDOW_BYTES = 512 * 1024


class LoneClient:
    """Enough of ``plugins.engines.amqp.session.SessionClient``."""

    def __init__(self) -> None:
        self.window = Window(WINDOW_BYTES)
        self.published = False
        self.messages_in = self.messages_out = 0

    def is_busy(self) -> None:
        """The test looks after every step."""

    def write_after(self, mark: int) -> None:
        """The test's broker has no disk."""

    def moves(self, vhost: str) -> bool:
        return False

    def refuse_login(self, name: str, how: str, answer: Callable[[], None]) -> None:
        """Nobody waits here."""
        answer()

    def refill(self, now: float) -> None:
        """Everything was written."""
        self.window.refill(WINDOW_BYTES, now)
