"""Asking: which engines can be asked for what, with options that their kinds bring (``EngineKind.asked``).

The kernel does not know what such an option means.  It finds an engine that takes all that were given, and
hands them on.  An option may be the value of a field of the envelope, by which routes choose as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import Asked
from kernel.plugins import PluginRegistry
from kernel.topology.plan import Plan

if TYPE_CHECKING:
    from kernel.topology.system import Kernel

_FIELDS = ("exchange",)
"""Fields of the envelope that are options of a route."""


def engines_with(plan: Plan, registry: PluginRegistry, operation: str) -> list[str]:
    """Return the names of the engines whose kind has an operation."""
    return [
        engine.name
        for engine in plan.engines
        if (kind := registry.engines.get(engine.kind)) is not None and operation in kind.kind.operations
    ]


def engines_asked(kernel: Kernel, operation: str, names: Iterable[str]) -> list[str]:
    """Return the names of the engines that have an operation and take all of these options with it."""
    wanted = set(names)
    return [
        name
        for name in kernel.engines_with(operation)
        if wanted.issubset(each.name for each in _taken(kernel, operation, name))
    ]


def only_engine(kernel: Kernel, operation: str, names: Iterable[str], otherwise: str) -> str:
    """Return the only engine that can be asked so.  ``otherwise``: what to do if there is none."""
    able = engines_asked(kernel, operation, names)
    if not able:
        raise KernelError(f"no engine of this system can {operation}{_with(names)}; {otherwise}")
    if len(able) > 1:
        raise KernelError(
            f"several engines can {operation}{_with(names)}; say which: --from {' | '.join(able)}"
        )
    return able[0]


def argument_for(kernel: Kernel, operation: str, engine: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return with what to ask an engine: what was given, and what its kind has by default."""
    taken = _taken(kernel, operation, engine)
    return {each.name: each.default for each in taken if each.default is not None} | dict(asked)


def fields_of(kernel: Kernel, operation: str, engine: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return by which fields of envelopes the routes of an engine choose: those that were asked for.

    ``KernelError``: an option is no such field, and only engines know what it means.
    """
    announced = kernel.registry.asked(operation)
    # An option of routes is known also where no kind of engine that announces it is loaded.
    fields = {name: announced[name].field if name in announced else name for name in asked}
    others = [name for name, field in fields.items() if field not in _FIELDS]
    if others:
        able = ", ".join(engines_asked(kernel, operation, others)) or "none of this system"
        raise KernelError(f"engine {engine!r} cannot {operation}{_with(others)}; engines that can: {able}")
    return {field: asked[name] for name, field in fields.items()}


def _taken(kernel: Kernel, operation: str, engine: str) -> tuple[Asked, ...]:
    plan = kernel.plan.engine(engine)
    kind = None if plan is None else kernel.registry.engines.get(plan.kind)
    taken: tuple[Asked, ...] = () if kind is None else kind.kind.asked.get(operation, ())
    return taken


def _with(names: Iterable[str]) -> str:
    options = " ".join(f"--{name}" for name in names)
    return f" with {options}" if options else ""
