"""The distributions of strangers get by with what is meant for them: nothing of ours but the public face of the kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FOR_STRANGERS = ("kernel.contracts", "kernel.hosting", "kernel.testing")

PACKAGES = (
    "third_party_engine/kernel_ticker",
    "third_party_nats/kernel_nats",
    "third_party_protocol/kernel_lines",
    "third_party_webhook/kernel_webhook",
)


def _imported(folder: Path) -> Iterator[tuple[str, str]]:
    files = sorted(folder.rglob("*.py"))
    assert files, f"nothing is in {folder}"
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((path.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield path.name, node.module or ""


def _beyond(folder: Path, allowed: tuple[str, ...]) -> list[tuple[str, str]]:
    return [
        (file, module)
        for file, module in _imported(folder)
        if module.partition(".")[0] in ("kernel", "plugins", "tests")
        if module != "kernel" and not any(f"{module}.".startswith(f"{each}.") for each in allowed)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_they_import_nothing_of_ours_but_what_is_meant_for_them(package: str) -> None:
    folder = EXAMPLES / package
    assert _beyond(folder, FOR_STRANGERS) == []
    assert _beyond(folder.parent / "tests", FOR_STRANGERS) == []


def test_other_imports_are_found(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import kernel.dispatcher.port\nfrom plugins.engines import stream\nimport kernel\n"
    )
    assert _beyond(tmp_path, FOR_STRANGERS) == [
        ("bad.py", "kernel.dispatcher.port"),
        ("bad.py", "plugins.engines"),
    ]
