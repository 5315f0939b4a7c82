"""Quota: how many messages a consumer takes before it has finished, over all its connections."""

from __future__ import annotations

from typing import Literal

import msgspec


class Quota(msgspec.Struct):
    """Counts acknowledged messages: what was not acknowledged before a loss comes again, and counts once."""

    limit: int | Literal["queue-length"] | None = None
    """``queue-length``: as many as wait when the consumer begins; None: no limit."""
    acknowledged: int = 0

    @property
    def finished(self) -> bool:
        """Whether all of it is done."""
        return isinstance(self.limit, int) and self.acknowledged >= self.limit
