"""The options of poll threads and of processes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kernel.hosting.backoff import BackoffOptions


class PollThreadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A thread of its own that runs trio and hosts engines."""

    spin: Annotated[float, msgspec.Meta(ge=0, le=0.01)] | None = None
    """Seconds for which the thread looks for more work before every sleep.  0: it sleeps at once.  If it is
    not set, it looks for 60 microseconds, and only while that pays and there is a core for it: one that
    sleeps takes some 20 microseconds to wake.  A thread that always looks keeps its core busy, and takes it
    from others."""
    cpus: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()
    """The processors that the thread may run on; empty: any.  Linux only."""


class ProcessOptions(PollThreadOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A process of its own, with one thread that runs trio and hosts engines."""

    restart: BackoffOptions = BackoffOptions()
    """The waits before the process is started again when it has ended."""
    start_timeout: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """Seconds that the process may take until it hosts engines.  Then it is ended, and started again."""
