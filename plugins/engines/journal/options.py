"""What can be set of the journal and of its replay."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plugins.engines.journal.moments import moment_of

Count = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class KeepOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention: which whole segments may be deleted, the oldest first.  Without any limit all is kept."""

    bytes: Count | None = None
    """Delete the oldest segments while the journal has more bytes than this."""
    seconds: Seconds | None = None
    """Delete segments whose newest row is older than this."""
    for_consumers: bool = True
    """Keep what a registered consumer has not read yet, whatever the limits say."""
    unread_only: bool = False
    """Delete what every registered consumer has read, as soon as there is one."""


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A feed that is kept on disk."""

    path: str
    """The journal's directory; made if it is not there."""
    fsync: Literal["never", "interval", "batch"] = "batch"
    """When rows are made to survive a loss of power: after every commit, every ``fsync_interval``, or when the
    system likes.  A route with ``confirm = true`` is confirmed after that; with ``never``, once the system has the bytes."""
    fsync_interval: Seconds = 1.0
    """Seconds between two, with ``fsync = "interval"``, unless 32 MiB are there before."""
    linger: Annotated[float, msgspec.Meta(ge=0)] = 0.005
    """Seconds that a message may wait for others to share its commit; 0: none waits."""
    batch_rows: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Commit without waiting when so many messages are there."""
    batch_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] = 16_777_216
    """The same for the bytes of their bodies.  A larger message has a commit of its own."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Of the rows; zstd makes text about a third, at the price of a processor."""
    roll_bytes: Count = 134_217_728
    """Begin a new segment when one has so many bytes."""
    roll_seconds: Seconds | None = None
    """Begin a new segment when one was begun so long ago."""
    keep: KeepOptions = KeepOptions()
    """What may be deleted."""
    min_free_bytes: Size = 67_108_864
    """Write nothing while the file system has fewer bytes free; the route says what happens meanwhile (``when_full``)."""
    retry: Seconds = 0.5
    """Seconds between two looks whether a full disk has room again."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A journal that is played back into the routes."""

    path: str
    """The journal's directory."""
    speed: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """1: as far apart as they arrived; 2: twice as fast; 0: as fast as the routes take them."""
    start: int | str = "earliest"
    """The first offset; or a moment (``"2026-11-21T12:00:00Z"``), ``"earliest"`` or ``"latest"``."""
    end: int | str = "latest"
    """The offset or moment to stop before; ``"latest"``: where the journal ended when the replay began."""
    follow: bool = False
    """Go on with what is added; the replay then has no end of its own."""
    match: tuple[str, ...] = ()
    """Only messages with a key that fits one of these patterns (as a route's ``match``)."""
    exchange: str | None = None
    """Only messages of this exchange."""
    engine: str | None = None
    """Only messages that this engine sent."""
    consumer: str | None = None
    """Keep the position under this name: the next replay goes on where everything was confirmed, and retention waits for it."""
    skip_damage: bool = True
    """Tell of damaged rows, and of those that retention has taken from a consumer, and go on; otherwise the engine fails there."""

    def __post_init__(self) -> None:
        for moment in (self.start, self.end):
            moment_of(moment)
