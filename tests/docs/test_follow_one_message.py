"""``docs/follow_one_message.md``: what ``tests/plugins/apis/native/test_tour.py`` does not hold to the live run."""

from __future__ import annotations

from pathlib import Path

from plugins.apis.native.tour import HOPS

PAGE = Path(__file__).parents[2] / "docs" / "follow_one_message.md"


def test_the_page_counts_right() -> None:
    words = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    files = {hop.file for hop in HOPS}
    assert f"{words[len(HOPS)].capitalize()} functions in {words[len(files)]} files" in PAGE.read_text()
