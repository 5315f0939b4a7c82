"""What pyright knows of the kernel: every type that it exports, and the mistakes of those who use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.topology.test_open import RIGHT, WRONG
from tests.peers import PYRIGHT

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.peer("pyright")]


def _pyright(*arguments: str) -> dict[str, Any]:
    """Run it for this interpreter; it asks ``python`` where packages are, and does not see editable installations."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    command = [PYRIGHT, "--outputjson", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_every_exported_type_is_known_without_inference() -> None:
    found = _pyright("--verifytypes", "kernel", "--ignoreexternal")["typeCompleteness"]
    unknown = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in found["symbols"]
        for problem in symbol["diagnostics"]
        if symbol["isExported"] and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"])
    ]
    assert unknown == []
    assert found["exportedSymbolCounts"]["withKnownType"] > 1000
    assert found["completenessScore"] == 1


def test_mistakes_are_seen_by_pyright(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "".join(f"    channel.{wrong}\n" for wrong in WRONG))
    errors = [
        problem["range"]["start"]["line"] + 1
        for problem in _pyright(str(program))["generalDiagnostics"]
        if problem["severity"] == "error"
    ]
    assert errors == [9, 10, 11, 12]
