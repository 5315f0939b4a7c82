"""``kernel NAME`` for what an engine of a stranger can be inspected for; with a command and a hook of the stranger's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.plugins import PluginRegistry
from kernel.topology.control import ControlServer, ask
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from tests.kernel.cli.test_commands import Command, kernel
from tests.kernel.test_plugins import distribution, site

__all__ = ["kernel", "site"]

WEATHER = """
import trio, click
from kernel import hookimpl, hookspec
from kernel.contracts.kinds import CommandKind, EngineKind, Kind, KindGroup, Table

class GaugeKind(Kind, frozen=True, kw_only=True):
    degrees: float

@hookspec
def register_gauges():
    '''Return gauges.'''

GAUGES = KindGroup(hook=register_gauges, kind=GaugeKind, noun="gauge", title="Gauges")

class Station:
    def __init__(self, gauges):
        self.gauges = gauges
    async def run(self, host, *, task_status):
        task_status.started("")
        await trio.sleep_forever()
    def statistics(self):
        return {}
    def inspect(self, what):
        if what != "gauges":
            return []
        return [{"name": name, "degrees": kind.degrees, "hidden": 1} for name, kind in self.gauges.items()]

@hookimpl
def register_kind_groups():
    return [GAUGES]

@hookimpl
def register_engines():
    table = Table(name="gauges", title="List the gauges of a running system.", columns=("name", "degrees"))
    return [EngineKind(name="station", summary="weather", tables=(table,), create=lambda setup: Station(setup.kinds(GAUGES)))]

@hookimpl
def register_commands():
    return [CommandKind(name="forecast", summary="Say what comes.", load=load)]

def load():
    @click.command("forecast")
    def command():
        click.echo("rain")
    return command
"""
GAUGE = """
from kernel import hookimpl

@hookimpl
def register_gauges():
    from stranger_weather import GaugeKind
    return [GaugeKind(name="roof", summary="on the roof", degrees=-2.5)]
"""


@pytest.fixture
def control(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A system with the engine of a stranger, for which another stranger has brought a gauge."""
    distribution(site, "stranger", {"weather": WEATHER})
    distribution(site, "other", {"gauge": GAUGE})
    registry = PluginRegistry.load(environ={})
    path = tmp_path_factory.mktemp("control") / "c.sock"
    plan = Plan(engines=(EnginePlan(name="here", kind="station"),))
    with Kernel(plan, registry) as system, ControlServer(system, path):
        system.wait_running()
        yield path


def test_rows_of_the_engine_are_a_table_with_the_announced_columns(kernel: Command, control: Path) -> None:
    status, shown, errors = kernel("gauges", "--control", control)
    assert [line.split() for line in shown.splitlines()] == [
        ["engine", "name", "degrees"],
        ["here", "roof", "-2.5"],
    ]
    assert (status, errors) == (0, "")


def test_it_has_the_options_of_every_table(kernel: Command, control: Path) -> None:
    status, shown, _ = kernel("gauges", "--control", control, "--json", "--watch", "0.01", "--looks", "1")
    assert json.loads(shown) == [{"engine": "here", "name": "roof", "degrees": -2.5, "hidden": 1}]
    status, shown, _ = kernel("gauges", "--help")
    assert status == 0
    assert "List the gauges of a running system." in shown
    assert "--watch" in shown


def test_help_lists_the_table_and_the_command(kernel: Command, control: Path) -> None:
    shown = kernel("--help")[1]
    assert "List the gauges of a running system." in shown
    assert "Say what comes." in shown
    assert kernel("forecast")[1] == "rain\n"


def test_kinds_of_the_strangers_hook_are_listed_with_their_noun(kernel: Command, control: Path) -> None:
    shown = kernel("plugins")[1]
    assert ["gauge", "roof", "on", "the", "roof", "other", "1.2"] in [
        line.split() for line in shown.splitlines()
    ]
    assert kernel("plugins", "roof")[1].splitlines()[0] == "gauge roof: on the roof"


def test_a_table_without_columns_is_for_programs_only(kernel: Command, site: Path, tmp_path: Path) -> None:
    source = WEATHER.replace('columns=("name", "degrees")', "columns=()")
    distribution(site, "stranger", {"weather": source})
    plan = Plan(engines=(EnginePlan(name="here", kind="station"),))
    with Kernel(plan, PluginRegistry.load(environ={})) as system, ControlServer(system, tmp_path / "c"):
        system.wait_running()
        status, _, errors = kernel("gauges", "--control", tmp_path / "c")
        assert status == 2
        assert "there is no command 'gauges'" in errors
        assert ask(tmp_path / "c", "gauges")["rows"] == []
