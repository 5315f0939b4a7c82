"""Spark reads a journal whose segments are in an object store: no process sees its directory."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from plugins.apis.spark.batch_reader import BatchReader
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.errors import DataLost, SparkOptionError
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.stream_reader import StreamReader
from plugins.engines.journal.archiving import archive_sealed
from plugins.engines.journal.retention import delete
from plugins.protocols.journal_format.errors import Damaged
from plugins.protocols.journal_format.folders import ArchiveUnavailable, archive_at
from plugins.protocols.journal_format.identity import encode_identity
from plugins.protocols.journal_format.reader import JournalReader
from tests.object_store import CREDENTIALS, ObjectStore, object_store
from tests.plugins.apis.spark.journals import Journal

NARROW = StructType([SCHEMA["offset"], SCHEMA["body"]])
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        yield store
    archive_at.cache_clear()


@pytest.fixture
def archived(journal: Journal, store: ObjectStore) -> Journal:
    """A journal with 200 rows, of which the first 100 are in the archive, in two segments."""
    (journal.path / "identity.json").write_bytes(encode_identity("ours"))
    for _ in range(2):
        journal.numbers(50)
        journal.roll()
        journal.numbers(50)
        archive_sealed(journal.path, store.address())
        journal.roll()
    return journal


def _options(store: ObjectStore, **options: str) -> ReadOptions:
    return ReadOptions.parse({"path": store.address(), **options})


def _read(reader: Any, tasks: list[Any]) -> list[tuple[int, bytes]]:
    """Read as executors do: with a copy, which knows nothing but what was sent."""
    copy, tasks = pickle.loads(pickle.dumps((reader, tasks)))
    archive_at.cache_clear()
    return [
        row
        for task in tasks
        for batch in copy.read(task)
        for row in zip(batch.column("offset").to_pylist(), batch.column("body").to_pylist(), strict=True)
    ]


def _rows(first: int, stop: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, stop)]


def test_a_batch_reads_an_archive(archived: Journal, store: ObjectStore) -> None:
    shutil.rmtree(archived.path)
    reader = BatchReader(NARROW, _options(store, rowsPerTask="40"))
    tasks = reader.partitions()
    assert len(tasks) > 1
    end = JournalReader(store.address()).bounds().end
    assert end >= 100
    assert _read(reader, tasks) == _rows(0, end)
    part = BatchReader(NARROW, _options(store, startingOffset="45", endingOffset="70"))
    assert _read(part, part.partitions()) == _rows(45, 70)


def test_a_stream_follows_an_archive(archived: Journal, store: ObjectStore) -> None:
    reader = StreamReader(NARROW, _options(store))
    start = reader.initialOffset()
    assert start == {"offset": 0, "journal": "ours"}
    middle = reader.latestOffset(start, EVERYTHING)
    assert _read(reader, reader.partitions(start, middle)) == _rows(0, middle["offset"])
    assert reader.latestOffset(middle, EVERYTHING) == middle
    archived.numbers(10)
    archived.roll()
    archived.numbers(1)
    archive_sealed(archived.path, store.address())
    end = reader.latestOffset(middle, EVERYTHING)
    assert end["offset"] == archived.end - 1
    assert _read(reader, reader.partitions(middle, end)) == _rows(middle["offset"], end["offset"])


def test_a_stream_says_what_an_archive_has_lost(archived: Journal, store: ObjectStore) -> None:
    reader = StreamReader(NARROW, _options(store))
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    tasks = reader.partitions(start, end)
    whole = dict(store.objects)
    for key in store.named(".index")[-1:] + store.named(".arrows")[-1:]:
        del store.objects[key]
    with pytest.raises(Damaged):
        _read(reader, tasks)
    assert reader.latestOffset(start, EVERYTHING) == end, "its end does not go back"
    store.objects.update(whole)
    store.refuses = lambda method, key: True
    with pytest.raises(ArchiveUnavailable):
        _read(reader, tasks)
    store.refuses = lambda method, key: False
    assert _read(reader, tasks) == _rows(0, end["offset"])
    delete(archived.path, JournalReader(archived.path).summaries()[:1])
    with pytest.raises(DataLost, match="retention has deleted them"):
        reader.latestOffset(start, EVERYTHING)


def test_an_archive_without_segments_is_no_journal(store: ObjectStore) -> None:
    with pytest.raises(SparkOptionError, match="there is no segment of a journal at s3://bucket/journal"):
        BatchReader(NARROW, _options(store))


@pytest.mark.slow
def test_spark_reads_an_archive(spark: Any, archived: Journal, store: ObjectStore, tmp_path: Path) -> None:
    address = store.address()
    end = JournalReader(address).bounds().end
    shutil.rmtree(archived.path)
    feed = spark.read.format("kernel").option("rowsPerTask", "25").load(address)
    assert feed.where("key = 'n'").count() == end
    query = (
        spark.readStream.format("kernel")
        .load(address)
        .select("key", "body")
        .writeStream.format("kernel")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    bodies = [
        body
        for batch in JournalReader(tmp_path / "out").record_batches(columns=["body"])
        for body in batch.column(0).to_pylist()
    ]
    assert bodies == [body for _, body in _rows(0, end)]
