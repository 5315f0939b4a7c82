"""A program that changes its working directory: relative paths of its engines mean the folders that they meant."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kernel import EnginePlan, Kernel, ThreadPlan
from kernel.testing.fixtures import plan_of
from plugins.engines.broker.host.options import BrokerOptions
from tests.events import Events
from tests.system.conftest import FAST, route

SECONDS = 30.0


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The working directory in which a program begins, and the one to which it changes."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    return first, second


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_journal_goes_on_in_its_folder_and_a_listener_removes_its_file(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = folders
    plan = plan_of(
        EnginePlan(name="app", kind="native"),
        # A segment for each message.
        EnginePlan(
            name="journal", kind="journal", options={"path": "rows", "roll_bytes": 1, "batch_rows": 1}
        ),
        EnginePlan(name="net", kind="stream", options={"address": "backend+unix://place", "mode": "listen"}),
        route("app", "journal", confirm=True),
    )
    with Kernel(plan) as kernel, kernel.open("app") as app:
        kernel.wait_running()
        assert names_in(first) == ["place", "rows"]
        monkeypatch.chdir(second)
        for number in range(3):
            app.send(b"%d" % number)
            app.wait_confirmed(timeout=SECONDS)
    assert names_in(first) == ["rows"]
    assert names_in(second) == []


def test_an_engine_in_a_process_finds_its_folder_when_the_process_is_started_again(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = folders
    events = Events()
    plan = plan_of(
        ThreadPlan(name="apart", kind="process", options={"restart": FAST}),
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="journal", kind="journal", thread="apart", options={"path": "rows"}),
        route("app", "journal", confirm=True),
    )
    kernel = Kernel(plan)
    kernel.events.append(events)
    with kernel, kernel.open("app") as app:
        kernel.wait_running(SECONDS)
        monkeypatch.chdir(second)
        os.kill(kernel._parts.threads["apart"].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        events.wait("failed", "journal")
        app.send(b"1")
        app.wait_confirmed(timeout=SECONDS)
    assert names_in(first) == ["rows"]
    assert names_in(second) == []


def test_the_folder_of_a_broker_is_fixed_when_its_options_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert BrokerOptions(data_dir="data").data_dir == str(tmp_path / "data")
    assert BrokerOptions().data_dir == ""
