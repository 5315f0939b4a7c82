"""The web plugin: one engine kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.extras import Extra
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow

if TYPE_CHECKING:
    from kernel import Plan

_WEB = Extra("web", "pages over HTTP need h11 and prometheus-client", ("h11", "prometheus_client"))


@hookimpl
def register_engines() -> list[EngineKind]:
    """Offer pages over HTTP."""
    return [
        EngineKind(
            name="web",
            summary="pages over HTTP for operators and their tools: a live view, figures for Prometheus, health",
            options="plugins.engines.web.options:WebEngineOptions",
            create=_create,
            flow=lambda options: Flow(takes=False, gives=False),
        )
    ]


@hookimpl
def check_plan(plan: Plan) -> list[str]:
    """Report missing packages, and a broker for the logins that cannot be asked."""
    engines = [engine for engine in plan.engines if engine.kind == "web"]
    complaints = []
    if engines and not _WEB.is_installed():
        complaints.append(f"engine {engines[0].name!r}: {_WEB.complaint()}")
    for engine in engines:
        name = engine.options.get("broker", "")
        if name and (why := plan.why_not_asked(engine.name, name)):
            known = ", ".join(other.name for other in plan.engines if other is not engine) or "none"
            there = "" if plan.engine(name) else f"; engines: {known}"
            complaints.append(f"engine {engine.name!r}: its broker {name!r} {why}{there}")
    return complaints


@hookimpl
def warn_of_plan(plan: Plan) -> list[str]:
    """Warn of logins that nobody can use for the metrics."""
    return [
        f"engine {engine.name!r}: no user of {broker.name!r} has the tag {needed}, so everybody is refused "
        f'/metrics; add tags = ["monitoring"] to one of [engines.{broker.name}.users]'
        for engine in plan.engines
        if engine.kind == "web"
        and (broker := plan.engine(engine.options.get("broker", ""))) is not None
        and (needed := _tags_that_nobody_has(broker.options))
    ]


def _tags_that_nobody_has(options: Mapping[str, Any]) -> str:
    """Return the tags that the metrics need, if no user has one; else empty."""
    from plugins.engines.web.logins import tags_for

    # Users may come with what a broker imports, or has stored.
    if options.get("definitions") or options.get("data_dir"):
        return ""
    needed = tags_for("monitoring")
    # Without any in the file there is the user guest, who has no tags.
    users = options.get("users", {}).values()
    return "" if any(tag in user.get("tags", ()) for user in users for tag in needed) else " or ".join(needed)


def _create(setup: EngineSetup) -> Engine:
    _WEB.need()
    # Imported here: h11 and prometheus-client take longer than the kernel itself.
    from plugins.engines.web.engine import WebEngine

    return WebEngine(setup)
