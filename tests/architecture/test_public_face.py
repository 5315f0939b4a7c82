"""Examples and templates import only what is meant for others: the public face, and the contracts of our plugins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.notes import for_each

ROOT = Path(__file__).parents[2]
PUBLIC = re.compile(r"kernel(\.(contracts|hosting|testing)(\.\w+)*|\.sockets)?")
OF_OUR_PLUGINS = {
    "plugins.apis.spark": "session and register",
    "plugins.apis.spark.contract": "jobs",
    "plugins.apis.spark.report.findings": "what a job returns",
    "plugins.engines.amqp.pytest_plugin": "the type of a fixture",
    "plugins.engines.broker.contract": "types of exchange, front ends",
    "plugins.engines.broker.faults.brokers": "the type of a fixture",
    "plugins.engines.broker.front_end_checks": "tests of front ends",
    "plugins.engines.broker.public": "what a front end works with",
    "plugins.engines.broker.testing": "tests of types of exchange",
}
OURS = {"examples/demo/aggregate_with_spark.py"}
"""Shows what our own jobs are made of."""


def _files() -> list[Path]:
    examples = [path for path in sorted((ROOT / "examples").rglob("*.py")) if "build" not in path.parts]
    return [*examples, *sorted((ROOT / "kernel" / "cli" / "templates").rglob("*.py.tmpl"))]


def _imported(path: Path) -> Iterator[str]:
    source = re.sub(r"@([A-Z]+)@", r"\1", path.read_text())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@for_each("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_it_imports_what_is_public(path: Path) -> None:
    ours = {name for name in _imported(path) if name.partition(".")[0] in ("kernel", "plugins")}
    others = {name for name in ours if not PUBLIC.fullmatch(name) and name not in OF_OUR_PLUGINS}
    assert str(path.relative_to(ROOT)) in OURS or others == set()
