"""What is imported when: plugins are loaded by every program, and a broker is started by many."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

_LOAD = "import sys; from kernel.plugins import PluginRegistry as R; R.load()"
_START = """
import sys
from kernel import EnginePlan, Kernel, Plan
with Kernel(Plan(engines=(EnginePlan(name="broker", kind="broker"),))).start() as kernel:
    kernel.wait_running()
"""


def _imported_by(code: str) -> set[str]:
    code += "\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_loading_plugins_imports_nothing_of_a_broker_that_works() -> None:
    imported = {name for name in _imported_by(_LOAD) if name.startswith("plugins.engines.broker.")}
    assert imported == {
        "plugins.engines.broker.contract",
        "plugins.engines.broker.host",
        "plugins.engines.broker.host.tables",
        "plugins.engines.broker.plugin",
    }


@pytest.mark.slow
def test_a_broker_imports_only_what_it_uses() -> None:
    """Its memory, and how soon it listens, would otherwise grow with each plugin that is installed."""
    imported = _imported_by(_START)
    assert "plugins.engines.broker.host.engine" in imported
    unused = {
        "plugins.engines.broker.local",
        "plugins.engines.broker.host.definition_forms",
        "plugins.engines.broker.host.importing",
        "plugins.engines.broker.host.shards",
        "plugins.engines.broker.storage",
        "kernel.hosting.lease",
        "kernel.threads.caller_thread",
    }
    assert not unused & imported
    assert {name for name in imported if re.fullmatch(r"plugins\..*options", name)} == {
        "plugins.engines.broker.host.options"
    }
    assert not [name for name in imported if re.match(r"plugins\.protocols\.\w+\.(?!plugin)", name)]
