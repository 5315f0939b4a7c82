"""The history of a report: parts of a journal, each told once, also after a run that was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plugins.apis.spark.errors import DataLost, SparkOptionError
from plugins.apis.spark.history import History, alerts_of
from plugins.apis.spark.report.findings import Figure, Report, Table
from plugins.protocols.journal_format.reader import JournalReader
from tests.plugins.apis.spark.journals import Journal
from tests.plugins.apis.spark.test_pipeline import Command, pipeline

__all__ = ["pipeline"]

LATE = Figure(label="lost", value=3, unit="messages", bad=True)


def _report(*rows: tuple[Any, ...]) -> Report:
    table = Table(
        name="keys",
        title="Keys",
        columns=["key", "messages", "p99"],
        rows=rows,
        units={"messages": "messages", "p99": "seconds"},
    )
    return Report(title="A report", figures=[Figure(label="messages", value=9), LATE], parts=[table])


Plan = Callable[..., History]


@pytest.fixture
def plan(journal: Journal, tmp_path: Path) -> Plan:
    """Plan the next run."""

    def plan(**reads: str) -> History:
        return History(tmp_path / "history", "job", {"path": str(journal), **reads})

    return plan


def _run(history: History, *rows: tuple[Any, ...]) -> tuple[int, int]:
    reads = history.begin()
    history.add(_report(*rows))
    history.finish()
    return int(reads["startingOffset"]), int(reads["endingOffset"])


def _kept(tmp_path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "history" / "keys").to_pylist()
    return rows


def test_each_run_goes_on_where_the_last_one_ended(plan: Plan, journal: Journal, tmp_path: Path) -> None:
    journal.numbers(20)
    assert _run(plan(startingOffset="5"), ("a", 15, None)) == (5, 20)
    journal.numbers(7)
    # The limits of the first run are not those of the second. Its table has other nulls, and the same types.
    assert _run(plan(startingOffset="5"), (None, 7, 1)) == (20, 27)
    done = plan()
    assert (done.first, done.end) == (27, 27)
    assert _kept(tmp_path) == [
        {"first_offset": 5, "end_offset": 20, "key": "a", "messages": 15, "p99": None},
        {"first_offset": 20, "end_offset": 27, "key": None, "messages": 7, "p99": 1.0},
    ]


def test_a_run_that_was_killed_is_repeated_with_the_same_rows(
    plan: Plan, journal: Journal, tmp_path: Path
) -> None:
    journal.numbers(20)
    killed = plan()
    killed.begin()
    killed.add(_report(("a", 20, 0.5)))
    journal.numbers(5)
    again = plan()
    assert (again.first, again.end, again.token) == (0, 20, killed.token)
    _run(again, ("a", 20, 0.5))
    assert [row["messages"] for row in _kept(tmp_path)] == [20]
    assert _run(plan(), ("a", 5, 0.5)) == (20, 25)


def test_another_journal_and_rows_that_are_gone_are_told(
    plan: Plan, journal: Journal, tmp_path: Path
) -> None:
    journal.numbers(20)
    journal.roll()
    journal.numbers(10)
    _run(plan(endingOffset="10"))
    journal.drop(0)
    with pytest.raises(DataLost, match="offsets 10 to 19 have not been read and no longer exist"):
        plan()
    assert _run(plan(failOnDataLoss="false")) == (20, 30)
    (journal.path / "identity.json").write_text('{"identity": "00"}')
    with pytest.raises(DataLost, match=r"is not the journal that .*state\.json is about"):
        plan()
    (tmp_path / "history" / "state.json").write_text("{")
    with pytest.raises(SparkOptionError, match=r"state\.json: it is not what an earlier run has written"):
        plan()


def test_several_journals_have_no_history(tmp_path: Path) -> None:
    with pytest.raises(SparkOptionError, match="a report with a history reads one"):
        History(tmp_path / "history", "job", {"path": f"{tmp_path}/*"})


def test_what_a_report_emphasizes_is_an_alert(plan: Plan, journal: Journal) -> None:
    journal.numbers(20)
    told = {"job": "job", "figure": "lost", "value": 3, "unit": "messages"}
    for history, where in ((None, {}), (plan(), {"first_offset": 0, "end_offset": 20})):
        ((key, kind, body),) = alerts_of("job", _report(), history)
        assert (key, kind, json.loads(body)) == ("alert.job", "application/json", told | where)


@pytest.mark.slow
def test_a_job_that_is_run_again(pipeline: Command, journal: Journal, tmp_path: Path) -> None:
    alerts = tmp_path / "alerts"
    where = ("--journal", str(journal), "--out", str(tmp_path / "report"))
    command = ("run", "quality", *where, "--history", str(tmp_path / "history"), "--alerts", str(alerts))
    settings = ("--set", "schema=a int", "--set", 'checks={"small": "a < 3"}')
    for bodies in ([b'{"a": 1}', b'{"a": 9}'], [b'{"a": 2}', b"no JSON", b'{"a": 7}']):
        journal.append(bodies)
        done = pipeline(*command, *settings)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{tmp_path}/report/index.html\n"
    assert pipeline(*command, *settings).stdout == f"{journal} has nothing new since offset 5\n"
    sent = [
        json.loads(row["body"])
        for batch in JournalReader(alerts).record_batches(columns=["body"])
        for row in batch.to_pylist()
    ]
    assert {(each["first_offset"], each["end_offset"]) for each in sent} == {(0, 2), (2, 5)}
    assert all(each["job"] == "quality" for each in sent)
    runs = {path.name for path in (tmp_path / "history").rglob("*.parquet")}
    assert runs == {f"{0:020}-{2:020}.parquet", f"{2:020}-{5:020}.parquet"}


def test_a_stream_has_neither(journal: Journal, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from kernel.cli.main import run

    stream = ("--journal", str(journal), "--to", "t", "--checkpoint", "c")
    for option in ("--history", "--alerts"):
        assert run(["pipeline", "run", "windows", *stream, option, str(tmp_path)]) == 2
        assert "--history and --alerts are for reports" in capfd.readouterr().err
