"""What importing does: no module needs another to be imported before it, and protocols bring nothing that does I/O.

import-linter sees who imports whom; only a process of its own sees what is there in the end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN_TO_PROTOCOLS = ("trio", "asyncio", "socket", "ssl", "selectors", "subprocess", "pyspark")
HEAVY = ("trio", "asyncio", "ssl", "click", "rich", "pyarrow", "pyspark")

# Each module is imported in a child of a process that has imported nothing of ours: quicker than a new interpreter.
_EACH_ALONE = """
import os, sys, traceback, warnings
with warnings.catch_warnings():  # not ours: loaded once, for speed
    warnings.simplefilter("ignore")
    import trio, pytest, click, msgspec, rich, wsproto
    import pyarrow.dataset, pyarrow.parquet, pyspark.sql.functions, pyspark.sql.datasource
failed = []
for name in sys.argv[1:]:
    if (child := os.fork()) == 0:
        try:
            warnings.simplefilter("error")
            __import__(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit("cannot be imported alone: " + ", ".join(failed) if failed else 0)
"""


def _modules(*folders: str) -> list[str]:
    files = [path.relative_to(ROOT) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    return [name for name in names if not name.endswith("__main__") and "templates" not in name]


def _run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded_by(modules: list[str], watched: tuple[str, ...]) -> list[str]:
    program = f"import sys, {', '.join(modules)}; print(*[name for name in {watched} if name in sys.modules])"
    return _run(program).split()


@pytest.mark.slow
def test_every_module_can_be_imported_alone_without_a_warning() -> None:
    _run(_EACH_ALONE, *_modules("kernel", "plugins"))


@pytest.mark.slow
def test_protocols_bring_nothing_that_does_io() -> None:
    modules = [
        name
        for name in _modules("plugins/protocols", "kernel/contracts")
        if not name.endswith(".generate") and ".journal_format" not in name  # pyarrow brings what it likes
    ]
    assert _loaded_by(modules, FORBIDDEN_TO_PROTOCOLS) == []


_PYTEST_PLUGINS = [
    "kernel.testing.pytest_plugin",
    "plugins.engines.amqp.pytest_plugin",
    "plugins.engines.broker.faults.pytest_plugin",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [["kernel"], _PYTEST_PLUGINS, [n for n in _modules("plugins") if n.endswith(".plugin")]],
    ids=["kernel", "pytest plugins", "all plugins"],
)
def test_what_everybody_loads_is_light(modules: list[str]) -> None:
    pytests_own = ("asyncio",) if "pytest" in modules[0] else ()
    assert [name for name in _loaded_by(modules, HEAVY) if name not in pytests_own] == []


@pytest.mark.slow
def test_loading_what_is_installed_is_light() -> None:
    program = "from kernel.plugins import PluginRegistry; PluginRegistry.load()"
    assert (
        _run(f"import sys; {program}; print(*[name for name in {HEAVY} if name in sys.modules])").split()
        == []
    )
