"""Journals for the measurements, and the roles of who fills, replays, counts and exports them."""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.amqp.brokers import Broker
from benchmarks.kernels import BATCH
from benchmarks.processes import Child
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

KEYS = 100
"""Different keys in a journal that is read."""
RUN = 100
"""Messages that follow each other under one key."""


def append(link: Connection, fsync: str, count: int, size: int) -> None:
    """Fill a pipe that a journal empties; say how many rows a second were safe in the end.

    With an interval of seconds between two fsyncs: how many were written, as they are safe in steps.
    """
    figure = "durable" if fsync == "batch" else "committed"
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        marks = WaterMarks(high=2 * count, high_bytes=4 * count * size)
        plan = Plan(
            threads=(ThreadPlan(name="io"),),
            engines=(
                EnginePlan(name="app", kind="native"),
                EnginePlan(name="journal", kind="journal", options={"path": folder, "fsync": fsync}),
            ),
            routes=(RoutePlan(source="app", targets=("journal",), marks=marks),),
        )
        with Kernel(plan) as kernel, kernel.open("app") as app:
            kernel.wait_running()
            record_batch = [bytes([at % 256]) * size for at in range(BATCH)]
            app.send_many(list(record_batch))
            _wait(kernel, figure, BATCH)  # what the first batch imports is not counted
            start = time.perf_counter()
            for _ in range(count // BATCH):
                app.send_many(list(record_batch))
            _wait(kernel, figure, BATCH + count // BATCH * BATCH)
            link.send(count // BATCH * BATCH / (time.perf_counter() - start))
        link.recv()


def broker(link: Connection, journal: str) -> None:
    """Run an AMQP broker whose messages are journaled in a thread of this kind; empty: they are not."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        engines = [EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0"})]
        threads, routes = {"io": "poll"}, []
        if journal:
            options = {"path": folder, "fsync": "interval"}
            where = "io" if journal == "poll" else "disk"
            threads[where] = journal
            engines.append(EnginePlan(name="journal", kind="journal", options=options, thread=where))
            routes.append(RoutePlan(source="broker", targets=("journal",)))
        plan = Plan(
            threads=tuple(ThreadPlan(name=name, kind=kind) for name, kind in threads.items()),
            engines=tuple(engines),
            routes=tuple(routes),
        )
        with Kernel(plan) as kernel:
            kernel.wait_running()
            link.send(kernel.address_of("broker"))
            link.recv()


@contextmanager
def journaling_broker(journal: str) -> Iterator[Broker]:
    """Run such a broker for one measurement."""
    with Child(broker, journal) as child:
        address = child.hear()
        yield Broker("kernel", address, child.pid)


def replay(link: Connection, address: str, count: int, size: int) -> None:
    """Play a journal of so many messages back to a kernel that listens, flat out."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        write(Path(folder), count, size)
        options = {"path": folder, "speed": 0}
        plan = Plan(
            threads=(ThreadPlan(name="io"),),
            engines=(
                EnginePlan(name="journal", kind="journal-replay", options=options),
                EnginePlan(name="link", kind="stream", options={"address": address}),
            ),
            routes=(RoutePlan(source="journal", targets=("link",)),),
        )
        with Kernel(plan):
            link.recv()


def read(link: Connection, count: int, size: int) -> None:
    """Count a journal by key, and export it; say how many rows a second each was."""
    from plugins.engines.journal.commands.counting import count_by
    from plugins.engines.journal.export import export_parquet
    from plugins.protocols.journal_format.reader import JournalReader

    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder:
        write(Path(folder), count, size)
        reader = JournalReader(folder)
        rates: dict[str, Any] = {}
        start = time.perf_counter()
        if len(count_by(reader, "key", 0, count)) != KEYS:
            raise AssertionError(f"there should be {KEYS} keys")
        rates["count"] = count / (time.perf_counter() - start)
        start = time.perf_counter()
        export_parquet(reader, Path(folder) / "parquet", 0, count, compression="snappy")
        rates["rate"] = count / (time.perf_counter() - start)
        link.send(rates)
        link.recv()


def write(path: Path, count: int, size: int, **options: Any) -> None:
    """Send messages into a kernel that journals them, in batches of ``RUN`` under one of ``KEYS`` keys.

    So commits are as large as in real use.  ``options`` are the journal's.  Every body is different, with
    random hexadecimal digits: Parquet and compressors would store equal bodies once.
    """
    digits = random.Random(size)
    keys = itertools.cycle([f"weather.{number}" for number in range(KEYS)])
    plan = Plan(
        threads=(ThreadPlan(name="io"),),
        engines=(
            EnginePlan(name="app", kind="native"),
            EnginePlan(name="journal", kind="journal", options={"path": str(path), **options}),
        ),
        routes=(RoutePlan(source="app", targets=("journal",)),),
    )
    with Kernel(plan) as kernel, kernel.open("app") as app:
        kernel.wait_running()
        for _ in range(count // RUN):
            app.send_many(_bodies(digits, size), key=next(keys))
        _wait(kernel, "durable", count)


def _bodies(digits: random.Random, size: int) -> list[bytes]:
    text = digits.randbytes(RUN * size // 2 + 1).hex().encode()
    return [text[at : at + size] for at in range(0, RUN * size, size)]


def _wait(kernel: Kernel, figure: str, count: int) -> None:
    while True:
        counters = {engine.name: engine.counters for engine in kernel.statistics().engines}["journal"]
        if counters.get(figure, 0) >= count:
            return
        time.sleep(0.005)
