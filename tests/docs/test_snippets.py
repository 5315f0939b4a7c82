"""Every snippet in the documentation and the README is true.

- ``python`` blocks of a page run one after the other, in one namespace.
- ``toml`` blocks are checked as topology files.
- A block of either sort with ``title="path"`` is a verbatim part of that file.
- In ``sh`` blocks quick ``kernel`` commands are run, others asked for their help; ``make`` targets exist.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kernel.cli.main import run
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.leaks import Leaks
from kernel.topology.check import plan_of_text
from plugins.apis.native.asyncio_channel import AsyncioChannel
from plugins.apis.native.channel import Channel
from plugins.apis.native.task_channel import TaskChannel
from plugins.apis.native.trio_channel import TrioChannel

ROOT = Path(__file__).parents[2]
QUICK = ("check", "draw", "plugins")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


class Snippet:
    """One fenced block."""

    def __init__(self, page: Path, match: re.Match[str]) -> None:
        self.language = match["language"]
        self.text = match["text"]
        title = _TITLE.search(match["rest"])
        self.file = title.group(1) if title else None
        self.page = page
        self.line = page.read_text().count("\n", 0, match.start("text")) + 1

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


SNIPPETS = [Snippet(page, match) for page in PAGES for match in _FENCE.finditer(page.read_text())]


def _of(*languages: str, in_file: bool = False) -> Any:
    chosen = [s for s in SNIPPETS if s.language in languages and (s.file is not None) == in_file]
    return pytest.mark.parametrize("snippet", chosen, ids=lambda snippet: snippet.name)


_PYTHON_PAGES = sorted({s.page for s in SNIPPETS if s.language == "python" and s.file is None})


@pytest.mark.parametrize("page", _PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_runs_and_leaves_nothing_behind(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    leaks = Leaks()
    namespace: dict[str, Any] = {"__name__": "snippet"}
    monkeypatch.setitem(sys.modules, "snippet", type(sys)("snippet"))
    for snippet in SNIPPETS:
        if snippet.page == page and snippet.language == "python" and snippet.file is None:
            padding = "\n" * (snippet.line - 1)  # so that a traceback shows the line of the page
            exec(compile(padding + snippet.text, str(page), "exec"), namespace)
    namespace.clear()
    assert leaks.found(but="Trio thread") == []  # trio keeps its workers for 10 s


@_of("toml")
def test_toml_is_a_topology_without_mistakes(snippet: Snippet, registry: PluginRegistry) -> None:
    plan_of_text(snippet.text, registry, snippet.name)


@_of("python", "toml", in_file=True)
def test_what_is_quoted_from_a_file_stands_there(snippet: Snippet) -> None:
    assert snippet.file is not None
    assert snippet.text.strip("\n") in (ROOT / snippet.file).read_text()


@pytest.mark.slow
@_of("sh")
def test_commands_work(
    snippet: Snippet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: to start Python for each would take longer than all of them."""
    monkeypatch.chdir(ROOT)
    makefile = (ROOT / "Makefile").read_text()
    for line in snippet.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[:1] == ["kernel"]:
            arguments = words[1:] if words[1] in QUICK else [words[1], "--help"]
            assert run(arguments) == 0, f"{line}: {capsys.readouterr()}"


def test_pages_link_to_what_is_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> PluginRegistry:
    """What is installed, and the two distributions of ``examples/``."""
    registry = PluginRegistry.load()
    for name, folder in (("lines", "third_party_protocol"), ("ticker", "third_party_engine")):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
        registry.add(import_module(f"kernel_{name}.plugin"), Origin(name, f"kernel-{name}", "1.0"))
    return registry


@pytest.mark.parametrize("channel", [Channel, TaskChannel, TrioChannel, AsyncioChannel])
def test_the_page_of_the_native_api_names_every_way(channel: type) -> None:
    called_by_the_kernel = {
        "dispose",
        "kernel_closed",
        "on_confirmed",
        "on_lone",
        "on_output",
        "on_writable",
        "until_stall_timeout",
        "serve",
        "warn_without_route",
        "answer",
        "ask",
        "forget",
        "receive_leased",
        "waited",
    }
    page = (ROOT / "docs" / "native_api.md").read_text()
    public = {name for name in vars(channel) if not name.startswith("_")} - called_by_the_kernel
    assert {name for name in public if not re.search(rf"\b{name}\b", page)} == set()
