"""Water marks: how much a pipe may hold, and when a writer that had to wait may go on."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

WhenFull = Literal["block", "drop-newest", "drop-oldest"]

Positive = Annotated[int, msgspec.Meta(ge=1)]


class WaterMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one pipe, and what becomes of a message that meets a full one."""

    high: Positive = 32_768
    """Messages that may wait in the pipe."""
    high_bytes: Positive = 64 * 1024 * 1024
    """Bytes of bodies that may wait in the pipe."""
    when_full: WhenFull = "block"
    """``block``: stop reading the source; ``drop-newest`` or ``drop-oldest``: count and go on."""
    stall_timeout: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    """Seconds that ``block`` waits for a full destination that takes nothing while others could go on; and that
    what a dead destination had not confirmed waits for its return when others of its engine are left."""

    @property
    def low(self) -> int:
        """A writer that waits is woken at this many messages."""
        return self.high // 2

    @property
    def low_bytes(self) -> int:
        """A writer that waits is woken at this many bytes."""
        return self.high_bytes // 2

    @property
    def bare_limit(self) -> int:
        """The largest body, in bytes, that may travel outside a batch, where bytes are not counted.

        With every place taken by a body of this size the pipe holds just ``high_bytes``.
        """
        return self.high_bytes // self.high
