"""The figures of a channel."""

from __future__ import annotations

import msgspec


class ChannelStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A channel at one moment."""

    name: str
    waiting: int
    """Messages that were taken from the pipes and not yet received."""
    unconfirmed: int
    """Messages sent on confirming routes that are not confirmed yet."""
