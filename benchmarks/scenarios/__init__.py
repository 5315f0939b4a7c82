"""One file for each group of rows.  ``python -m benchmarks`` runs every module with a ``SCENARIO``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.scenario import Scenario

_ORDER = (
    "oneway_single",
    "oneway_batch",
    "oneway_keys",
    "oneway_large",
    "roundtrip_poll",
    "roundtrip_xmode",
    "inprocess",
    "fanout",
    "match",
    "idle_connections",
    "idle_cpu",
    "start_up",
)
"""As people think of them; what is not named here comes after them, by its name."""


def all_scenarios() -> list[Scenario]:
    """Return what there is, in the order of the table."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    found = [module.SCENARIO for module in modules if hasattr(module, "SCENARIO")]
    return sorted(found, key=lambda it: _ORDER.index(it.name) if it.name in _ORDER else len(_ORDER))
