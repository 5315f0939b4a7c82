"""The example of a stalled stream, run as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # two trials of three phases

EXAMPLE = Path(__file__).parents[2] / "examples" / "stalled_stream" / "main.py"


def test_a_stalled_stream_holds_up_its_neighbours_over_tcp_and_not_over_sctp(tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), str(plot)],
        env={**os.environ, "PHASE": "1.5"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\w+) +unstalled +\S+ +while one stalls +(\S+)", done.stdout, re.MULTILINE)
    stalled = {name: float(milliseconds) for name, milliseconds in rows}
    assert stalled["SCTP"] < stalled["TCP"] / 2, done.stdout
    assert "<svg" in plot.read_text()
