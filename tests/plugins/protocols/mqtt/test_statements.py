"""The table of normative statements is complete, and every test that it names exists."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.plugins.protocols.mqtt.golden import EXAMPLES, LONGER
from tests.plugins.protocols.mqtt.test_faults import FAULTS

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
HOLDERS = {"codec", "front end", "client", "none"}
CASES = {
    "test_what_is_refused": set(FAULTS),
    "test_bytes_are_read": {f"{example.name} ({example.version})" for example in EXAMPLES + LONGER},
    "test_packets_are_written": {f"{example.name} ({example.version})" for example in EXAMPLES},
}
"""The cases that a statement may name, by test."""


def _statements() -> Iterator[tuple[str, dict[str, str]]]:
    for version, rows in tomllib.loads((HERE / "statements.toml").read_text()).items():
        for number, row in rows.items():
            yield f"{version} {number}", row


@cache
def _tests_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_the_table_has_all_numbers_of_the_specifications() -> None:
    lines = (HERE / "statement_numbers.txt").read_text().splitlines()
    numbers = [line for line in lines if not line.startswith("#")]
    assert len(numbers) == len(set(numbers))
    assert {number for number, _ in _statements()} == set(numbers)


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_each_statement_says_who_holds_it(version: str) -> None:
    for number, row in _statements():
        if number.startswith(version):
            assert set(row) == {"holder", "text", "test"}, number
            assert row["holder"] in HOLDERS, number
            assert row["text"].endswith("."), number
            assert row["test"] or row["holder"] == "none", number
            assert row["holder"] != "none" or "Not applicable" in row["text"], number


def test_the_tests_that_the_table_names_exist() -> None:
    for number, row in _statements():
        if not row["test"]:
            continue
        file, _, name = row["test"].partition("::")
        path = HERE / file if "/" not in file else ROOT / file
        function, _, case = name.rstrip("]").partition("[")
        assert function in _tests_in(path), number
        assert not case or case in CASES[function], number
