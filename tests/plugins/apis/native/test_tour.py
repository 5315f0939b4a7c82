"""``kernel tour``: every hop is seen, in order, and the page tells of the same ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from kernel.cli.main import cli
from plugins.apis.native.tour import HOPS, follow

ROOT = Path(__file__).resolve().parents[4]


def test_the_tour_sees_every_hop_once_and_in_order() -> None:
    assert [seen.hop for seen in follow()] == list(HOPS)


def test_the_page_and_the_tour_tell_of_the_same_hops() -> None:
    page = (ROOT / "docs" / "follow_one_message.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. `([^`:]+):([^`]+)`", page, flags=re.MULTILINE)
    assert listed == [(hop.file, hop.function) for hop in HOPS]


def test_the_command_prints_files_with_lines() -> None:
    result = CliRunner().invoke(cli, ["tour"])
    assert result.exit_code == 0, result.output
    for hop in HOPS:
        assert re.search(re.escape(hop.file) + r":\d+ " + re.escape(hop.function), result.output)


def test_the_tour_finds_its_way_where_the_kernel_is_behind_a_link(tmp_path: Path) -> None:
    """As in a virtual environment below a home that is a symbolic link."""
    (tmp_path / "link").symlink_to(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "tour"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "link")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert HOPS[-1].function in done.stdout
