"""One file for each group of rows.  Every module in this folder with a ``SCENARIO`` is run by ``python -m benchmarks``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.scenario import Scenario


def all_scenarios() -> list[Scenario]:
    """Return what there is, in the order of the names of the files."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    return [module.SCENARIO for module in modules if hasattr(module, "SCENARIO")]
