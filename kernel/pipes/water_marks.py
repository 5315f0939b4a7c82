"""Water marks: how much a pipe may hold, and when a writer that waits may go on."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

WhenFull = Literal["block", "drop-newest", "drop-oldest"]

Positive = Annotated[int, msgspec.Meta(ge=1)]


class WaterMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one pipe, and what happens to a message that finds it full."""

    high: Positive = 32_768
    """Messages that may wait in the pipe."""
    high_bytes: Positive = 64 * 1024 * 1024
    """Bytes of bodies that may wait in the pipe."""
    when_full: WhenFull = "block"
    """``block``: stop reading the source; ``drop-newest``, ``drop-oldest``: drop a message, count it and go
    on."""
    stall_timeout: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    """Seconds that ``block`` waits for a full destination that takes nothing while others could go on.  Also
    the seconds that unconfirmed messages of a closed port wait for a new port of its engine, if the engine
    has other ports."""

    @property
    def low(self) -> int:
        """A writer that waits goes on at this number of messages."""
        # Half, not just below ``high``: a writer that is woken can then work on a large batch, and the two
        # threads do not wake each other for each message.
        return self.high // 2

    @property
    def low_bytes(self) -> int:
        """A writer that waits goes on at this number of bytes."""
        return self.high_bytes // 2

    @property
    def bare_limit(self) -> int:
        """The largest bare body, in bytes.  The bytes of bare bodies are not counted.

        A pipe that is full of bare bodies of this size holds ``high_bytes``.
        """
        return self.high_bytes // self.high
