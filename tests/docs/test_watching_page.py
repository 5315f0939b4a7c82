"""docs/watching.md shows what its example prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "watching.md"


def test_the_page_shows_what_its_examples_print(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    namespace: dict[str, object] = {"__name__": "example"}
    for code, printed in examples:
        exec(compile(code, str(PAGE), "exec"), namespace)
        assert capsys.readouterr().out == printed
