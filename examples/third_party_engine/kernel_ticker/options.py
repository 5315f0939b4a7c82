"""What can be set of a ticker."""

from __future__ import annotations

from typing import Annotated

import msgspec


class TickerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message every so many seconds."""

    seconds: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Seconds between two messages."""
    text: str = "tick"
    """What a message says; its number follows."""
    key: str = ""
    """The key of every message."""
