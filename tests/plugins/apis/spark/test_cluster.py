"""A real standalone cluster on the loopback interface: a master, two workers, and their executors, all processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.engines.journal.archiving import archive_sealed
from plugins.protocols.journal_format.folders import archive_at
from plugins.protocols.journal_format.identity import encode_identity
from plugins.protocols.journal_format.reader import JournalReader
from tests.object_store import CREDENTIALS, object_store
from tests.plugins.apis.spark.daemon import TIMEOUT, Daemon
from tests.plugins.apis.spark.journals import Journal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAM = """
import sys
from plugins.apis.spark import session
master, source, target, checkpoint, archive = sys.argv[1:]
spark = session("cluster", master=master, configuration={
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2",
    # nothing runs before both executors are there
    "spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "400s",
})
feed = spark.read.format("kernel").option("rowsPerTask", 25).load(source)
where = feed.selectExpr("offset", "1 as one").groupBy("one").count().collect()
hosts = feed.rdd.mapPartitions(lambda rows: [__import__("os").environ["SPARK_EXECUTOR_DIRS"] for _ in [0]]).distinct().count()
print("rows:", where[0]["count"], "executors:", hosts)
far = spark.read.format("kernel").option("rowsPerTask", 25).load(archive).selectExpr("offset").rdd
workers = far.mapPartitions(lambda rows: [(sum(1 for _ in rows), __import__("os").environ["SPARK_EXECUTOR_DIRS"])]).collect()
print("archived:", sum(count for count, _ in workers), "executors:", len({worker for _, worker in workers}))
query = (
    spark.readStream.format("kernel").option("rowsPerTask", 25).load(source).select("key", "body")
    .writeStream.format("kernel").option("path", target).option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    package = "org.apache.spark.deploy"
    nowhere = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    daemons = [Daemon(r"(spark://127\.0\.0\.1:\d+)", f"{package}.master.Master", *nowhere, folder=tmp_path)]
    try:
        address = daemons[0].wait()[1]
        for number in (1, 2):
            worker = (f"{package}.worker.Worker", address, *nowhere, "--cores", "1", "--memory", "600m")
            daemons.append(
                Daemon("Successfully registered with master", *worker, folder=tmp_path / f"worker{number}")
            )
        for daemon in daemons[1:]:
            daemon.wait()
        yield address
    finally:
        for daemon in reversed(daemons):
            daemon.stop()


def _with_archive(path: Path, address: str) -> None:
    """Move 100 rows into an archive, and delete the journal's directory."""
    far = Journal(path)
    (path / "identity.json").write_bytes(encode_identity("far"))
    far.numbers(100)
    far.roll()
    far.numbers(1)
    archive_sealed(path, address)
    shutil.rmtree(path)


def test_a_cluster_reads_and_writes_journals(
    master: str, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        _with_archive(tmp_path / "far", store.address())
        _read_and_write(master, journal, store.address(), tmp_path)
        archive_at.cache_clear()


def _read_and_write(master: str, journal: Journal, archive: str, tmp_path: Path) -> None:
    journal.numbers(100)
    target = tmp_path / "target"
    checkpoint = tmp_path / "checkpoint"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, master, str(journal), str(target), str(checkpoint), archive],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows: 100 executors: 2" in done.stdout
    assert "archived: 100 executors: 2" in done.stdout
    bodies = [
        value.as_py()
        for batch in JournalReader(target).record_batches(columns=["body"])
        for value in batch.column(0)
    ]
    assert bodies == [b"%d" % number for number in range(100)], "in order, too: a task is a range of offsets"
