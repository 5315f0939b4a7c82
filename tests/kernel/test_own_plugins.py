"""An application may have a package ``plugins`` of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

USES = """
import plugins
from kernel import EnginePlan, Kernel, Plan, RoutePlan

assert plugins.__file__.startswith({folder!r}), plugins.__file__
from plugins.mine import VALUE

assert VALUE == 3
plan = Plan(
    engines=(
        EnginePlan(name="a", kind="native"),
        EnginePlan(name="b", kind="native"),
        EnginePlan(name="c", kind="amqp", options={{"address": "127.0.0.1:0"}}),
    ),
    routes=(RoutePlan(source="a", targets=("b",)),),
)
with Kernel(plan) as kernel, kernel.open("a") as a, kernel.open("b") as b:
    kernel.wait_running(60)
    a.send(b"x")
    print(b.receive(60))
"""
NAMES = """
from kernel.plugins import PluginRegistry

registry = PluginRegistry.load()
print(*registry.refused, sep="\\n")
print(registry.hint("engines", "zzzz"))
"""


def run(folder: Path, program: str) -> str:
    (folder / "main.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_our_kinds_are_found_behind_it(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").touch()
    (tmp_path / "plugins" / "mine.py").write_text("VALUE = 3\n")
    assert run(tmp_path, USES.format(folder=str(tmp_path))) == "b'x'\n"


@pytest.mark.slow
def test_tests_of_such_an_application_run(tmp_path: Path) -> None:
    """pytest loads the fixtures that this distribution brings, before the application's own modules."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "__init__.py").touch()
    (tmp_path / "test_mine.py").write_text("import plugins\ndef test(amqp_broker): assert amqp_broker.port\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("hiding", ["plugins.py", "plugins/engines/__init__.py"])
def test_what_hides_them_all_the_same_is_named(hiding: str, tmp_path: Path) -> None:
    file = tmp_path / hiding
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent != tmp_path:
        (tmp_path / "plugins" / "__init__.py").touch()
    file.touch()
    refused, _, hint = run(tmp_path, NAMES).rstrip().rpartition("\n")
    (broker,) = [
        line for line in refused.splitlines() if line.startswith("plugin 'broker' of messaging-kernel")
    ]
    assert broker.endswith(f"; {file} hides the package of that name of messaging-kernel: rename it")
    assert broker in hint
