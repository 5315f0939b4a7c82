"""Phase one of writing: each task writes its rows into a staged file, which no reader sees yet.

The files are ``staged/PRODUCER/EPOCH-PARTITION-RANDOM.arrows`` in the journal's directory, or in the query's
checkpoint.  Spark may run a task twice, after a failure or at the same time (speculation).  Each attempt
writes a file with another random name, so that two attempts never write the same one.  Spark tells the driver
of one attempt for each task, and only files whose names reach the driver are published.  The others are
deleted with their epoch.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from plugins.apis.spark.messages import PREPARED, prepare
from plugins.protocols.journal_format.errors import JournalError
from plugins.protocols.journal_format.names import FILE_MODE

_FOLDER = "staged"
_FILE = b"file"
"""The key of the file's name in the metadata of its schema."""
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of a stream of Arrow's IPC format."""
_NAME = re.compile(r"(\d{20})-(\d+)-.*\.arrows")


def stage(folder: Path, producer: str, epoch: int, partition: int, batches: Iterable[Any]) -> str | None:
    """Write rows into a new file and synchronise it; return its name, or None if there were no rows."""
    name = f"{epoch:020d}-{partition:06d}-{uuid.uuid4().hex}.arrows"
    path = _path(folder, producer, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    try:
        # With the permissions of a journal's files, since it has the same rows; the folder
        # may be everybody's.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with (
            open(descriptor, "wb") as file,
            ipc.new_stream(file, PREPARED.with_metadata({_FILE: name})) as stream,
        ):
            for batch in batches:
                # ``prepare`` needs at least one row.
                if batch.num_rows:
                    stream.write_batch(prepare(batch, f"epoch {epoch}, partition {partition}", rows))
                    rows += batch.num_rows
            # Before the driver records the file's name: the record must not survive a power failure without
            # the file.
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if rows:
        return name
    path.unlink()
    return None


def staged(folder: Path, producer: str, name: str) -> Iterator[Any]:
    """Yield the batches of a staged file.

    Raises ``JournalError``, before the first batch, if the file is missing, cut or another one's.
    """
    path = _path(folder, producer, name)
    try:
        # Mapped, not read: the driver copies the rows only once, into the journal's buffers.
        with pa.memory_map(str(path)) as file:
            # A stream without its end is one that was cut, and a reader would take the cut for the end.
            end = file.size() - len(_END)
            if end < 0 or file.read_at(len(_END), end) != _END:
                raise pa.ArrowInvalid("it is cut")
            stream = ipc.open_stream(file)
            # An older version does not write the name.
            if (stream.schema.metadata or {}).get(_FILE, name.encode()) != name.encode():
                raise pa.ArrowInvalid("it is another file under this name")
            yield from stream
    except (OSError, pa.ArrowInvalid) as error:
        raise JournalError(
            f"{path}: rows that {producer!r} has staged and not yet written cannot be read: {error}"
        ) from error


def forget(folder: Path, producer: str, names: Iterable[str]) -> None:
    """Delete files that are not to be published."""
    for name in names:
        _path(folder, producer, name).unlink(missing_ok=True)


def forget_epochs(folder: Path, producer: str, epoch: int) -> None:
    """Delete all files of a published epoch and of earlier ones, also those of repeated tasks."""
    ours = folder / _FOLDER / producer
    for path in ours.glob("*.arrows") if ours.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) <= epoch:
            path.unlink(missing_ok=True)


def forget_staged(folder: Path, producer: str) -> None:
    """Delete the folder of a producer that will not write again."""
    shutil.rmtree(folder / _FOLDER / producer, ignore_errors=True)


def partition_of(name: str) -> int:
    """Return the partition number in the name of a staged file."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is not the name of a staged file (EPOCH-PARTITION-RANDOM.arrows)")
    return int(match[2])


def _path(folder: Path, producer: str, name: str) -> Path:
    return folder / _FOLDER / producer / name
