"""The house: the lock serves any machine, a missing peer is named, and the change notes can be put together."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ALL_MARKED

ROOT = Path(__file__).parents[1]


def test_the_lock_names_no_index_and_no_path_and_says_what_each_file_is() -> None:
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    # One requirement a line, with the hashes of its files on lines that continue it.
    requirements = lock.replace("\\\n", "").splitlines()
    assert not [line for line in requirements if "://" in line or line.startswith(("-", "/", "."))]
    assert all("==" in line and "--hash=sha256:" in line for line in requirements)


TEST_OF_A_PEER = """
import pytest
from tests import peers
peers.PEERS["nowhere"] = peers.Peer("nowhere", lambda: False, "make peers")

@pytest.mark.peer("nowhere")
def test_with_a_peer(): raise AssertionError("must not run")
"""


@pytest.mark.slow
@pytest.mark.parametrize("required,outcome", [("0", "1 skipped"), ("1", "1 error")])
def test_a_missing_peer_is_skipped_in_the_open_or_fails_where_it_is_required(
    required: str, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(TEST_OF_A_PEER)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        cwd=ROOT,
        env={**os.environ, "KERNEL_REQUIRE_PEERS": required},
        capture_output=True,
        text=True,
    )
    assert outcome in done.stdout
    assert "nowhere: 1 test wants it; get it with: make peers" in done.stdout


@pytest.mark.slow
def test_the_files_that_make_quick_leaves_out_mark_all_their_tests() -> None:
    left_out = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if not {"node_modules", ".sources"} & set(path.parts) and ALL_MARKED.search(path.read_text())
    ]
    assert len(left_out) > 50, "the way to mark a whole file has changed"
    for path in left_out:
        marks = [
            ast.unparse(statement.value)
            for statement in ast.parse(path.read_text()).body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        ]
        assert len(marks) == 1, path
        assert "pytest.mark.slow" in marks[0] or "pytest.mark.peer(" in marks[0], path
