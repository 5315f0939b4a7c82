"""What parts of the project say when packages are missing that only they need."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from kernel import EnginePlan, Kernel, Plan
from kernel.contracts.errors import PlanError, PluginError
from kernel.contracts.extras import Extra
from kernel.contracts.kinds import EngineSetup


@pytest.mark.parametrize(
    "modules, there",
    [
        (("json",), True),
        (("json", "json.decoder"), True),
        (("json", "no_such_package"), False),
        (("no_such_package.within",), False),
        (("json.no_such_module",), False),
    ],
)
def test_an_extra_is_installed_if_all_of_it_is(modules: tuple[str, ...], there: bool) -> None:
    assert Extra("some", "this needs that", modules).is_installed() is there


def test_it_is_not_imported() -> None:
    sys.modules.pop("antigravity", None)
    assert Extra("some", "this needs that", ("antigravity",)).is_installed()
    assert "antigravity" not in sys.modules


def test_the_error_says_what_to_install() -> None:
    with pytest.raises(PluginError, match=r"^this needs that: pip install 'messaging-kernel\[some\]'$"):
        Extra("some", "this needs that", ("no_such_package",)).need()


@pytest.mark.parametrize(
    "kind, options, packages, sentence",
    [
        ("journal", {"path": "x"}, ["pyarrow"], "a journal needs pyarrow"),
        ("traces", {}, ["opentelemetry.sdk", "opentelemetry"], "traces need OpenTelemetry"),
        ("web", {}, ["h11"], "pages over HTTP need h11 and prometheus-client"),
        ("web", {}, ["prometheus_client"], "pages over HTTP need h11 and prometheus-client"),
    ],
)
def test_a_topology_that_needs_what_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, Any], packages: list[str], sentence: str
) -> None:
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name in packages else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    with pytest.raises(PlanError, match=f"engine 'it': {sentence}: pip install 'messaging-kernel"):
        Kernel(Plan(engines=(EnginePlan(name="it", kind=kind, options=options),)))


def test_an_engine_that_is_made_without_a_plan_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from plugins.engines.web.plugin import _create

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r"pip install 'messaging-kernel\[web\]'"):
        _create(EngineSetup(name="web", options=None, make_protocol=lambda *_: None))
