"""A Spark session in a separate process, with a journal and the same rows as Parquet, and queries of both."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import journals
from benchmarks.spark_ceiling import OneBatch

SIZE = 100
SMALL = 1000
"""Rows of a commit in a second journal: a feed of 200,000 messages per second with a commit every 5 ms."""
RANGE = 100_000
"""Rows of the range that is read."""
FEW = "offset bigint, ts timestamp, key string, body binary"
CARRIED = "key string, body binary"
"""What a stream reads of a journal to write it into another."""
SENT_EVERY = 0.01
LATENCY_SECONDS = 12.0
LATENCY_WARM = 6.0
"""Seconds from the first row on that are not counted: micro-batches are being compiled."""

COMPILED = (
    "kernel_all",
    "parquet_all",
    "small_commits_all",
    "one_batch_all",
    "kernel_group",
    "parquet_group",
    "kernel_range",
    "parquet_range",
    "stream_noop",
    "one_batch_noop",
    "stream_few",
    "stream_kernel",
    "one_batch_discarded",
)
"""Queries that run before the measurement: while the JVM compiles, they take two to three times as long."""
TIMES = 2


class Questions:
    """Each method that a side names runs one query, and returns figures."""

    def __init__(self, spark: Any, folder: Path, count: int) -> None:
        self.spark = spark
        self.folder = folder
        self.count = count
        self.journal = str(folder / "journal")
        self.small_commits = str(folder / "small-commits")
        self.parquet = str(folder / "parquet")
        spark.dataSource.register(OneBatch)
        journals.write(Path(self.journal), count, SIZE)
        journals.write(Path(self.small_commits), count, SIZE, batch_rows=SMALL)
        self.feed().write.parquet(self.parquet)

    def feed(self, schema: str = "") -> Any:
        reader = self.spark.read.format("kernel")
        return (reader.schema(schema) if schema else reader).load(self.journal)

    def kernel_all(self) -> dict[str, float]:
        return _seconds(lambda: _noop(self.feed()))

    def small_commits_all(self) -> dict[str, float]:
        source = self.spark.read.format("kernel")
        return _seconds(lambda: _noop(source.load(self.small_commits)))

    def one_batch_all(self) -> dict[str, float]:
        source = self.spark.read.format(OneBatch.name()).option("rows", self.count)
        return _seconds(lambda: _noop(source.load(self.journal)))

    def parquet_all(self) -> dict[str, float]:
        return _seconds(lambda: _noop(self.spark.read.parquet(self.parquet)))

    def kernel_group(self) -> dict[str, float]:
        return _seconds(lambda: _group(self.feed("key string, offset bigint")))

    def parquet_group(self) -> dict[str, float]:
        return _seconds(lambda: _group(self.spark.read.parquet(self.parquet)))

    def pyarrow_group(self) -> dict[str, float]:
        from plugins.engines.journal.commands.counting import count_by
        from plugins.protocols.journal_format.reader import JournalReader

        return _seconds(lambda: count_by(JournalReader(self.journal), "key", 0, self.count))

    def kernel_range(self) -> dict[str, float]:
        return _seconds(lambda: _noop(_middle(self.feed(), self.count)))

    def parquet_range(self) -> dict[str, float]:
        return _seconds(lambda: _noop(_middle(self.spark.read.parquet(self.parquet), self.count)))

    def stream_noop(self) -> dict[str, float]:
        return self._stream(self._endless("kernel"), "noop")

    def one_batch_noop(self) -> dict[str, float]:
        return self._stream(self._endless(OneBatch.name()), "noop")

    def stream_few(self) -> dict[str, float]:
        return self._stream(self._endless("kernel").schema(FEW), "noop")

    def stream_kernel(self) -> dict[str, float]:
        return self._stream(
            self._endless("kernel").schema(CARRIED), "kernel", path=tempfile.mkdtemp(dir=self.folder)
        )

    def one_batch_discarded(self) -> dict[str, float]:
        return self._stream(self._endless(OneBatch.name()).schema(CARRIED), OneBatch.name())

    def _endless(self, source: str) -> Any:
        reader = self.spark.readStream.format(source)
        return reader.option("rows", self.count) if source == OneBatch.name() else reader

    def _stream(self, reader: Any, sink: str, **options: str) -> dict[str, float]:
        """Return the rows per second of micro-batches, without a query's start and end (about a second)."""
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer = reader.load(self.journal).writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        rows = sum(progress["numInputRows"] for progress in batches)
        milliseconds = sum(progress["durationMs"]["triggerExecution"] for progress in batches)
        return {"rate": rows / milliseconds * 1000}

    def latency(self) -> dict[str, float]:
        """Measure the time from sending a message until a running query has written it into another journal.

        The message is sent into a kernel that journals it.
        """
        from kernel import EnginePlan, Kernel, Plan, RoutePlan

        folder = Path(tempfile.mkdtemp(dir=self.folder))
        plan = Plan(
            engines=(
                EnginePlan(name="app", kind="native"),
                EnginePlan(name="journal", kind="journal", options={"path": str(folder / "in")}),
            ),
            routes=(RoutePlan(source="app", targets=("journal",)),),
        )
        with Kernel(plan) as kernel, kernel.open("app") as app:
            kernel.wait_running()
            query = (
                self.spark.readStream.format("kernel")
                .schema("body binary")
                .load(str(folder / "in"))
                .writeStream.format("kernel")
                .option("path", str(folder / "out"))
                .option("checkpointLocation", str(folder / "checkpoint"))
                .start()
            )
            found: list[float] = []
            done = threading.Event()
            watcher = threading.Thread(target=_watch, args=(folder / "out", found, done))
            watcher.start()
            while not found:  # the first micro-batch starts Python workers: seconds
                _send(app, SENT_EVERY)
            _send(app, LATENCY_WARM)
            before = len(found)
            _send(app, LATENCY_SECONDS)
            query.stop()
            done.set()
            watcher.join()
        late = sorted(found[before:])
        return {"p50": statistics.median(late), "p99": late[len(late) * 99 // 100]}


def serve(link: Connection, count: int) -> None:
    """Answer the names of questions with their figures."""
    from plugins.apis.spark import session

    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        spark = session("benchmarks", master="local[2]")
        try:
            questions = Questions(spark, Path(folder), count)
            for name in COMPILED * TIMES:
                getattr(questions, name)()
            link.send("ready")
            while (name := link.recv()) is not None:
                link.send(getattr(questions, name)())
        finally:
            spark.stop()


def _seconds(ask: Callable[[], Any]) -> dict[str, float]:
    start = time.perf_counter()
    ask()
    return {"seconds": time.perf_counter() - start}


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _group(frame: Any) -> None:
    if len(frame.groupBy("key").agg({"*": "count", "offset": "max"}).collect()) != journals.KEYS:
        raise AssertionError(f"there should be {journals.KEYS} keys")


def _middle(frame: Any, count: int) -> Any:
    return frame.where(f"offset >= {count // 2} and offset < {count // 2 + RANGE}")


def _send(app: Any, seconds: float) -> None:
    """Send what the time is, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        app.send(b"%d" % time.time_ns())
        time.sleep(SENT_EVERY)


def _watch(journal: Path, found: list[float], done: threading.Event) -> None:
    """Note how old each row is when it can be read."""
    from plugins.protocols.journal_format.reader import JournalReader

    reader, offset = JournalReader(journal), 0
    while not done.is_set():
        if reader.bounds().end == offset:
            time.sleep(0.001)
            continue
        now = time.time_ns()
        for batch in reader.record_batches(offset, columns=["body"]):
            found += [(now - int(body)) / 1e9 for body in batch.column(0).to_pylist()]
            offset += batch.num_rows
