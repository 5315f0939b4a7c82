"""The options of the kinds ``journal`` and ``journal-replay``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from plugins.engines.journal.moments import moment_of
from plugins.protocols.journal_format.names import why_no_journal

Count = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class KeepOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention: which whole segments may be deleted, the oldest first.

    Without any limit nothing is deleted.
    """

    bytes: Count | None = None
    """Delete the oldest segments while the journal has more bytes than this."""
    seconds: Seconds | None = None
    """Delete segments whose newest row is older than this."""
    for_consumers: bool = True
    """Keep segments that a registered consumer has not read completely, whatever the limits say."""
    unread_only: bool = False
    """Delete segments that all registered consumers have read.  Without any consumer nothing is deleted."""


class JournalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stores messages on disk."""

    path: str
    """The journal's directory; created if it does not exist."""
    fsync: Literal["never", "interval", "batch"] = "batch"
    """When rows are synchronised, to survive a power failure: after every commit, every ``fsync_interval``,
    or never by the journal.  A route with ``confirm = true`` is confirmed after that; with ``never``, when
    the operating system has the bytes."""
    fsync_interval: Seconds = 1.0
    """Seconds between two synchronisations with ``fsync = "interval"``; after 32 MiB it is done earlier."""
    linger: Annotated[float, msgspec.Meta(ge=0)] = 0.005
    """Seconds that a message may wait for others to share its commit; 0: it does not wait.  Publishers that
    all wait for a confirmation do not wait for more either."""
    batch_rows: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    """Commit without waiting when there are this many messages."""
    batch_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] = 16_777_216
    """Commit without waiting when their bodies have this many bytes.  A larger message has its own commit."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Compression of the rows; zstd reduces text to about a third, and costs processor time."""
    roll_bytes: Count = 134_217_728
    """Begin a new segment when the current one has this many bytes."""
    roll_seconds: Seconds | None = None
    """Begin a new segment when the current one is this old."""
    keep: KeepOptions = KeepOptions()
    """Retention: what may be deleted."""
    archive: str | None = None
    """Where segments are moved that are not written any more: the address of a folder that pyarrow has a file
    system for (``s3://bucket/folder``, ``gs://``, ``abfss://``, ``hdfs://``, ``file:///``).  They are
    compacted before.  Readers of the directory find them there; those of other computers read the address."""
    min_free_bytes: Size = 67_108_864
    """Write nothing while the file system has fewer free bytes; meanwhile the route's ``when_full``
    applies."""
    retry: Seconds = 0.5
    """Seconds between two attempts to write to a full disk."""

    def __post_init__(self) -> None:
        if self.archive is not None:
            _check_archive(self.archive)
        _fix_path(self)

    def folders(self) -> Iterator[tuple[str, str]]:
        """``WritesFolders``: the journal's directory."""
        yield "path", self.path


def _fix_path(options: JournalOptions | ReplayOptions) -> None:
    # A program that changes its working directory later means the same folder.
    msgspec.structs.force_setattr(options, "path", os.path.abspath(options.path))


def _check_archive(address: str) -> None:
    parts = urlsplit(address)
    if not parts.scheme or not (parts.netloc or parts.path.strip("/")):
        raise ValueError(
            f"archive is {address!r}; it must be the address of a folder, such as s3://bucket/folder or file:///mnt/far"
        )
    if "@" in parts.netloc:
        raise ValueError(
            "archive: leave the password out of the address, since it is written into files and messages. For S3, "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use the files of the provider's tools"
        )


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends the messages of a journal into the routes."""

    path: str
    """The journal's directory.  It has to be there, unless ``follow`` is set or an engine of this file
    writes it."""
    speed: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """1: at the pace at which they were received; 2: twice as fast; 0: as fast as the routes take them."""
    start: int | str = "earliest"
    """The first offset; or a time (``"2026-11-21T12:00:00Z"``), ``"earliest"`` or ``"latest"``."""
    end: int | str = "latest"
    """The offset or time to stop before; ``"latest"``: the journal's end when the replay starts."""
    follow: bool = False
    """Continue with messages that are added later; the replay then runs until it is stopped."""
    match: tuple[str, ...] = ()
    """Only messages whose key matches one of these patterns (as a route's ``match``)."""
    exchange: str | None = None
    """Only messages of this exchange."""
    engine: str | None = None
    """Only messages that this engine sent."""
    into: str | None = None
    """The exchange that all messages get; without it, each has the one to which it was published."""
    consumer: str | None = None
    """Store the position under this name: the next replay continues after the last confirmed message, and
    retention keeps everything after it."""
    skip_damage: bool = True
    """Report damaged rows, and rows that retention has deleted before a consumer read them, and continue;
    otherwise the engine fails there."""

    def __post_init__(self) -> None:
        # A wrong time is reported when the topology is read, and not when the engine starts.
        for moment in (self.start, self.end):
            moment_of(moment)
        _fix_path(self)

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """``NeedsFiles``: a journal that is not there.  One that is followed may be begun later."""
        why = "" if self.follow else why_no_journal(Path(self.path))
        if why:
            yield "path", why
