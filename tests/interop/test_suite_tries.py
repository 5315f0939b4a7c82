"""Tests of a client's suite that wait for milliseconds only are tried again, and others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, own_environment, run_suite

_TESTS = """
from pathlib import Path
import pytest

def counted(name):
    path = Path(__file__).with_name(name)
    path.write_text(path.read_text() + "+" if path.exists() else "+")
    return len(path.read_text())

@pytest.mark.parametrize("key", ["a*b"])
def test_late_at_first(key):
    assert counted("late") == 3

def test_never_in_time():
    assert counted("never") == 0

def test_wrong_at_first():
    assert counted("wrong") == 2

def test_right():
    assert counted("right") == 1
"""


def _results(home: Path, soon: dict[str, str]) -> dict[str, bool]:
    folder = home / "suite"
    folder.mkdir()
    (folder / "test_them.py").write_text(_TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (here := home / "here").mkdir()
    suite = Suite(
        "suite",
        ("test_them.py",),
        4,
        left_out={"nothing": "all tests run"},
        configuration="pytest.ini",
        soon=soon,
        home=home,
    )
    results = run_suite(suite, here, own_environment())
    return {name.rpartition(".")[2]: not why for name, why in results.items()}


@pytest.mark.timeout(120)
def test_only_what_waits_for_milliseconds_is_tried_again(tmp_path: Path) -> None:
    passed = _results(tmp_path, {"late": "3 ms", "never": "5 ms"})
    assert passed == {
        "test_late_at_first[a*b]": True,
        "test_never_in_time": False,
        "test_wrong_at_first": False,
        "test_right": True,
    }
    runs = {
        path.name: len(path.read_text())
        for path in (tmp_path / "suite").iterdir()
        if path.is_file() and not path.suffix
    }
    assert runs == {"late": 3, "never": 5, "wrong": 1, "right": 1}
