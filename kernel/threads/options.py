"""What can be set of poll threads."""

from __future__ import annotations

from typing import Annotated

import msgspec


class PollThreadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A thread of its own that runs trio and hosts engines."""

    spin: Annotated[float, msgspec.Meta(ge=0, le=0.01)] = 0.0
    """Seconds to go on looking for more after a piece of work, before going to sleep.  60 microseconds
    (0.00006) bring a round trip from 142 to 56 us where each process has a core; where they share one it gets
    slower.  0: sleep at once."""
    cpus: tuple[int, ...] = ()
    """The processors that the thread may run on; empty: any.  Linux only."""
