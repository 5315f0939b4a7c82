"""Two versions side by side: what counts as lost, and that the half inside a tree measures what it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.before_after import Pairs

ROOT = Path(__file__).parents[2]


def test_a_rate_that_halves_is_lost_and_one_slow_pair_is_not() -> None:
    assert Pairs(more_is_better=True, before=[2.0] * 4, after=[1.0] * 4).lost()
    assert not Pairs(more_is_better=True, before=[2.0] * 4, after=[1.0, 2.0, 2.1, 2.0]).lost()


def test_a_time_that_doubles_is_lost_and_one_that_halves_is_a_gain_of_one() -> None:
    assert Pairs(more_is_better=False, before=[1.0, 1.0], after=[2.0, 2.0]).lost()
    assert Pairs(more_is_better=False, before=[2.0, 4.0], after=[1.0, 2.0]).gain() == 1.0


def test_a_change_both_ways_is_noise() -> None:
    assert not Pairs(more_is_better=True, before=[1.0] * 4, after=[0.9, 0.9, 1.1, 1.1]).lost()


def test_a_side_that_takes_no_time_is_neither_better_nor_worse() -> None:
    pairs = Pairs(more_is_better=False, before=[0.0, 0.0], after=[0.0, 0.01])
    assert (pairs.gain(), pairs.lost()) == (0.0, False)


@pytest.mark.slow
def test_the_half_inside_a_tree_names_its_rows_and_ends_with_its_input() -> None:
    """It is started by its path, from another folder's interpreter, as an older checkout would be."""
    program = [sys.executable, ROOT / "benchmarks" / "one_tree.py"]
    ended = subprocess.run(program, cwd=ROOT, input="", capture_output=True, text=True, check=True)
    rows = json.loads(ended.stdout)
    (match,) = (row for row in rows if row["name"] == "match_10")
    assert (match["scenario"], match["unit"], match["more"]) == ("match", "ns", False)
