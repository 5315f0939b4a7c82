"""Sizes are a hint to look, and never a limit: this prints the longest files and functions, and fails for none of them.

Read the list with ``pytest tests/architecture/test_sizes.py -s``.  A long file that is one idea stays whole; one that has
two ideas is cut between them, not at a number of lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 40
"""Without its docstring."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _files() -> list[Path]:
    """Return every file that was written by hand."""
    found = [path for folder in ("kernel", "plugins") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "GENERATED" not in path.read_text()[:400].upper()]


def _lines(function: Function) -> int:
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def _functions(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield _lines(node), f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


@pytest.mark.slow
def test_the_longest_files_and_functions_are_printed() -> None:
    files = _files()
    long_files = [(path.read_text().count("\n"), str(path.relative_to(ROOT))) for path in files]
    long_functions = [function for path in files for function in _functions(path)]
    assert len(long_files) > 300, "the folders have moved: nothing was looked at"
    for title, rows, limit in (
        ("Files over", long_files, FILE_LINES),
        ("Functions over", long_functions, FUNCTION_LINES),
    ):
        print(f"\n{title} {limit} lines: what does each do besides its job?")
        for lines, name in sorted(rows, reverse=True):
            if lines > limit:
                print(f"{lines:6d}  {name}")
