"""What a Python worker of Spark's is told, without a worker."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType

from plugins.apis.spark import workers
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.source import KernelDataSource
from tests.plugins.apis.spark.journals import Journal

DAEMON = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each freeze of the collector; none is made."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(workers, "_frozen", set())
    return calls


def test_a_worker_freezes_its_objects_once_for_each_sort_of_work(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", DAEMON)
    rows = workers.freeze_after("read", iter([1, 2]))
    assert next(rows) == 1
    assert frozen == [], "what the first rows import is to be frozen, too"
    assert list(rows) == [2]
    assert frozen == ["freeze"]
    assert list(workers.freeze_after("read", iter([3]))) == [3]
    workers.freeze_loaded("write")
    assert frozen == ["freeze", "freeze"]


def test_a_process_that_is_no_worker_is_left_alone(frozen: list[str]) -> None:
    workers.freeze_loaded("read")
    assert frozen == []


def test_a_worker_that_plans_the_writes_of_micro_batches_freezes_its_objects(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = KernelDataSource({"path": str(tmp_path), "checkpointLocation": str(tmp_path / "checkpoint")})
    monkeypatch.setitem(sys.modules, "__main__", DAEMON)
    for _ in range(3):  # the same worker is asked for each micro-batch
        source.streamWriter(StructType().add("body", BinaryType()), overwrite=False)
    assert frozen == ["freeze"]


def test_workers_that_describe_a_frame_and_plan_how_to_read_it_freeze_their_objects(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, journal: Journal
) -> None:
    journal.numbers(10)
    monkeypatch.setitem(sys.modules, "__main__", DAEMON)
    for _ in range(3):
        source = KernelDataSource({"path": str(journal)})
    assert frozen == ["freeze"]
    for _ in range(3):
        assert source.reader(SCHEMA).partitions()
    assert frozen == ["freeze", "freeze"]


@pytest.mark.parametrize(
    "main,error,ended",
    [(DAEMON, EOFError(), [0]), (DAEMON, ValueError(), []), (sys.modules["__main__"], EOFError(), [])],
)
def test_a_reader_whose_query_has_ended_leaves_without_a_traceback(
    main: Any, error: Exception, ended: list[int], journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark closes the connection, its loop takes that for an error, and would report it to nobody."""
    calls: list[int] = []
    monkeypatch.setattr(os, "_exit", calls.append)
    reader = KernelDataSource({"path": str(journal)}).streamReader(SCHEMA)
    monkeypatch.setitem(sys.modules, "__main__", main)
    reader.stop()

    def loop() -> None:
        try:
            raise error
        finally:
            reader.stop()

    with pytest.raises(type(error)):
        loop()
    assert calls == ended
