"""The reference page comes from the options classes, and the committed one is fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kernel.plugins import PluginRegistry
from kernel.topology.reference import options_of, reference
from plugins.engines.broker.contract import FRONT_ENDS

PAGE = Path(__file__).parents[3] / "docs" / "config_reference.md"


class Inner(msgspec.Struct):
    """Something inside."""

    depth: int = 1
    """How far."""


class Options(msgspec.Struct, kw_only=True):
    """Everything."""

    name: str
    """What it is
    called: ``x``."""
    size: Annotated[int, msgspec.Meta(ge=1, lt=9)] = 3
    mode: Literal["a", "b"] = "a"
    inner: Inner = msgspec.field(default_factory=Inner)
    many: list[str] | None = None


def test_options_are_described_from_their_class() -> None:
    shown = [(each.name, each.value, each.default, each.text) for each in options_of(Options)]
    assert shown == [
        ("name", "text", "required", "What it is called: `x`."),
        ("size", "whole number ≥ 1 and < 9", "`3`", ""),
        ("mode", '`"a"` or `"b"`', '`"a"`', ""),
        ("inner", "table", "as below", ""),
        ("many", "list of text", "", ""),
    ]


def test_the_committed_page_is_what_the_classes_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(PluginRegistry.load()), "run `make docs`"


def test_every_option_of_ours_is_documented() -> None:
    registry = PluginRegistry.load()
    silent = [
        f"{kind}.{option.name}"
        for group in ("engines", "apis", "protocols", "routers", "thread_kinds", "jobs")
        for kind, installed in registry.group(group).items()
        for option in options_of(installed.kind.options_class())
        if not option.text and not option.value.startswith("`")
    ]
    assert silent == []


# Any number will do: of several policies, the one with the highest counts.
ANY_NUMBER = {"priority"}


def test_every_number_in_a_topology_has_a_range() -> None:
    registry = PluginRegistry.load()
    groups = ("engines", "apis", "protocols", "routers", "thread_kinds", "front-ends")
    seen: set[type] = set()
    without = [
        found
        for group in groups
        for kind, installed in (
            registry.kinds(FRONT_ENDS) if group == "front-ends" else registry.group(group)
        ).items()
        for found in _without_range(kind, getattr(installed, "kind", installed).options_class(), seen)
    ]
    assert without == []


def _without_range(where: str, options: type[msgspec.Struct], seen: set[type]) -> Iterator[str]:
    seen.add(options)
    for option in options_of(options):
        if (
            option.value in ("whole number", "number", "list of whole number")
            and option.name not in ANY_NUMBER
        ):
            yield f"{where}.{option.name}"
        if option.inner is not None and option.inner not in seen:
            yield from _without_range(f"{where}.{option.name}", option.inner, seen)
