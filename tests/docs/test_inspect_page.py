"""The example of ``docs/inspect.md`` prints what the page says, which was worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "inspect.md").read_text()


@pytest.mark.peer("scapy")
def test_the_example_prints_what_the_page_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, printed = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/inspect.md", "exec"), {"__name__": "snippet"})
    output, errors = capsys.readouterr()
    assert [line.rstrip() for line in output.splitlines()] == [line.rstrip() for line in printed.splitlines()]
    assert errors == ""
