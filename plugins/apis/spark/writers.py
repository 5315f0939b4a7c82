"""``df.write`` and ``df.writeStream``: tasks stage their rows in a folder, the driver publishes them from there.

``publish(folder, producer, epoch, files)`` is what differs: see ``publishing.py`` for a journal, ``bus_writer.py`` for a running kernel.
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
from plugins.apis.spark.workers import settle

Publish: TypeAlias = Callable[[Path, str, int, Sequence[str]], object]


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    producer: str
    file: str | None


class StreamWriter(DataSourceStreamArrowWriter):
    """The producer is the query, as its checkpoint knows it; the epoch is the micro-batch."""

    def __init__(self, folder: Path, publish: Publish) -> None:
        self.folder = folder
        self.publish = publish

    def write(self, iterator: Iterator[Any]) -> Staged:
        task = task_context()
        producer = task.getLocalProperty("sql.streaming.queryId") or ""
        epoch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        written = Staged(producer, stage(self.folder, producer, epoch, task.partitionId(), iterator))
        settle("write")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = _told(messages)
        for producer in {each.producer for each in told}:
            self.publish(self.folder, producer, batchId, _files(told))
        settle("commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _forget(self.folder, messages)


class BatchWriter(DataSourceArrowWriter):
    """The producer is the write itself, or the token that the user gives it: then a second write does nothing.

    Without a place for it, rows are staged among temporary files, and no token is remembered; nor is a write without one.
    """

    def __init__(self, publish: Publish, options: WriteOptions) -> None:
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
        self.publish(self.folder, self.producer, 0, _files(_told(messages)))
        self._clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _forget(self.folder, messages)
        self._clear()

    def _clear(self) -> None:
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif not self.has_token:  # nobody can come back with this name
            forget_staged(self.folder, self.producer)
            forget_producer(self.folder, self.producer)


def task_context() -> TaskContext:
    """Return what is known of the task that is being run."""
    context = TaskContext.get()
    if context is None:
        raise SparkOptionError("rows are written by Spark's tasks, and this is none")
    return context


def folder_of(options: WriteOptions, checkpoint: str | None) -> Path:
    """Return where a query's rows are staged: in the journal, where the option says, or in the query's checkpoint."""
    if not options.path and not options.staging and not checkpoint:
        raise SparkOptionError(
            "rows for a running kernel wait in the query's checkpoint: say checkpointLocation, or another place with staging"
        )
    if options.path or options.staging:
        return local_path(options.path or options.staging)
    return local_path(checkpoint or "") / "kernel"


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _files(told: Sequence[Staged]) -> list[str]:
    return [each.file for each in told if each.file is not None]


def _forget(folder: Path, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete what will not be published.  Spark also aborts what failed on its way: what was begun with is needed to go on."""
    for each in _told(messages):
        last = last_epoch(folder, each.producer)
        begun = () if last is None or last.done else last.files
        if each.file is not None and each.file not in begun:
            forget(folder, each.producer, [each.file])
