"""``make demo``: the main job, on real input, with real clients."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 6000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration_ends_with_numbers_that_agree() -> None:
    """With a fifth of its records."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "RECORDS": str(RECORDS), "COLUMNS": "160"},  # no title in two lines
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the numbers agree" in done.stdout
    assert f"{RECORDS:,} records" in done.stdout
    assert "routed to bridge" in done.stdout
    assert "counted by Spark" in done.stdout
    assert "Who sets the pace" in done.stdout
    assert "Three protocols, one topic" in done.stdout
    if shutil.which("chromium"):
        assert "browser (STOMP, WebSocket)" in done.stdout
    report = Path(re.search(r"The report: (\S+)", done.stdout)[1])  # type: ignore[index]
    assert report.read_text(encoding="utf-8").count("<svg") == 4
    shutil.rmtree(report.parents[1])
