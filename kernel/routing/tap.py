"""Tap: every pipe gets every message, and its readers do not count.

For routes that only look.  A message that nobody else wants stays unwanted: its publisher hears so, if the
protocol has a way to say it.
"""

from __future__ import annotations

from kernel.contracts.message import Batch
from kernel.routing.fan_out import FanOut


class Tap(FanOut):
    """Chooses all pipes, and says that nobody is there."""

    def wants(self, batch: Batch) -> bool:
        """Return False: who only looks is no destination."""
        return False
