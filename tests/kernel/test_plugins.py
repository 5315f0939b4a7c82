"""Plugins are found by entry points; a bad one is refused by name and takes nobody down."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kernel import API_LEVEL, hookimpl, hookspec
from kernel.contracts.errors import PluginError, UnknownName
from kernel.contracts.kinds import (
    CommandKind,
    EngineKind,
    Kind,
    KindGroup,
    NoOptions,
    ProtocolKind,
    RouterKind,
    Side,
    Table,
)
from kernel.plugins import GROUP, Origin, PluginRegistry
from tests.line_protocol import LineProtocol

HEADER = """
from kernel import hookimpl
from kernel.contracts.kinds import *
def make(*arguments): raise NotImplementedError
"""
GOOD = (
    HEADER
    + """
@hookimpl
def register_engines():
    return [EngineKind(name="good", summary="does nothing, well", create=make)]
"""
)
BAD = {
    "raises": ("raise RuntimeError('broken\\n  in two lines')", "RuntimeError: broken; in two lines"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "lacks": ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
    "syntax": ("def (", "SyntaxError: invalid syntax"),
    "newer": (
        f"REQUIRES_API_LEVEL = {API_LEVEL + 1}",
        f"it requires API level {API_LEVEL + 1}; this kernel has {API_LEVEL}",
    ),
    "misspelt": (HEADER + "@hookimpl\ndef register_engine(): return []", "unknown hook 'register_engine'"),
    "arguments": (HEADER + "@hookimpl\ndef register_engines(loop): return []", "definition"),
    "answer": (
        HEADER + "@hookimpl\ndef register_engines(): return 3",
        "its register_engines returned int, not an iterable",
    ),
    "other": (
        HEADER + "@hookimpl\ndef register_engines(): return [RouterKind(name='x', summary='', create=make)]",
        "its register_engines returned a RouterKind, not a EngineKind",
    ),
    "hook": (HEADER + "@hookimpl\ndef register_routers(): raise ValueError('no')", "ValueError: no"),
    "generator": (
        HEADER + "@hookimpl\ndef register_routers():\n  yield 1/0",
        "ZeroDivisionError: division by zero",
    ),
    "nameless": (
        HEADER
        + "@hookimpl\ndef register_routers(): return [RouterKind(name='a b', summary='', create=make)]",
        "its register_routers returned a RouterKind with the name 'a b'",
    ),
    "options": (
        HEADER
        + "@hookimpl\ndef register_routers(): return [RouterKind(name='a', summary='', create=make, options=dict)]",
        "the options of 'a' are <class 'dict'>, not a msgspec.Struct class",
    ),
    "ours": (
        HEADER
        + "@hookimpl\ndef register_routers(): return [RouterKind(name='fan-out', summary='', create=make)]",
        "its router 'fan-out' exists already, from plugin 'builtin' of messaging-kernel",
    ),
    "twice": (
        HEADER
        + "@hookimpl\ndef register_routers(): return [RouterKind(name='a', summary='', create=make) for _ in 'ab']",
        "it registers router 'a' twice",
    ),
    "both": (
        HEADER
        + "@hookimpl\ndef register_engines(): return [EngineKind(name='a', summary='', create=make)]\n"
        + "@hookimpl\ndef register_apis(): return [ApiKind(name='a', summary='', create=make)]",
        "it registers api 'a' twice",
    ),
}


def distribution(folder: Path, name: str, plugins: dict[str, str], version: str = "1.2") -> None:
    """Write what an installer leaves behind for a distribution of these plugins (name to source)."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{plugin} = {name}_{plugin}" for plugin in plugins]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
    for plugin, source in plugins.items():
        (folder / f"{name}_{plugin}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python looks for distributions in."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("stranger_", "other_", "bad_")):
            del sys.modules[name]


def test_ours_are_found_in_the_way_that_strangers_are(site: Path) -> None:
    distribution(site, "stranger", {"good": GOOD})
    registry = PluginRegistry.load(environ={})
    assert {"stream", "good"} <= set(registry.engines)
    assert registry.engines["good"].origin == Origin("good", "stranger", "1.2")
    assert registry.engines["stream"].origin.distribution == "messaging-kernel"
    assert registry.kind("engines", "good").summary == "does nothing, well"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plugin_is_refused_by_name_and_takes_nobody_down(name: str, site: Path) -> None:
    source, reason = BAD[name]
    distribution(site, "bad", {name: source})
    distribution(site, "stranger", {"good": GOOD})
    registry = PluginRegistry.load(environ={})
    (refused,) = [refused for refused in registry.refused if refused.origin.distribution == "bad"]
    assert str(refused).startswith(f"plugin '{name}' of bad 1.2 is refused: ")
    assert reason in refused.reason
    assert "\n" not in refused.reason
    assert "good" in registry.engines
    assert "a" not in {*registry.routers, *registry.engines, *registry.apis}
    assert name not in registry.plugins


def test_ours_come_first_and_of_two_strangers_the_second_is_refused(site: Path) -> None:
    distribution(site, "other", {"aaa": GOOD})
    distribution(site, "stranger", {"bbb": GOOD, "stream": GOOD.replace('"good"', '"better"')})
    registry = PluginRegistry.load(environ={})
    reasons = {
        refused.origin.plugin: refused.reason for refused in registry.refused if "stranger" in str(refused)
    }
    assert reasons["bbb"] == "its engine kind 'good' exists already, from plugin 'aaa' of other 1.2"
    assert reasons["stream"].startswith(
        "there is a plugin of that name already: plugin 'stream' of messaging-kernel"
    )
    assert "better" not in registry.engines


def test_the_environment_says_what_is_loaded(site: Path) -> None:
    distribution(site, "stranger", {"good": GOOD})
    only = PluginRegistry.load(environ={"KERNEL_PLUGINS": "good"})
    assert set(only.engines) == {"good"}
    assert only.routers  # the kernel's own are always there
    without = PluginRegistry.load(environ={"KERNEL_PLUGINS": "-good, -native"})
    assert "good" not in without.engines
    assert "native" not in without.apis
    assert "stream" in without.engines
    left_out = "plugin 'native' is installed, and KERNEL_PLUGINS leaves it out; change that variable"
    assert without.hint("engines", "native") == left_out
    (refused,) = PluginRegistry.load(environ={"KERNEL_PLUGINS": "nothing"}).refused
    assert str(refused) == "KERNEL_PLUGINS names 'nothing', which is not installed"


def test_what_is_installed_or_removed_between_two_kernels_is_seen(site: Path) -> None:
    assert "good" not in PluginRegistry.load(environ={}).engines
    distribution(site, "stranger", {"good": GOOD})
    assert "good" in PluginRegistry.load(environ={}).engines
    shutil.rmtree(site / "stranger-1.2.dist-info")
    assert "good" not in PluginRegistry.load(environ={}).engines


def test_the_current_folder_is_looked_into_after_a_change_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    distribution(tmp_path / "here", "stranger", {"lacks": BAD["lacks"][0]})
    monkeypatch.syspath_prepend("")
    monkeypatch.chdir(tmp_path)
    assert "lacks" not in {refused.origin.plugin for refused in PluginRegistry.load(environ={}).refused}
    monkeypatch.chdir("here")
    assert "lacks" in {refused.origin.plugin for refused in PluginRegistry.load(environ={}).refused}


def test_a_second_kernel_does_not_look_through_all_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = PluginRegistry.load(environ={})
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [])
    assert PluginRegistry.load(environ={}).plugins == first.plugins


def test_an_unknown_kind_comes_with_the_nearest_or_with_the_reason(site: Path) -> None:
    distribution(site, "bad", {"raises": BAD["raises"][0]})
    registry = PluginRegistry.load(environ={})
    with pytest.raises(UnknownName, match="unknown router 'fan_out'; did you mean 'fan-out'?"):
        registry.kind("routers", "fan_out")
    with pytest.raises(UnknownName, match="unknown engine kind 'natve'; did you mean 'native'?"):
        registry.kind("engines", "natve")
    with pytest.raises(UnknownName, match="installed: guest, poll"):
        registry.kind("thread_kinds", "zzz")
    with pytest.raises(UnknownName, match="plugin 'raises' of bad 1.2 is refused: RuntimeError"):
        registry.kind("engines", "raises")


def test_options_that_are_gone_are_not_mistaken_for_others() -> None:
    made: list[Any] = []

    def create(options: Any, side: Side) -> LineProtocol:
        made.append(options)
        return LineProtocol()

    kind = ProtocolKind(name="counted", summary="s", options=Counted, create=create)
    make_protocol = registry_of(p=plugin(register_protocols=lambda: [kind])).protocol_maker()
    for number in range(100):
        make_protocol("counted", {"number": number}, "client")  # nobody else keeps this dict
    assert [options.number for options in made] == list(range(100))


def test_an_entry_point_made_by_hand_has_an_origin_too() -> None:
    point = metadata.EntryPoint("hand", "not_there_at_all", GROUP)
    (refused,) = PluginRegistry.load([point]).refused
    assert str(refused.origin) == "plugin 'hand' of an unknown distribution "


def plugin(**hooks: Any) -> ModuleType:
    module = ModuleType("made")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def registry_of(**plugins: ModuleType) -> PluginRegistry:
    registry = PluginRegistry()
    for name, module in plugins.items():
        registry.add(module, Origin(name, "test", "1"))
    return registry


def nothing(*_: Any) -> Any:
    raise NotImplementedError


class Counted(msgspec.Struct):
    """Options with a number."""

    number: int = 0


class ColourKind(Kind, frozen=True, kw_only=True):
    """What the plugin of a stranger lets others bring."""

    red: float = 0


@hookspec
def register_colours() -> list[ColourKind]:  # type: ignore[empty-body]
    """Return colours."""


COLOURS = KindGroup(hook=register_colours, kind=ColourKind, noun="colour", title="Colours")


# One test for each hook, named after it.


def test_hook_register_kind_groups() -> None:
    painter = plugin(
        register_kind_groups=lambda: [COLOURS], register_colours=lambda: [ColourKind(name="r", summary="")]
    )
    registry = registry_of(
        a=painter, b=plugin(register_colours=lambda: [ColourKind(name="g", summary="", red=0.1)])
    )
    assert {name: kind.red for name, kind in registry.kinds(COLOURS).items()} == {"r": 0, "g": 0.1}
    assert registry.groups["colours"] is COLOURS
    assert registry.group("colours")["g"].origin.plugin == "b"


def test_hook_register_protocols() -> None:
    kind = ProtocolKind(name="p", summary="", create=nothing)
    assert registry_of(a=plugin(register_protocols=lambda: [kind])).protocols["p"].kind is kind


def test_hook_register_engines() -> None:
    kind = EngineKind(name="e", summary="", create=nothing)
    assert registry_of(a=plugin(register_engines=lambda: (kind,))).engines["e"].kind is kind


def test_hook_register_routers() -> None:
    kind = RouterKind(name="r", summary="", create=nothing)
    assert registry_of(a=plugin(register_routers=lambda: iter([kind]))).routers["r"].kind is kind


def test_hook_register_thread_kinds() -> None:
    assert "poll" in PluginRegistry.load([]).thread_kinds


def test_hook_register_apis() -> None:
    assert "native" in PluginRegistry.load().apis


def test_hook_register_commands() -> None:
    kind = CommandKind(name="c", summary="", load=nothing)
    assert registry_of(a=plugin(register_commands=lambda: [kind])).commands["c"].kind is kind


def test_hook_check_plan(caplog: pytest.LogCaptureFixture) -> None:
    def generated(plan: str) -> Any:
        yield f"{plan} is too short"

    registry = registry_of(
        good=plugin(check_plan=generated),
        silent=plugin(check_plan=lambda plan: []),
        text=plugin(check_plan=lambda: "one text"),
        bad=plugin(check_plan=lambda plan: 1 / 0),
    )
    with caplog.at_level(logging.CRITICAL):
        complaints = registry.check_plan("it")
    assert sorted(complaints) == [
        "failed in check_plan: ZeroDivisionError: division by zero (plugin 'bad' of test 1)",
        "it is too short (plugin 'good' of test 1)",
        "one text (plugin 'text' of test 1)",
    ]


def test_hook_warn_of_plan() -> None:
    registry = registry_of(a=plugin(warn_of_plan=lambda plan: [f"{plan} is long"]))
    assert registry.warn_of_plan("it") == ["it is long (plugin 'a' of test 1)"]


def test_hook_kernel_started() -> None:
    seen: list[object] = []

    def fails(kernel: object) -> None:
        raise RuntimeError

    registry = registry_of(
        bad=plugin(kernel_started=fails), good=plugin(kernel_started=lambda kernel: seen.append(kernel))
    )
    registry.kernel_started("kernel")
    assert seen == ["kernel"]


def test_hook_kernel_stopping() -> None:
    seen: list[tuple[object, str]] = []
    registry = registry_of(a=plugin(kernel_stopping=lambda kernel, reason: seen.append((kernel, reason))))
    registry.kernel_stopping("kernel", "because")
    assert seen == [("kernel", "because")]


def test_a_refused_plugin_leaves_nothing_behind() -> None:
    seen: list[object] = []

    class Odd(msgspec.Struct):
        name: str = "odd"

    bad = plugin(register_routers=lambda: [Odd()], kernel_started=lambda kernel: seen.append(kernel))
    registry = registry_of()
    with pytest.raises(PluginError, match="returned a Odd, not a RouterKind"):
        registry.add(bad, Origin("a", "test", "1"))
    registry.kernel_started("kernel")
    assert seen == []
    registry.add(plugin(), Origin("a", "test", "1"))  # the name is free


def test_kinds_of_a_group_of_a_plugin_are_checked_as_ours_are() -> None:
    registry = registry_of(a=plugin(register_kind_groups=lambda: [COLOURS]), c=_red())
    router = RouterKind(name="r", summary="", create=nothing)
    with pytest.raises(PluginError, match="its register_colours returned a RouterKind, not a ColourKind"):
        registry.add(plugin(register_colours=lambda: [router]), Origin("b", "test", "1"))
    with pytest.raises(PluginError, match="its colour 'red' exists already, from plugin 'c' of test 1"):
        registry.add(_red(), Origin("d", "test", "1"))
    with pytest.raises(UnknownName, match=r"unknown colour 'rad'; did you mean 'red'\?"):
        registry.kind("colours", "rad")


def _red() -> ModuleType:
    return plugin(register_colours=lambda: [ColourKind(name="red", summary="")])


def test_without_the_plugin_that_announces_a_group_its_hook_is_unknown() -> None:
    with pytest.raises(PluginError, match="unknown hook 'register_colours'"):
        registry_of(b=_red())
    assert registry_of().kinds(COLOURS) == {}


def test_a_refused_plugin_leaves_no_group_behind() -> None:
    registry = registry_of()
    wrong = plugin(register_kind_groups=lambda: [COLOURS], register_routers=lambda: [1])
    with pytest.raises(PluginError, match="returned a int"):
        registry.add(wrong, Origin("a", "test", "1"))
    assert "colours" not in registry.groups
    registry.add(plugin(register_kind_groups=lambda: [COLOURS]), Origin("a", "test", "1"))
    assert registry.kinds(COLOURS) == {}


def test_several_plugins_may_announce_one_group_but_not_two_of_one_name() -> None:
    announcing = plugin(register_kind_groups=lambda: [COLOURS])
    registry = registry_of(a=announcing, b=plugin(register_kind_groups=lambda: [COLOURS]))
    other = KindGroup(hook=register_colours, kind=RouterKind, noun="colour", title="Others")
    with pytest.raises(PluginError, match="there is a group of kinds 'colours' already"):
        registry.add(plugin(register_kind_groups=lambda: [other]), Origin("c", "test", "1"))


@pytest.mark.parametrize(
    "group, reason",
    [
        (3, "its register_kind_groups returned a int, not a KindGroup"),
        (
            KindGroup(hook=nothing, kind=ColourKind, noun="", title=""),
            "the hook 'nothing' of its group is not a function marked with kernel.hookspec",
        ),
    ],
)
def test_what_is_no_group_is_refused(group: object, reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        registry_of(a=plugin(register_kind_groups=lambda: [group]))


def test_a_plugin_that_announces_a_group_is_loaded_before_those_that_use_it(site: Path) -> None:
    announcing = (
        HEADER
        + """
from kernel import hookspec
class ColourKind(Kind, frozen=True): pass
@hookspec
def register_colours(): pass
@hookimpl
def register_kind_groups():
    return [KindGroup(hook=register_colours, kind=ColourKind, noun="colour", title="Colours")]
"""
    )
    using = HEADER + (
        "@hookimpl\ndef register_colours():\n"
        "  from stranger_zzz import ColourKind\n  return [ColourKind(name='red', summary='')]"
    )
    distribution(site, "other", {"aaa": using})
    distribution(site, "stranger", {"zzz": announcing})
    registry = PluginRegistry.load(environ={})
    assert registry.refused == []
    assert registry.group("colours")["red"].origin.plugin == "aaa"


def test_tables_of_one_name_have_the_columns_of_all_kinds() -> None:
    def kind(name: str, *columns: str) -> EngineKind:
        table = Table(name="clients", title=f"of {name}", columns=columns)
        return EngineKind(name=name, summary="", create=nothing, tables=(table,))

    registry = registry_of(
        a=plugin(register_engines=lambda: [kind("one", "name", "in"), kind("two", "name", "out")])
    )
    assert registry.tables() == {
        "clients": Table(name="clients", title="of one", columns=("name", "in", "out"))
    }


def test_options_may_be_named_and_are_imported_when_they_are_asked_for() -> None:
    def kind(options: str) -> RouterKind:
        return RouterKind(name="a", summary="", create=lambda options: None, options=options)  # type: ignore[arg-type,return-value]

    assert kind("kernel.contracts.kinds:NoOptions").options_class() is NoOptions
    for options, why in (
        ("nowhere:Options", "not at 'nowhere:Options': No module named 'nowhere'"),
        (
            "kernel.contracts.kinds:Options",
            "not at .*: module 'kernel.contracts.kinds' has no attribute 'Options'",
        ),
        ("kernel.contracts.kinds", "has no attribute ''"),
        ("kernel.plugins:GROUP", "are 'kernel.plugins', not a msgspec.Struct class"),
    ):
        with pytest.raises(PluginError, match=f"the options of 'a' .*{why}"):
            kind(options).options_class()


@pytest.mark.parametrize(
    "first", ["from kernel.plugins import PluginRegistry as R; R.load()", "import kernel; kernel.Kernel"]
)
def test_a_kernel_without_engines_imports_nothing_heavy(first: str) -> None:
    code = f"import sys; {first}; print(*sys.modules)"
    modules = set(
        subprocess.run(
            [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert modules.isdisjoint({"trio", "rich", "ssl", "asyncio", "pyspark"})
