"""What the plugin offers, and what it says where pyarrow is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from kernel import EnginePlan, Plan
from kernel.cli.main import run
from kernel.contracts.errors import PlanError, PluginError
from kernel.plugins import PluginRegistry
from kernel.topology.check import plan_of_text
from kernel.topology.system import Kernel
from plugins.engines.journal import plugin

SENTENCE = r"a journal needs pyarrow: pip install 'messaging-kernel\[journal\]'"


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name == "pyarrow" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)


@pytest.mark.usefixtures("without_pyarrow")
def test_a_topology_with_a_journal_is_refused_in_one_sentence() -> None:
    with pytest.raises(PlanError, match=SENTENCE):
        Kernel(Plan(engines=(EnginePlan(name="log", kind="journal", options={"path": "x"}),)))
    with pytest.raises(PluginError, match=SENTENCE):
        plugin.PYARROW.need()


@pytest.mark.usefixtures("without_pyarrow")
def test_the_command_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "ls", "somewhere", "--json"]) == 1
    assert "pip install 'messaging-kernel[journal]'" in capsys.readouterr().err


@pytest.mark.usefixtures("without_pyarrow")
@pytest.mark.parametrize(
    "arguments, said",
    [
        (["journal", "--help"], "List the segments of a journal"),
        (["journal", "ls", "--help"], "List the segments"),
    ],
)
def test_help_needs_no_pyarrow(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert run(arguments) == 0
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("without_pyarrow")
def test_a_topology_without_a_journal_needs_no_pyarrow() -> None:
    with Kernel(Plan(engines=(EnginePlan(name="app", kind="native"),))):
        pass


@pytest.mark.parametrize(
    "lines, complaint",
    [
        ('fsync = "sometimes"', "sometimes"),
        ("linger = -1", "linger"),
        ("[engines.log.keep]\nseconds = 0", "seconds"),
        ("path_ = 1", "path_"),
    ],
)
def test_wrong_options_are_found_before_anything_starts(lines: str, complaint: str) -> None:
    text = f'[engines.log]\nkind = "journal"\npath = "x"\n{lines}\n'
    with pytest.raises(PlanError, match=complaint):
        plan_of_text(text, PluginRegistry.load())


def test_a_moment_that_is_none_is_found_before_anything_starts() -> None:
    text = '[engines.again]\nkind = "journal-replay"\npath = "x"\nstart = "teatime"\n'
    with pytest.raises(PlanError, match="'teatime' is neither an offset nor a time"):
        plan_of_text(text, PluginRegistry.load())
