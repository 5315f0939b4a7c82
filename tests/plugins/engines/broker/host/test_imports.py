"""What is imported when: plugins are loaded by every program, and a broker is started by many."""

from __future__ import annotations

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
def test_loading_plugins_imports_the_options_of_brokers_and_nothing_that_works() -> None:
    imported = {name for name in _imported_by(_LOAD) if name.startswith("plugins.engines.broker.")}
    assert imported == {
        "plugins.engines.broker.contract",
        "plugins.engines.broker.host",
        "plugins.engines.broker.host.options",
        "plugins.engines.broker.host.tables",
        "plugins.engines.broker.plugin",
    }


@pytest.mark.slow
def test_a_broker_starts_without_its_in_process_client_and_without_the_import_of_definitions() -> None:
    imported = _imported_by(_START)
    assert "plugins.engines.broker.host.engine" in imported
    unused = {
        "plugins.engines.broker.local",
        "plugins.engines.broker.host.definition_forms",
        "plugins.engines.broker.host.importing",
    }
    assert not unused & imported
