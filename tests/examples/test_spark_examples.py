"""The examples of Spark: programs in the session that all tests share, and a job in a process of its own."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.engines.journal.positions import positions
from plugins.protocols.journal_format.reader import JournalReader
from tests.peers import optional
from tests.plugins.apis.spark.journals import Journal

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal with five messages of three keys."""
    journal = Journal(tmp_path / "journal")
    for key, body in [
        ("a.error", b"1"),
        ("a.info", b"22"),
        ("b.error", b"333"),
        ("a.info", b"4"),
        ("a.info", b""),
    ]:
        journal.append([body], Envelope(key=key, properties={"headers": {"n": 1}}))
    return journal


def _run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def program(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs an example in this process; the session that it finds running stays for the next test."""
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(name: str, *arguments: str) -> None:
        path = str(EXAMPLES / "spark" / name)
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")

    return run


def test_count_by_key_shows_a_table(
    program: Callable[..., None], journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    program("count_by_key.py", str(journal))
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells == [["key", "count"], ["a.error", "1"], ["a.info", "3"], ["b.error", "1"]]


def test_copy_errors_copies_each_once(program: Callable[..., None], journal: Journal, tmp_path: Path) -> None:
    program("copy_errors.py", str(journal), str(tmp_path / "errors"), str(tmp_path / "checkpoint"))
    rows = [row for batch in JournalReader(tmp_path / "errors").record_batches() for row in batch.to_pylist()]
    assert [(row["key"], row["body"], row["headers"]) for row in rows] == [
        ("a.error", b"1", '{"n":1}'),
        ("b.error", b"333", '{"n":1}'),
    ]
    assert positions(journal.path) == {"errors": 5}


@pytest.mark.peer("deltalake")
def test_to_delta_appends_each_once_also_when_spark_repeats_a_batch(
    program: Callable[..., None], journal: Journal, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    program("to_delta.py", str(journal.path), str(table), str(checkpoint))
    (checkpoint / "commits" / "0").unlink()  # killed between the table's commit and Spark's
    journal.append([b"last"], Envelope(key="b"))
    program("to_delta.py", str(journal.path), str(table), str(checkpoint))
    deltalake = optional("deltalake")
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["offset"], row["key"], row["body"]) for row in rows) == [
        (0, "a.error", b"1"),
        (1, "a.info", b"22"),
        (2, "b.error", b"333"),
        (3, "a.info", b"4"),
        (4, "a.info", b""),
        (5, "b", b"last"),
    ]


def test_a_job_of_a_stranger_runs_as_ours_do(journal: Journal, tmp_path: Path) -> None:
    """Its distribution is on the path with an entry point, as an installation leaves it."""
    package = EXAMPLES / "third_party_job"
    metadata = tmp_path / "site" / "kernel_longest-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kernel-longest\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kernel.plugins]\nlongest = kernel_longest.plugin\n")
    path = os.pathsep.join((str(package), str(tmp_path / "site")))
    command = ("-m", "kernel", "pipeline", "run", "longest", "--master", "local[1]", "--set", "count=2")
    out = tmp_path / "out"
    told = _run(*command, "--journal", str(journal), "--out", str(out), PYTHONPATH=path)
    assert told == f"{out}/index.html\n"
    assert (out / "longest.csv").read_text().splitlines() == ["offset,key,bytes", "2,b.error,3", "1,a.info,2"]
    assert "The longest messages" in (out / "index.html").read_text()
