"""``kernel tap`` and ``kernel explain`` for an engine of a stranger, whose kind brings options of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import Asked
from kernel.plugins import PluginRegistry
from kernel.topology.control import ControlServer
from kernel.topology.explaining import Question
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from kernel.topology.tap import TapWanted
from tests.kernel.cli.test_commands import Command, kernel
from tests.kernel.test_plugins import distribution, site

__all__ = ["kernel", "site"]

CHAT = """
import trio
from kernel import hookimpl
from kernel.contracts.errors import KernelError
from kernel.contracts.explaining import row
from kernel.contracts.kinds import Asked, EngineKind
from kernel.contracts.message import Envelope
from kernel.contracts.shown import shown

PLACE = Asked(name="network", default="home", help="The network of the channel.")
CHANNEL = Asked(name="channel", metavar="NAME", help="What is said in this channel.")
SPEAKER = Asked(name="said-by", help="Who says it.")

class Chat:
    def __init__(self):
        self.argument = None
    async def run(self, host, *, task_status):
        task_status.started("")
        await trio.sleep_forever()
    def statistics(self):
        return {}
    def operate(self, what, argument):
        if what == "tap":
            self.argument = argument
            return {"tap": 7}
        if what == "tap-read":
            assert argument["tap"] == 7
            return {"messages": [shown(Envelope(key="said"), str(self.argument).encode())], "dropped": 3}
        if what == "tap-end":
            return {}
        if argument.get("channel") == "secret":
            raise KernelError("nobody may ask for that channel")
        return {"rows": [row("channel", str(argument), gets=True, why="it is there")], "messages": [{"key": "said"}]}

@hookimpl
def register_engines():
    return [EngineKind(
        name="chat",
        summary="people",
        create=lambda setup: Chat(),
        operations=("explain", "tap", "tap-read", "tap-end"),
        asked={"tap": (CHANNEL, PLACE), "explain": (CHANNEL, PLACE, SPEAKER)},
    )]
"""
PLAN = Plan(
    engines=(EnginePlan(name="irc", kind="chat"), EnginePlan(name="log", kind="native")),
    routes=(RoutePlan(source="irc", targets=("log",)),),
)


@pytest.fixture
def system(site: Path) -> Iterator[Kernel]:
    distribution(site, "stranger", {"chat": CHAT})
    with Kernel(PLAN, PluginRegistry.load(environ={})) as system:
        system.wait_running()
        yield system


@pytest.fixture
def control(system: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("control") / "c.sock"
    with ControlServer(system, path):
        yield path


def test_help_shows_the_options_of_all_kinds(kernel: Command, control: Path) -> None:
    shown = kernel("tap", "--help")[1]
    assert "--channel NAME" in shown
    assert "What is said in this channel." in shown
    assert "The network of the channel.  [default: home]" in shown
    # Those of the broker, which is a plugin as well; before the command's own.
    places = [shown.index(option) for option in ("--to", "--queue", "--exchange", "--channel", "--key")]
    assert places == sorted(places)
    assert "--said-by" not in shown
    assert "--said-by TEXT" in kernel("explain", "--help")[1]


def test_the_engine_is_asked_with_what_was_given_and_with_the_defaults_of_its_kind(
    kernel: Command, control: Path
) -> None:
    asked = ("tap", "--channel", "#x", "--key", "a", "-n", "1", "--control", control, "--json")
    status, output, errors = kernel(*asked)
    assert (status, errors) == (0, "")
    _, message, end = map(json.loads, output.splitlines())
    expected = {"network": "home", "channel": "#x", "keys": ("a",), "headers": {}, "contains": ""}
    assert message["message"]["body"] == str(expected)
    assert end["dropped"] == 3


def test_an_explanation_goes_on_at_the_routes(kernel: Command, control: Path) -> None:
    asked = ("explain", "--channel=#x", "--said-by", "me", "--network", "work", "--key", "k")
    status, output, errors = kernel(*asked, "--control", control)
    assert (status, errors) == (0, "")
    wanted = {"network": "work", "channel": "#x", "said-by": "me", "key": "k", "headers": {}}
    inside, *routes = output.splitlines()
    assert inside == f"+ channel {wanted}: it is there"
    assert routes[0] == "+ route irc -> log: it has no pattern, so it takes every key"


def test_the_engines_own_complaint_is_shown(kernel: Command, control: Path) -> None:
    status, _, errors = kernel("explain", "--channel", "secret", "--control", control)
    assert (status, "nobody may ask for that channel" in errors) == (1, True)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("tap", "--queue", "q"), "no engine of this system can tap with --queue; watch routes: --from"),
        (("tap", "--from", "log", "--channel", "#x"), "engine 'log' cannot tap with --channel; engines that can: irc"),
        (("tap", "--to", "log", "--channel", "#x"), "engine 'log' cannot tap with --channel; engines that can: irc"),
        (("explain", "--from", "log", "--channel", "#x"), "engine 'log' cannot explain with --channel; engines that can: irc"),
        (("explain", "--chanel", "#x"), "No such option '--chanel'"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_be_asked_is_said(
    kernel: Command, control: Path, arguments: tuple[str, ...], said: str
) -> None:
    status, _, errors = kernel(*arguments, "--control", control)
    assert status != 0
    assert said in errors


def test_a_program_asks_in_the_same_way(system: Kernel) -> None:
    tap = system.tap(TapWanted(source="irc", asked={"channel": "#x"}))
    (row,) = tap.read(60.0)
    assert "'network': 'home', 'channel': '#x'" in row["body"]
    tap.close()
    assert system.explain(Question(asked={"said-by": "me"})).engine == "irc"
    with pytest.raises(KernelError, match="no engine of this system can explain with --queue"):
        system.explain(Question(asked={"queue": "q"}))


def test_where_several_engines_can_one_has_to_be_named(site: Path) -> None:
    distribution(site, "stranger", {"chat": CHAT})
    plan = Plan(engines=tuple(EnginePlan(name=name, kind="chat") for name in ("one", "two")))
    with Kernel(plan, PluginRegistry.load(environ={})) as system:
        with pytest.raises(
            KernelError, match="several engines can tap with --channel; say which: --from one | two"
        ):
            system.tap(TapWanted(asked={"channel": "#x"}))
        with pytest.raises(KernelError, match="several engines can explain; say which"):
            system.explain(Question(key="k"))


@pytest.mark.parametrize("name", ["key", "only", "", "Channel", "two words", "-x", "a--b"])
def test_an_option_of_a_kind_must_not_be_one_of_the_command(name: str) -> None:
    with pytest.raises(ValueError, match="option"):
        Asked(name=name, help="")


def test_plugins_are_not_loaded_for_the_commands_own_options(
    kernel: Command, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PluginRegistry, "load", None)
    assert kernel("explain", "--from", "irc", "--key", "k", "--control", control)[0] == 0
