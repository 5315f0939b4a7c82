"""``python -m plugins.apis.spark.rehearsal ARCHIVE`` runs one query of each sort.

So the JVM loads the classes that queries need, and when it ends it writes them to ``ARCHIVE``.
``class_data.py`` starts this program.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from plugins.apis.spark.spark_session import session, settings


def rehearse(spark: Any, folder: Path) -> None:
    """Write, read, group, write Parquet, and stream."""
    journal = str(folder / "journal")
    rows = spark.range(1000).selectExpr("cast(id as string) as body", "concat('k', id % 7) as key")
    rows.write.format("kernel").mode("append").save(journal)
    feed = spark.read.format("kernel").load(journal)
    feed.where("offset > 10").groupBy("key").count().orderBy("key").toPandas()
    feed.write.parquet(str(folder / "parquet"))
    spark.read.parquet(str(folder / "parquet")).write.format("noop").mode("overwrite").save()
    stream = spark.readStream.format("kernel").load(journal)
    counts = stream.withWatermark("ts", "1 second").groupBy("key").count()
    for name, frame, sink, mode in (
        ("copy", stream.select("key", "body"), "kernel", "append"),
        ("counts", counts, "noop", "complete"),
    ):
        writer = frame.writeStream.format(sink).outputMode(mode).option("path", str(folder / name))
        query = writer.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()


def main(archive: str) -> int:
    """Run the queries and end the JVM; return its exit status."""
    options = settings("local[2]")["spark.driver.extraJavaOptions"]
    spark = session(
        "rehearsal",
        master="local[2]",
        configuration={
            # Without the archive of an earlier run, which the new one replaces.
            "spark.driver.defaultJavaOptions": "",
            "spark.driver.extraJavaOptions": f"{options} -XX:ArchiveClassesAtExit={archive}",
        },
    )
    gateway = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory(prefix="kernel-rehearsal-") as folder:
        rehearse(spark, Path(folder))
        spark.stop()
    gateway.shutdown()
    # Spark's launcher ends when its standard input does.  The archive is complete when the JVM has ended.
    gateway.proc.stdin.close()
    return int(gateway.proc.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
