"""``kernel tour``: every hop of every walk is seen, in order, and the page tells of the same ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel.cli.main import cli
from kernel.cli.tour import follow, size_of
from kernel.contracts.walk import Walk
from kernel.plugins import PluginRegistry

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "follow_one_message.md"
OURS = ("native", "amqp", "durable")


def walk_of(name: str) -> Walk:
    walk: Walk = PluginRegistry.load().walks[name].kind.load()
    return walk


def section(name: str) -> str:
    """Return what the page says of a walk."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"(`kernel tour {name}`)")
    end = text.find("\n## ", start)
    return text[start : end if end >= 0 else None]


@pytest.mark.parametrize("name", OURS)
def test_a_tour_sees_every_hop_in_order(name: str) -> None:
    walk = walk_of(name)
    assert [seen.hop for seen in follow(walk)] == list(walk.hops)


@pytest.mark.parametrize("name", OURS)
def test_the_page_and_the_tour_tell_of_the_same_hops(name: str) -> None:
    listed = re.findall(r"^\d+\. `([^`:]+):([^`]+)`", section(name), flags=re.MULTILINE)
    assert listed == [(hop.file, hop.function) for hop in walk_of(name).hops]


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_the_page_says_how_many_calls_lie_on_the_way(name: str) -> None:
    """A timer, or a thread that finds its work already done, adds or saves a few, and versions of Python differ in what counts."""
    said = re.search(r"(\d+) calls in (\d+) files", section(name))
    assert said is not None
    walk = walk_of(name)
    tours = [seen for seen in (follow(walk) for _ in range(5)) if len(seen) == len(walk.hops)]
    assert min(map(size_of, tours)) == pytest.approx((int(said[1]), int(said[2])), rel=0.1)


@pytest.mark.parametrize("name", OURS)
def test_the_command_prints_files_with_lines_and_how_many_calls_lie_between(name: str) -> None:
    result = CliRunner().invoke(cli, ["tour", name])
    assert result.exit_code == 0, result.output
    for hop in walk_of(name).hops:
        assert re.search(re.escape(hop.file) + r":\d+ " + re.escape(hop.function), result.output)
    assert re.search(r"^\d+ calls in \d+ files$", result.output, flags=re.MULTILINE)


@pytest.mark.slow
def test_every_call_can_be_printed() -> None:
    shown = CliRunner().invoke(cli, ["tour"]).output
    every = CliRunner().invoke(cli, ["tour", "--all"]).output
    between = [int(count) for count in re.findall(r"(\d+) calls? in between", every)]
    assert sum(between) > 0, (
        "nothing lies between the places that a walk stops at: then there is nothing to print"
    )
    assert every.count("\n") - shown.count("\n") == sum(between)
    assert "trio/" not in every, "calls of libraries are not the project's"


def test_an_unknown_walk_is_refused_with_the_nearest() -> None:
    result = CliRunner().invoke(cli, ["tour", "nativ"])
    assert result.exit_code != 0
    assert "there is no walk 'nativ'" in str(result.exception)
    assert "native" in str(result.exception)


@pytest.mark.slow
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
    assert walk_of("native").hops[-1].function in done.stdout
