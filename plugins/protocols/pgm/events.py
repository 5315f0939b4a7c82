"""Events of a receiver. Nothing is lost, found or changed without one."""

from __future__ import annotations

from enum import Enum

import msgspec

from plugins.protocols.pgm.packets import tsi_text


class What(Enum):
    """Kinds of events."""

    APPEARED = "source appeared"
    LATE_JOIN = "late join"
    GAP = "gap"
    RECOVERED = "recovered"
    LOST = "lost"
    RESET = "source reset"
    FINISHED = "source finished"
    GONE = "source gone"
    DUPLICATE = "duplicate GSI"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a session."""

    what: What
    tsi: bytes
    first: int | None = None
    """Of ``gap``, ``recovered`` and ``lost``: the first sequence number.

    Of ``late join``: where reception begins.
    """
    last: int | None = None
    """None for ``lost``: nobody knows how many packets the source has sent after the last one that was heard.
    """
    detail: str = ""

    def __str__(self) -> str:
        numbers = (
            ""
            if self.first is None
            else f" {self.first}"
            if self.last is None
            else f" {self.first}-{self.last}"
        )
        return f"{self.what.value}{numbers} of {tsi_text(self.tsi)}" + (
            f": {self.detail}" if self.detail else ""
        )
