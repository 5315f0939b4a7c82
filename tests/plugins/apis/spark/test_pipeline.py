"""``kernel pipeline``: what the command line says, and what it runs.

A JVM of its own is what such a command needs most of its time for.  Only tests of how a process begins and
ends start one: the others run the command here, in the session that all tests share.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.cli.main import run
from kernel.contracts.message import Envelope
from kernel.plugins import PluginRegistry
from plugins.apis.spark.complaints import complaint
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.pipeline import options_of, pairs
from plugins.protocols.journal_format.reader import JournalReader
from tests.notes import for_each
from tests.plugins.apis.spark.journals import EPOCH, Journal


def _kernel(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def pipeline(spark: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs ``kernel pipeline`` in this process; the session that it finds running stays for the next test."""
    monkeypatch.setattr(spark, "stop", lambda: None)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        status = run(["pipeline", *arguments])
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    return command


@pytest.mark.slow
def test_the_jobs_are_listed() -> None:
    lines = _kernel("pipeline", "jobs").stdout.splitlines()
    kinds = {line.split()[0]: line.split()[1] for line in lines}
    assert kinds == {
        "anomalies": "report",
        "dead-letters": "report",
        "quality": "report",
        "sessions": "report",
        "top": "report",
        "traffic": "report",
        "windows": "stream",
    }


WITHOUT_SPARK = """
import sys
from importlib.machinery import PathFinder

class Hiding:
    find_distributions = PathFinder.find_distributions

    def find_spec(name, *more):
        return None if name.partition(".")[0] == "pyspark" else PathFinder.find_spec(name, *more)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from kernel.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("run", "traffic", "--out", "o"), ("sql", "select 1"), ("prepare",)])
def test_without_spark_it_says_what_to_install(arguments: tuple[str, ...], tmp_path: Path) -> None:
    journal = () if arguments == ("prepare",) else ("--journal", str(tmp_path))
    command = [sys.executable, "-c", WITHOUT_SPARK, "pipeline", *arguments, *journal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "kernel: kernel pipeline needs pyspark: pip install 'messaging-kernel[spark]'\n"


@pytest.mark.parametrize(
    "arguments,complaint",
    [
        (("trafic", "--out", "o"), "unknown job 'trafic'; did you mean 'traffic'?"),
        (("traffic",), "the job traffic needs --out"),
        (("windows", "--to", "j"), "the job windows needs --checkpoint"),
        (("top", "--out", "o", "--set", "count"), "'count' is not NAME=VALUE"),
        (("top", "--out", "o", "--set", "count=many"), "the job top: .*count.*kernel plugins top"),
        (("top", "--out", "o", "--set", "cuont=3"), "the job top: .*cuont"),
        (("top", "--out", "o", "--set", "count=0"), "the job top: count is 0; it must be 1 or more"),
        (("traffic", "--out", "o", "--set", "step=0"), "the job traffic: step is 0; it must be 1 or more"),
        (("windows", "--set", "width=0"), "the job windows: width is 0.0; it must be 1e-06 or more"),
        (
            ("sessions", "--out", "o", "--set", "pause=0"),
            "the job sessions: pause is 0.0; it must be 1e-06 or more",
        ),
        (
            ("anomalies", "--out", "o", "--set", "width=-1"),
            "the job anomalies: width is -1.0; it must be 1e-06 or",
        ),
        (("quality", "--out", "o"), "the job quality: .*schema"),
        (("top", "--out", "o"), "^kernel: there is no journal at /.*nowhere"),
        (
            ("top", "--out", "o", "--read", "startingofset=1"),
            "^kernel: .* no option 'startingofset'.*startingOffset",
        ),
    ],
)
def test_mistakes_are_told_before_spark_is_started(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    assert run(["pipeline", "run", *arguments, "--journal", "nowhere"]) != 0
    errors = capfd.readouterr().err
    assert re.search(complaint, errors), errors


def test_options_come_as_text_or_as_json() -> None:
    kind = PluginRegistry.load().kind("jobs", "quality")
    options = options_of(kind, pairs(("schema=a int", 'checks={"small": "a < 3"}', "samples=7")))
    assert (options.schema, options.checks, options.samples) == ("a int", {"small": "a < 3"}, 7)
    with pytest.raises(SparkOptionError, match="the job quality"):
        options_of(kind, {"schema": "a int", "checks": "{"})


@pytest.mark.slow
def test_a_stream_sends_its_windows_into_another_journal(
    pipeline: Command, journal: Journal, tmp_path: Path
) -> None:
    for second in (0, 1, 2, 11, 30):
        journal.append([b"xyz"], Envelope(key="k"), ts=EPOCH + second * 1_000_000)
    target = tmp_path / "target"
    where = ("--journal", str(journal), "--to", str(target), "--checkpoint", str(tmp_path / "checkpoint"))
    done = pipeline("run", "windows", "--once", "--master", "local[1]", *where, "--set", "late=0")
    assert done.returncode == 0, done.stderr
    rows = [
        row
        for batch in JournalReader(target).record_batches(columns=["key", "body"])
        for row in batch.to_pylist()
    ]
    assert [row["key"] for row in rows] == ["window.k", "window.k"], "the third window is not over"
    assert sorted(b'"messages":3' in row["body"] for row in rows) == [False, True]


class Stream:
    """``kernel pipeline run windows`` on its way."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    def told(self) -> str:
        return self._log.read_text()

    def wait_until(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 200
        while not there():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)

    def ends(self) -> int:
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on: {self.told()}") from None


@pytest.fixture
def stream(journal: Journal, tmp_path: Path) -> Iterator[Stream]:
    """From the journal into ``target``, with a ``checkpoint``."""
    where = {
        "journal": journal,
        "to": tmp_path / "target",
        "checkpoint": tmp_path / "checkpoint",
        "master": "local[1]",
    }
    words = [word for name, value in where.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "kernel", "pipeline", "run", "windows", *words]
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            yield Stream(running, log)
        finally:
            running.kill()


@pytest.fixture
def windows(journal: Journal) -> Journal:
    """A journal whose first window is over."""
    for second in (0, 30):
        journal.append([b"xyz"], Envelope(key="k"), ts=EPOCH + second * 1_000_000)
    return journal


@pytest.mark.slow
@pytest.mark.usefixtures("windows")
def test_a_stream_goes_on_until_ctrl_c(tmp_path: Path, stream: Stream) -> None:
    stream.wait_until(lambda: JournalReader(tmp_path / "target").bounds().end > 0)
    stream.process.send_signal(signal.SIGINT)
    assert stream.ends() == 0, stream.told()


@pytest.mark.slow
def test_a_stream_goes_on_until_it_is_told_to_stop(
    pipeline: Command, windows: Journal, tmp_path: Path
) -> None:
    before, over = signal.getsignal(signal.SIGTERM), threading.Event()

    def tell() -> None:
        target = JournalReader(tmp_path / "target")
        while signal.getsignal(signal.SIGTERM) is before or target.bounds().end == 0:
            if over.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    telling = threading.Thread(target=tell)
    telling.start()
    where = ("--journal", str(windows), "--to", str(tmp_path / "target"))
    try:
        done = pipeline("run", "windows", *where, "--checkpoint", str(tmp_path / "checkpoint"))
    finally:
        over.set()
        telling.join()
    assert done.returncode == 0, done.stderr
    assert JournalReader(tmp_path / "target").bounds().end > 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_what_spark_complains_about_is_a_line(pipeline: Command, journal: Journal, tmp_path: Path) -> None:
    journal.numbers(1)
    run = ("run", "top", "--out", str(tmp_path / "out"), "--set", "weight=nosuch")
    sql = ("sql", "select raise_error('it is ' || key) from feed")
    told = {
        run: "kernel: the job top: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column",
        sql: "kernel: [USER_RAISED_EXCEPTION] it is n",
    }
    for arguments, start in told.items():
        done = pipeline(*arguments, "--journal", str(journal), "--master", "local[1]")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(start), done.stderr
        assert "kernel/cli/main.py" not in done.stderr


@for_each(
    "text,told",
    [
        (
            "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column with name `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 0;\n"
            "'Project ['x]\n+- OneRowRelation\n",
            "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column with name `x` cannot be resolved.",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 3)\n\n== SQL ==\n(((\n---^^^\n",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. (line 1, pos 3)\n\n== SQL ==\n(((\n---^^^",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the "
            'Python worker: Traceback (most recent call last):\n  File "pathlib.py", line 1116, in mkdir\n    os.mkdir(self, mode)\n'
            "FileNotFoundError: [Errno 2] No such file or directory: '/proc/x'\n SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: [1]",
            "[Errno 2] No such file or directory: '/proc/x'",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n"
            "=== Streaming Query ===\nIdentifier: [1]",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        (
            "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: Traceback (most recent call last):\n"
            "plugins.apis.spark.errors.DataLost: offsets 3 to 9 are gone\n SQLSTATE: 38000\n\n\tat org.apache.spark.Some.scala\n",
            "offsets 3 to 9 are gone",
        ),
        ("Java gateway process exited", "Java gateway process exited"),
    ],
)
def test_of_what_spark_says_the_reason_is_told(text: str, told: str) -> None:
    assert complaint(text) == told


@pytest.mark.slow
def test_a_stream_that_fails_says_why(pipeline: Command, journal: Journal, tmp_path: Path) -> None:
    journal.numbers(12)
    where = (
        "--journal",
        str(journal),
        "--to",
        str(tmp_path / "target"),
        "--checkpoint",
        str(tmp_path / "at"),
    )
    done = pipeline("run", "windows", "--master", "local[1]", *where, "--read", "startingOffset=100")
    assert done.returncode == 1
    assert re.search(
        "^kernel: .* ends at offset 12, and this query has read up to 100", done.stderr, re.MULTILINE
    ), done.stderr


@pytest.mark.slow
def test_a_stream_whose_jvm_is_killed_ends_and_says_so(tmp_path: Path, stream: Stream) -> None:
    stream.wait_until((tmp_path / "checkpoint" / "offsets").exists)
    children = subprocess.run(["pgrep", "-P", str(stream.process.pid)], capture_output=True, check=True)
    (jvm,) = map(int, children.stdout.split())
    os.kill(jvm, signal.SIGKILL)
    assert stream.ends() == 1, stream.told()
    assert re.search("^kernel: the JVM of Spark has ended", stream.told(), re.MULTILINE), stream.told()


@pytest.mark.slow
def test_sql_prints_csv(pipeline: Command, journal: Journal) -> None:
    journal.numbers(12)
    query = "select key, messages, bytes from feed_traffic"
    done = pipeline("sql", query, "--journal", str(journal), "--master", "local[1]")
    assert done.stdout.splitlines() == ["key,messages,bytes", "n,12,14"], done.stderr
