"""The house: the lock serves any machine, a missing peer is named, and the kernel names no protocol and no plugin."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ALL_MARKED

ROOT = Path(__file__).parents[1]


def test_the_lock_names_no_index_and_no_path_and_says_what_each_file_is() -> None:
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    # One requirement a line, with the hashes of its files on lines that continue it.
    requirements = lock.replace("\\\n", "").splitlines()
    assert not [line for line in requirements if "://" in line or line.startswith(("-", "/", "."))]
    assert all("==" in line and "--hash=sha256:" in line for line in requirements)


TEST_OF_A_PEER = """
import pytest
from tests import peers
peers.PEERS["nowhere"] = peers.Peer("nowhere", lambda: False, "make peers")

@pytest.mark.peer("nowhere")
def test_with_a_peer(): raise AssertionError("must not run")
"""


@pytest.mark.slow
@pytest.mark.parametrize("required,outcome", [("0", "1 skipped"), ("1", "1 error")])
def test_a_missing_peer_is_skipped_in_the_open_or_fails_where_it_is_required(
    required: str, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(TEST_OF_A_PEER)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", str(tmp_path / "test_it.py")],
        cwd=ROOT,
        env={**os.environ, "KERNEL_REQUIRE_PEERS": required},
        capture_output=True,
        text=True,
    )
    assert outcome in done.stdout
    assert "nowhere: 1 test wants it; get it with: make peers" in done.stdout


@pytest.mark.slow
def test_the_files_that_make_quick_leaves_out_mark_all_their_tests() -> None:
    left_out = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if not {"node_modules", ".sources"} & set(path.parts) and ALL_MARKED.search(path.read_text())
    ]
    assert len(left_out) > 50, "the way to mark a whole file has changed"
    for path in left_out:
        marks = [
            ast.unparse(statement.value)
            for statement in ast.parse(path.read_text()).body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        ]
        assert len(marks) == 1, path
        assert "pytest.mark.slow" in marks[0] or "pytest.mark.peer(" in marks[0], path


_OF_PLUGINS = re.compile("amqp|spark|rabbit", re.IGNORECASE)
# Decision 21: the exchange of a message is a field of the envelope, as its key is, and an option of a route.
_FIELD_OF_THE_ENVELOPE = {
    "contracts/envelopes.py": "checks it",
    "contracts/message.py": "the field itself",
    "contracts/kinds.py": "says that an option of a kind is the value of this field",
    "contracts/shown.py": "shows a message",
    "cli/showing.py": "prints it",
    "topology/rehearsing.py": "compares messages",
    "topology/explaining.py": "a message at the filters of routes",
    "topology/asking.py": "an option of a kind that is the value of this field",
}
_OPTION_OF_A_ROUTE = {
    "topology/plan.py": "the option itself",
    "topology/check.py": "reads it",
    "topology/check_plan.py": "checks it",
    "topology/draw.py": "draws it",
    "topology/reference.py": "describes it",
    "topology/parts.py": "filters by it",
    "topology/border.py": "a route over the border to a process",
    "topology/tap.py": "adds routes that watch",
}


def _said(source: str) -> Iterator[tuple[int, str]]:
    """Yield names and texts of a module, with their lines; not comments and docstrings, which are prose."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in prose:
                yield line, node.value
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(name := getattr(node, field, None), str):
                yield line, name


def _of_plugins(source: str, *, has_exchange: bool) -> list[tuple[int, str]]:
    """Return what a module of the kernel says that belongs to a plugin."""
    left = "" if has_exchange else "exchange"
    return [
        (line, text)
        for line, text in _said(source)
        if _OF_PLUGINS.search(text) or "exchange" in re.sub(r"\bexchange\b", left, text.lower())
    ]


def test_the_kernel_names_no_protocol_and_no_plugin() -> None:
    modules = {
        str(path.relative_to(ROOT / "kernel")): path.read_text() for path in (ROOT / "kernel").rglob("*.py")
    }
    assert len(modules) > 100, "the kernel has moved: nothing was looked at"
    allowed = {*_FIELD_OF_THE_ENVELOPE, *_OPTION_OF_A_ROUTE}
    found = {
        name: _of_plugins(source, has_exchange=name in allowed) for name, source in sorted(modules.items())
    }
    assert {name: said for name, said in found.items() if said} == {}
    # A module that needs the word no more must not keep the permission.
    assert [name for name in allowed if not _of_plugins(modules[name], has_exchange=False)] == []


@pytest.mark.parametrize(
    "source, has_exchange, found",
    [
        ("'''RabbitMQ does so.'''\n# as AMQP\nkey = 1", False, []),
        ("queue = exchange", True, []),
        ("queue = exchange", False, ["exchange"]),
        ("print(f'of exchange {name}')", True, []),
        ("def declare_exchange(): pass", True, ["declare_exchange"]),
        ("rows = ask('exchanges')", True, ["exchanges"]),
        ("from plugins.engines.amqp import x as y", True, ["plugins.engines.amqp"]),
        ("def f(*, spark=1): g.rabbit = h(amqp=1)", True, ["amqp", "rabbit", "spark"]),
        ("text = f'{x} of AMQP'", True, [" of AMQP"]),
    ],
)
def test_what_belongs_to_a_plugin_is_found(source: str, has_exchange: bool, found: list[str]) -> None:
    assert sorted(text for _, text in _of_plugins(source, has_exchange=has_exchange)) == found
