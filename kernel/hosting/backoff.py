"""Back-off: how long to wait before the next attempt.

The wait grows exponentially, with jitter, up to a maximum.
"""

from __future__ import annotations

import random
from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class BackoffOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The waits between attempts to reconnect or to restart."""

    first: Seconds = 0.1
    """Seconds before the second attempt; the wait doubles with each further attempt."""
    most: Seconds = 30.0
    """The longest wait between attempts, in seconds."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """The part of the wait that is random, so that peers do not all come back at the same time."""


class Backoff:
    """The attempts of one engine or connection."""

    def __init__(self, options: BackoffOptions, seed: float | None = None) -> None:
        self._options = options
        self._chance = random.Random(seed)
        self.attempts: int = 0

    def next_wait(self) -> float:
        """Count an attempt; return the seconds to wait before it."""
        options = self._options
        # ``2.0 ** 1024`` raises OverflowError, and some hours of attempts would lead there.
        full: float = min(options.first * 2.0 ** min(self.attempts, 62), options.most)
        self.attempts += 1
        # The random part is taken off and never added, so that no wait is longer than ``most``.
        return full * (1 - options.jitter * self._chance.random())

    def lasted(self, seconds: float) -> None:
        """Take notice of how long an attempt lasted.

        If it was longer than the wait before it, it counts as a success.

        Something that starts and fails at once has not succeeded, however often it does so.
        """
        options = self._options
        # ``next_wait`` has counted this attempt: the wait before it was that of one attempt less.
        if seconds > min(options.first * 2.0 ** min(max(self.attempts - 1, 0), 62), options.most):
            self.succeeded()

    def succeeded(self) -> None:
        """Begin again with the shortest wait."""
        self.attempts = 0
