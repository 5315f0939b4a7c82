"""Each statement of ``normative.toml`` has tests, and each of these exists."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from tests.notes import for_each

TESTS = Path(__file__).parents[3]
TABLE: dict[str, Any] = tomllib.loads((Path(__file__).parent / "normative.toml").read_text())
FRAMES = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT")


def _names(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


NAMES = {key: _names(path) for key, path in TABLE["files"].items()}


@for_each("statement", TABLE["statements"], ids=lambda each: f"{each['section']}: {each['says']}")
def test_a_statement_has_tests_that_exist(statement: dict[str, Any]) -> None:
    assert statement["tests"]
    for test in statement["tests"]:
        file, _, name = test.partition("::")
        assert name in NAMES[file]


def test_every_frame_has_a_statement() -> None:
    sections = {statement["section"] for statement in TABLE["statements"]}
    assert {*FRAMES, "MESSAGE", "RECEIPT", "ERROR", "CONNECTED Frame", "CONNECT or STOMP Frame"} <= sections
