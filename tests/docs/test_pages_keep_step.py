"""What pages say of names, files and defaults is compared with the code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import msgspec

from kernel.builtin_kinds import register_routers
from kernel.contracts import errors
from kernel.topology.check import _RouteTable
from tests.notes import for_each

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_PATH = re.compile(r"`((?:[\w.]+/)+(?:[\w-]+\.(?:py|toml|md|json))?|\w+\.py)(?::[\w.]+)?`")
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)


def _section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text()
    start = text.index(heading)
    end = text.find("\n## ", start + 1)
    return text[start : end if end > 0 else None]


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """Named from the top, or from inside ``kernel/``, ``kernel/contracts/``, ``plugins/`` or ``examples/``."""
    bases = [ROOT, ROOT / "kernel", ROOT / "kernel" / "contracts", ROOT / "plugins", ROOT / "examples", DOCS]
    ours = [name for name in _PATH.findall(page.read_text()) if not name.startswith(("site/", "orders."))]
    assert [name for name in ours if not any((base / name).exists() for base in bases)] == []


def test_the_staircase_is_the_one_that_is_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawn = _section("architecture.md", "```text\ncli | sockets.py | testing").splitlines()[
        1 : len(layers) + 1
    ]
    assert [line.strip().replace(".py", "") for line in drawn] == layers


def test_the_keys_of_a_route_have_the_defaults_that_the_page_says() -> None:
    said = dict(_ROW.findall(_section("topology.md", "## `[[routes]]`")))
    for field in msgspec.structs.fields(_RouteTable):
        default = said.pop(field.encode_name)
        if field.encode_name not in ("match", "exchange", "dead_letters", "when"):  # told in words
            assert default == _as_written(field), field.encode_name


def test_the_routers_on_the_page_are_the_routers_that_there_are() -> None:
    table = _section("topology.md", "### Routers")
    named = set(re.findall(r"^\| `([\w-]+)` \| [^|]* \|$", table, re.MULTILINE))
    assert named == {kind.name for kind in register_routers()}


def _as_written(field: msgspec.structs.FieldInfo) -> str:
    default = field.default_factory() if callable(field.default_factory) else field.default
    return "required" if default is msgspec.NODEFAULT else f"`{json.dumps(default)}`"


def test_the_errors_on_the_page_are_the_errors_that_there_are() -> None:
    table = _section("native_api.md", "## Errors")
    names = set(re.findall(r"`([A-Z]\w+)`", table)) - {"KernelError"}
    assert {name for name in names if not issubclass(getattr(errors, name, int), errors.KernelError)} == set()


def test_every_word_of_the_vocabulary_stands_once() -> None:
    words = re.findall(r"^\| ([\w ]+) \|", (DOCS / "vocabulary.md").read_text(), re.MULTILINE)
    assert len(words) == len(set(words)) > 30


def test_the_navigation_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in navigation] == []


def test_the_version_that_readers_are_told_is_the_one_that_is_required() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f"Python {required.removeprefix('>=')} or newer" in (ROOT / "README.md").read_text()
