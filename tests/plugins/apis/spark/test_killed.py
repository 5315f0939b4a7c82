"""SIGKILL for the publisher, the kernel that keeps the journal, and Spark's driver, at random, while rows flow.

    publisher  -- backend protocol, confirmed -->  kernel: journal  -->  Spark's stream  -->  another journal

From the one journal to the other each row comes exactly once.  From the publisher on nothing that was confirmed is lost.
``KERNEL_KILLS`` in the environment says how many kills there are: with three, each is killed once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import pytest

from plugins.protocols.journal_format.reader import JournalReader

KILLS = int(os.environ.get("KERNEL_KILLS", "3"))
TIMEOUT = 120.0
"""Seconds without any progress after which something is wrong."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 40 * KILLS)]

TOPOLOGY = """
[engines.in]
kind = "stream"
mode = "listen"
address = "backend+unix://{folder}/in.sock"

[engines.journal]
kind = "journal"
path = "{folder}/source"
roll_bytes = 4000000

[[routes]]
from = "in"
to = "journal"
confirm = true
"""

PUBLISHER = """
import sys, time
from pathlib import Path
from kernel import EnginePlan, Kernel, Plan, RoutePlan
from plugins.protocols.journal_format.reader import JournalReader

folder = Path(sys.argv[1])
copy = JournalReader(folder / "target")
confirmed = folder / "confirmed"
number = int(confirmed.read_text()) if confirmed.exists() else 0
link = EnginePlan(name="link", kind="stream", options={"address": f"backend+unix://{folder}/in.sock", "reconnect": {"most": 0.2}})
plan = Plan(
    engines=(EnginePlan(name="out", kind="native"), link),
    routes=(RoutePlan(source="out", targets=("link",), confirm=True),),
)
with Kernel(plan) as kernel, kernel.open("out") as out:
    while not (folder / "enough").exists():
        while number > copy.bounds().end + 100_000 and not (folder / "enough").exists():
            time.sleep(0.01)  # leave the processors to the others
        out.send_many([b"%d" % each for each in range(number, number + 5000)], key=f"k.{number % 7}")
        out.wait_confirmed()
        number += 5000
        written = confirmed.with_suffix(".new")
        written.write_text(str(number))
        written.replace(confirmed)
"""

DRIVER = """
import sys
from plugins.apis.spark import session

folder = sys.argv[1]
spark = session("killed", master="local[2]", configuration={"spark.driver.memory": "512m"})
query = (
    spark.readStream.format("kernel").option("maxOffsetsPerTrigger", 50000).option("rowsPerTask", 20000).load(f"{folder}/source")
    .select("key", "body")
    .writeStream.format("kernel").option("path", f"{folder}/target").option("checkpointLocation", f"{folder}/checkpoint")
    .start()
)
query.awaitTermination()
"""


class Victims:
    """The three programs, each in a process group of its own: Spark's JVM and Python workers die with their driver."""

    def __init__(self, folder: Path) -> None:
        (folder / "system.toml").write_text(TOPOLOGY.format(folder=folder))
        self._commands = {
            "kernel": ["-m", "kernel", "run", "--no-control", str(folder / "system.toml")],
            "publisher": ["-c", PUBLISHER, str(folder)],
            "driver": ["-c", DRIVER, str(folder)],
        }
        self._log = (folder / "log").open("ab")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in self._commands:
            self.start(name)

    def start(self, name: str) -> None:
        self._running[name] = subprocess.Popen(
            [sys.executable, *self._commands[name]],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        process = self._running[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait(self, name: str) -> int:
        return self._running[name].wait(TIMEOUT)

    def close(self) -> None:
        for name in self._running:
            try:
                self.kill(name)
            except ProcessLookupError:
                self._running[name].wait()
        self._log.close()


@contextmanager
def _victims(folder: Path) -> Iterator[Victims]:
    victims = Victims(folder)
    try:
        yield victims
    finally:
        victims.close()


def _end(journal: Path) -> int:
    return JournalReader(journal).bounds().end


def _wait_for_rows(journal: Path, end: int) -> None:
    last, since = -1, time.monotonic()
    while (now := _end(journal)) < end:
        if now != last:
            last, since = now, time.monotonic()
        log = journal.parent / "log"
        assert time.monotonic() - since < TIMEOUT, f"{journal.name} stays at {now}: {log.read_text()[-3000:]}"
        time.sleep(0.02)


def _numbers(journal: Path) -> Iterator[int]:
    for batch in JournalReader(journal).record_batches(columns=["body"]):
        yield from map(int, batch.column(0).to_pylist())


def test_nothing_is_lost_and_nothing_comes_twice_whoever_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    names = ["driver", "kernel", "publisher"] * (KILLS // 3 + 1)
    with _victims(tmp_path) as victims:
        for name in chance.sample(names[:KILLS], KILLS):
            _wait_for_rows(target, _end(target) + chance.randrange(1, 60_000))
            victims.kill(name)
            victims.start(name)
        (tmp_path / "enough").touch()
        assert victims.wait("publisher") == 0
        confirmed = int((tmp_path / "confirmed").read_text())
        _wait_for_rows(target, _end(source))
    rows = 0
    seen = -1
    for kept, copied in zip_longest(_numbers(source), _numbers(target)):
        assert kept == copied, f"row {rows} of the copy is not that of the journal"
        assert kept <= seen + 1, f"{seen + 1} to {kept - 1} were lost before the journal"
        seen = max(seen, kept)
        rows += 1
    assert seen + 1 >= confirmed
    print(f"{rows} rows, {rows - seen - 1} of them sent again by the publisher, {KILLS} kills")
