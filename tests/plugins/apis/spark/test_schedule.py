"""A job that a kernel runs at intervals: what it starts, what it says, and how it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Kernel, Plan
from kernel.contracts.errors import PlanError
from kernel.testing.fixtures import KernelFactory, kernel_factory
from plugins.apis.spark import schedule
from plugins.apis.spark.schedule import command_of
from plugins.apis.spark.schedule_options import JobOptions
from tests.events import Events
from tests.plugins.apis.spark.journals import Journal

__all__ = ["kernel_factory"]

OPTIONS: dict[str, Any] = {"job": "traffic", "journal": "j", "out": "o", "every": 3600.0}


def _plan(**options: Any) -> EnginePlan:
    return EnginePlan(name="hourly", kind="job", options={**OPTIONS, **options})


def _instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have a run be this program."""
    monkeypatch.setattr(schedule, "command_of", lambda options: [sys.executable, "-c", program])


def test_a_run_is_the_command_that_one_would_type() -> None:
    options = JobOptions(
        **OPTIONS,
        history="h",
        alerts="backend+tcp://127.0.0.1:5556",
        settings={"checks": {"low": "a > 1"}, "schema": "a int", "samples": 5},
        read={"startingOffset": "latest"},
    )
    assert command_of(options)[1:] == [
        *("-m", "kernel", "pipeline", "run", "traffic", "--journal", "j", "--out", "o", "--history", "h"),
        *("--alerts", "backend+tcp://127.0.0.1:5556", "--master", "local[*]"),
        *("--set", 'checks={"low":"a > 1"}', "--set", "schema=a int", "--set", "samples=5"),
        *("--read", "startingOffset=latest"),
    ]


def test_it_runs_again_and_again(kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    _instead(monkeypatch, "print('first'); print('o/index.html')")
    kernel = kernel_factory(_plan(every=0.001))
    kernel.events.append(events := Events())
    assert events.wait("job done", "hourly", times=3).detail == "o/index.html"
    assert kernel.statistics().engines[0].counters["runs"] >= 3


def test_a_run_that_fails_says_why_and_the_next_one_is_made(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _instead(monkeypatch, "import sys; print('a warning', file=sys.stderr); sys.exit('kernel: no journal')")
    kernel = kernel_factory(_plan(every=0.001))
    kernel.events.append(events := Events())
    assert events.wait("job failed", "hourly", times=2).detail == "kernel: no journal"
    assert kernel.statistics().engines[0].counters["failed"] >= 2


def test_a_run_ends_with_its_kernel(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # It holds the pipe open until it ends.
    _instead(
        monkeypatch,
        f"import time; f = open({str(pipe)!r}, 'w'); print('on', file=f, flush=True); time.sleep(600)",
    )
    kernel = kernel_factory(_plan())
    with pipe.open() as reading:
        assert reading.readline() == "on\n"
        kernel.close(linger=0)
        assert reading.read() == ""


@pytest.mark.parametrize(
    "options, said",
    [
        ({"job": "traffc"}, "engine 'hourly': unknown job 'traffc'; did you mean 'traffic'"),
        ({"job": "windows"}, "the job windows is a stream, which runs for ever"),
        ({"settings": {"kees": 3}}, "the job traffic: Object contains unknown field `kees`"),
        ({"read": {"startingOfset": 3}}, "the format kernel has no option 'startingOfset'"),
    ],
)
def test_what_cannot_be_run_is_known_before(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Kernel(Plan(engines=(_plan(**options),)))


@pytest.mark.slow
def test_a_report_of_a_journal(journal: Journal, tmp_path: Path) -> None:
    journal.numbers(20)
    out, history = tmp_path / "out", tmp_path / "history"
    options = {"journal": str(journal), "out": str(out), "history": str(history), "settings": {"count": 3}}
    kernel = Kernel(Plan(engines=(_plan(job="top", **options),)))
    kernel.events.append(events := Events())
    with kernel:
        assert events.wait("job done", "hourly", timeout=250).detail == str(out / "index.html")
    assert list(history.glob("*/*.parquet"))
