"""``df.write`` and ``df.writeStream`` into a journal: tasks stage, the driver publishes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import WriteOptions, local_path
from plugins.apis.spark.publishing import publish
from plugins.apis.spark.staging import forget, stage
from plugins.apis.spark.workers import settle


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    producer: str
    file: str | None


class StreamWriter(DataSourceStreamArrowWriter):
    """The producer is the query, as its checkpoint knows it; the epoch is the micro-batch."""

    def __init__(self, options: WriteOptions) -> None:
        self.journal = journal_of(options)

    def write(self, iterator: Iterator[Any]) -> Staged:
        task = task_context()
        producer = task.getLocalProperty("sql.streaming.queryId") or ""
        epoch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        written = Staged(producer, stage(self.journal, producer, epoch, task.partitionId(), iterator))
        settle("write")
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = _told(messages)
        for producer in {each.producer for each in told}:
            publish(self.journal, producer, batchId, _files(told))
        settle("commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _forget(self.journal, messages)


class BatchWriter(DataSourceArrowWriter):
    """The producer is the write itself, or the token that the user gives it: then a second write does nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self.journal = journal_of(options)
        self.producer = options.token or f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[Any]) -> Staged:
        return Staged(
            self.producer, stage(self.journal, self.producer, 0, task_context().partitionId(), iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(self.journal, self.producer, 0, _files(_told(messages)))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _forget(self.journal, messages)


def task_context() -> TaskContext:
    """Return what is known of the task that is being run."""
    context = TaskContext.get()
    if context is None:
        raise SparkOptionError("rows are written by Spark's tasks, and this is none")
    return context


def journal_of(options: WriteOptions) -> Path:
    """Return the journal's directory, made if it is not there."""
    path = local_path(options.path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _files(told: Sequence[Staged]) -> list[str]:
    return [each.file for each in told if each.file is not None]


def _forget(journal: Path, messages: Sequence[WriterCommitMessage | None]) -> None:
    for each in _told(messages):
        if each.file is not None:
            forget(journal, each.producer, [each.file])
