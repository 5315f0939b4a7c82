"""Reading by way of a running kernel: it is asked where its journal is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kernel import EnginePlan, Kernel, Plan, RoutePlan
from kernel.topology.control import ControlServer
from plugins.apis.spark.batch_reader import BatchReader
from plugins.apis.spark.columns import SCHEMA
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.stream_reader import StreamReader


@contextmanager
def _running(folder: Path, *journals: str) -> Iterator[tuple[str, Any]]:
    """A kernel with an application and journals, and where it can be asked."""
    engines = [
        EnginePlan(name=name, kind="journal", options={"path": str(folder / name)}) for name in journals
    ]
    routes = [RoutePlan(source="app", targets=(name,), confirm=True) for name in journals]
    plan = Plan(engines=(EnginePlan(name="app", kind="native"), *engines), routes=tuple(routes))
    control = str(folder / "control.sock")
    with Kernel(plan) as kernel, ControlServer(kernel, control), kernel.open("app") as app:
        kernel.wait_running()
        yield control, app


def _options(control: str, **options: str) -> ReadOptions:
    return ReadOptions.parse({"kernel": control, **options})


def test_rows_are_read_of_the_kernel_that_keeps_them_in_batch_and_as_a_stream(tmp_path: Path) -> None:
    with _running(tmp_path, "log") as (control, app):
        app.send_many([b"one", b"two"])
        app.wait_confirmed(timeout=60)
        batch = BatchReader(SCHEMA, _options(control))
        tasks = batch.partitions()
        stream = StreamReader(SCHEMA, _options(control))
        end = stream.latestOffset({"offset": 1}, ReadAllAvailable())
    assert end["offset"] == 2
    # tasks run on other machines: they must not need the kernel's socket
    assert [row["body"] for part in tasks for rows in batch.read(part) for row in rows.to_pylist()] == [
        b"one",
        b"two",
    ]


def test_of_several_journals_one_has_to_be_named(tmp_path: Path) -> None:
    with _running(tmp_path, "first", "second") as (control, _):
        with pytest.raises(SparkOptionError, match=r"several journals.* option engine \(first, second\)"):
            _ = _options(control).journal
        assert _options(control, engine="second").journal == tmp_path / "second"
        with pytest.raises(SparkOptionError, match="no journal 'third'; its engines: first, second"):
            _ = _options(control, engine="third").journal


def test_a_kernel_without_a_journal_is_told_apart_from_one_that_is_not_there(tmp_path: Path) -> None:
    without = pytest.raises(SparkOptionError, match="control.sock has no journal; its engines: none")
    with _running(tmp_path) as (control, _), without:
        _ = _options(control).journal
    with pytest.raises(SparkOptionError, match=f"option kernel is '{control}': no answer at {control}"):
        _ = _options(control).journal


def test_the_only_kernel_that_runs_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "plugins.apis.spark.running_kernel.find_running", lambda: str(tmp_path / "control.sock")
    )
    with _running(tmp_path, "log"):
        assert _options("running").journal == tmp_path / "log"


@pytest.mark.slow
def test_spark_reads_from_a_running_kernel(spark: Any, tmp_path: Path) -> None:
    with _running(tmp_path, "log") as (control, app):
        app.send_many([b"%d" % number for number in range(100)])
        app.wait_confirmed(timeout=60)
        feed = spark.read.format("kernel").option("kernel", control).load()
        assert feed.selectExpr("sum(cast(string(body) as int))").first() == (4950,)
        query = (
            spark.readStream.format("kernel")
            .option("kernel", control)
            .load()
            .writeStream.format("memory")
            .queryName("from_a_running_kernel")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert spark.table("from_a_running_kernel").count() == 100
