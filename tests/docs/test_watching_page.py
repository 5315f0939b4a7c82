"""Pages about commands show what their examples print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["watching.md", "durability.md"])
def test_the_page_shows_what_its_examples_print(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert examples
    namespace: dict[str, object] = {"__name__": "example"}
    for code, printed in examples:
        exec(compile(code, page, "exec"), namespace)
        assert capsys.readouterr().out == printed
