"""Spark Connect: the program is a thin client, and the format runs in a server of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.apis.spark.daemon import TIMEOUT, Daemon
from tests.plugins.apis.spark.journals import Journal
from tests.ports import free_port

pytestmark = [pytest.mark.peer("grpc"), pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from plugins.apis.spark import register
address, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(address).getOrCreate()
register(spark)
feed = spark.read.format("kernel").option("rowsPerTask", 25).load(source)
print("rows:", feed.select("offset").count(), "of", type(spark).__module__)
query = (
    spark.readStream.format("kernel").load(source).select("key", "body")
    .writeStream.format("kernel").option("path", target).option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
copied = spark.read.format("kernel").option("columns", "body").load(target).collect()
print("copied:", [bytes(row.body) for row in copied] == [b"%d" % number for number in range(100)])
spark.stop()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of Spark Connect."""
    port = free_port()
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": f"{port}",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": f"{tmp_path / 'warehouse'}",
    }
    daemon = Daemon(
        "Spark Connect server started",
        "org.apache.spark.deploy.SparkSubmit",
        *("--master", "local[2]"),
        *(word for name, value in options.items() for word in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        folder=tmp_path,
        memory="800m",
    )
    try:
        daemon.wait()
        yield f"sc://127.0.0.1:{port}"
    finally:
        daemon.stop()


def test_a_server_of_spark_connect_reads_and_writes_journals(
    server: str, journal: Journal, tmp_path: Path
) -> None:
    journal.numbers(100)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            server,
            str(journal),
            str(tmp_path / "target"),
            str(tmp_path / "checkpoint"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows: 100 of pyspark.sql.connect.session" in done.stdout
    assert "copied: True" in done.stdout
