"""``df.write`` and ``df.writeStream``: tasks stage their rows, then the driver publishes them.

Two phases, because Spark may run a task several times but commits an epoch in one place:

1. Each task writes its rows into a staged file (``staging.py``) and returns the file's name.  No reader sees
   these rows.
2. Spark calls ``commit`` in the driver's Python process with the names of one attempt of each task, and the
   driver publishes the files in the order of the tasks.  If a task has failed for good, it calls ``abort``.

The function ``publish(folder, producer, epoch, files)`` depends on the target: ``publishing.py`` for a
journal (exactly once), ``bus_writer.py`` for a running kernel (at least once).  Both identify what was
published by a producer and an epoch.  A streaming query has an id in its checkpoint and numbers its
micro-batches, so that a repeated micro-batch is recognised after a restart.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import WriteOptions, local_path
from plugins.apis.spark.producers import forget_producer, last_epoch
from plugins.apis.spark.staging import forget, forget_staged, stage
from plugins.apis.spark.workers import freeze_loaded

Publish: TypeAlias = Callable[[Path, str, int, Sequence[str]], object]


@dataclass
class Staged(WriterCommitMessage):
    """The message of a task to the driver: the name of its staged file; None if it had no rows."""

    producer: str
    file: str | None


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream.

    The producer is the query's id in its checkpoint; the epoch is the micro-batch's number.
    """

    def __init__(self, folder: Path, publish: Publish) -> None:
        self.folder = folder
        self.publish = publish

    def write(self, iterator: Iterator[Any]) -> Staged:
        # Spark does not tell a writer which query and which micro-batch it is for, but its tasks have both as
        # local properties.
        task = task_context()
        producer = task.getLocalProperty("sql.streaming.queryId") or ""
        epoch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        written = Staged(producer, stage(self.folder, producer, epoch, task.partitionId(), iterator))
        # After the work, not before: only then all modules are loaded.
        freeze_loaded("write")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # All tasks have the same producer.  The driver learns it from them; without tasks nothing is
        # published.
        staged_files = _staged_files(messages)
        for producer in {each.producer for each in staged_files}:
            self.publish(self.folder, producer, batchId, _files(staged_files))
        freeze_loaded("commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # The files of tasks that failed are not among these messages: ``stage`` has deleted them itself.
        _forget(self.folder, messages)


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch.  The producer is the user's token, or else a random name; the epoch is always 0.

    A second write with the same token does nothing.  Without ``path`` and ``staging``, rows are staged in a
    temporary folder that is deleted; such a write has no token, which could not be remembered.  A write
    without a token leaves no record either.
    """

    def __init__(self, publish: Publish, options: WriteOptions) -> None:
        # Made once, in the driver, and pickled for the tasks: all have to stage in the same folder, under the
        # same name.
        given = options.path or options.staging
        self.is_temporary = not given
        temporary = Path(tempfile.gettempdir()) / f"kernel-staged-{uuid.uuid4().hex}"
        self.folder = local_path(given) if given else temporary
        self.publish = publish
        self.has_token = bool(options.token)
        self.producer = options.token or f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[Any]) -> Staged:
        return Staged(
            self.producer, stage(self.folder, self.producer, 0, task_context().partitionId(), iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.publish(self.folder, self.producer, 0, _files(_staged_files(messages)))
        self._clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _forget(self.folder, messages)
        self._clear()

    def _clear(self) -> None:
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        # A random name is never used again.  A program that writes once a minute would leave half a million
        # records each year.
        elif not self.has_token:
            forget_staged(self.folder, self.producer)
            forget_producer(self.folder, self.producer)


def task_context() -> TaskContext:
    """Return the context of the running task."""
    context = TaskContext.get()
    if context is None:
        raise SparkOptionError("rows are written in a task of Spark, and this process runs none")
    return context


def folder_of(options: WriteOptions, checkpoint: str | None) -> Path:
    """Return the folder for a query's staged rows: the journal, the option ``staging``, or the checkpoint."""
    if not options.path and not options.staging and not checkpoint:
        raise SparkOptionError(
            "rows for a running kernel are staged in the query's checkpoint: set the option "
            "checkpointLocation, or give another directory with the option staging"
        )
    if options.path or options.staging:
        return local_path(options.path or options.staging)
    return local_path(checkpoint or "") / "kernel"


def _staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _files(staged_files: Sequence[Staged]) -> list[str]:
    return [each.file for each in staged_files if each.file is not None]


def _forget(folder: Path, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the staged files that will not be published.

    Spark also calls ``abort`` after a commit that failed half-way.  The files of an epoch that is recorded
    and not done are kept: the journal has some of their rows, and the next attempt compares and appends the
    rest.
    """
    for each in _staged_files(messages):
        last = last_epoch(folder, each.producer)
        begun = () if last is None or last.done else last.files
        if each.file is not None and each.file not in begun:
            forget(folder, each.producer, [each.file])
