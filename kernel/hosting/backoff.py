"""Back-off: how long to wait before the next attempt: exponential, with jitter, capped."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class BackoffOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How attempts to reconnect or restart are spaced."""

    first: Seconds = 0.1
    """Seconds before the second attempt; doubled for each one more."""
    most: Seconds = 30.0
    """Seconds between attempts at the most."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """The part of the wait that is left to chance, so that peers do not come back all at once."""


class Backoff:
    """The attempts of one engine or connection."""

    def __init__(self, options: BackoffOptions, seed: float | None = None) -> None:
        self._options = options
        self._chance = random.Random(seed)
        self.attempts: int = 0

    def next_wait(self) -> float:
        """Seconds to wait before the next attempt."""
        options = self._options
        full: float = min(options.first * 2.0 ** min(self.attempts, 62), options.most)
        self.attempts += 1
        return full * (1 - options.jitter * self._chance.random())

    def lasted(self, seconds: float) -> None:
        """What was attempted held for so long: begin anew if that was longer than the wait before it.

        What comes up and fails at once has not succeeded, however often it does so.
        """
        options = self._options
        if seconds > min(options.first * 2.0 ** min(max(self.attempts - 1, 0), 62), options.most):
            self.succeeded()

    def succeeded(self) -> None:
        """Begin anew with the shortest wait."""
        self.attempts = 0
