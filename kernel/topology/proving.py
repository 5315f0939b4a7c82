"""Proving: what an acknowledgement means to each publisher of a plan, hop by hop, from the plan alone.

For each engine that gives messages to routes, or acknowledges them to its clients, the hops are: what it
keeps itself, and each of its routes with its destinations.  An acknowledgement is worth as much as its
weakest hop, since it says that the message is at all of them.  Nothing is started or opened.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.contracts.assurance import Assurance, Level, rank
from kernel.plugins import PluginRegistry
from kernel.topology.plan import EnginePlan, Plan, RoutePlan

_UNKNOWN = Assurance()


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the message has to be."""

    name: str
    """``broker``, or ``broker -> link``."""
    level: Level
    why: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One source."""

    source: str
    acknowledges: str
    """What its publisher gets; empty: nothing."""
    level: Level
    """That of the weakest hop."""
    weakest: str
    """The name of this hop."""
    hops: tuple[Hop, ...]


def prove(plan: Plan, registry: PluginRegistry) -> list[Proof]:
    """Return a proof for each source of a plan, in the order of its engines."""
    stated = {engine.name: _stated(engine, registry) for engine in plan.engines}
    proofs = []
    for engine in plan.engines:
        routes = _routes_from(engine.name, plan)
        own = stated[engine.name]
        # A sink is nobody's publisher, and a source without routes that acknowledges nothing concerns nobody.
        if routes or (own is not None and own.acknowledges):
            proofs.append(_prove(engine, own, plan, stated))
    return proofs


def _routes_from(name: str, plan: Plan) -> list[RoutePlan]:
    return [route for route in plan.routes if route.source == name]


def _prove(
    engine: EnginePlan, own: Assurance | None, plan: Plan, stated: dict[str, Assurance | None]
) -> Proof:
    said = own or _UNKNOWN
    routes = _routes_from(engine.name, plan)
    hops = []
    # An engine that only passes messages on is no hop of its own. One without routes is the only hop.
    if said.keeps != "nothing" or not routes:
        hops.append(Hop(name=engine.name, level=said.keeps, why=_sentence(said)))
    hops += [_hop(route, said, own is not None, engine.kind, plan, stated) for route in routes]
    if not said.acknowledges:
        why = "its peers get no acknowledgement" if own is not None else _silent(engine.kind)
        # In front: of hops that are equally weak ``min`` takes the first.
        hops.insert(0, Hop(name=engine.name, level="nothing", why=why))
    weakest = min(hops, key=lambda hop: rank(hop.level))
    return Proof(
        source=engine.name,
        acknowledges=said.acknowledges,
        level=weakest.level,
        weakest=weakest.name,
        hops=tuple(hops),
    )


def _hop(
    route: RoutePlan,
    source: Assurance,
    known: bool,
    kind: str,
    plan: Plan,
    stated: dict[str, Assurance | None],
    passed: tuple[str, ...] = (),
) -> Hop:
    """Return what is certain at the end of a route when the source acknowledges.

    ``passed``: engines that pass on what comes through this route.
    """
    full = route.marks.when_full
    # What makes all that follows pointless comes first: a message that is dropped is never confirmed.
    if full != "block":
        return Hop(
            name=route.label, level="nothing", why=f'when_full = "{full}" drops messages when a pipe is full'
        )
    if not route.confirm:
        return Hop(
            name=route.label,
            level="memory",
            why="it has no confirm = true: the message may still be in a pipe",
        )
    if not source.waits:
        why = "the source does not wait for its confirmation" if known else _silent(kind)
        return Hop(name=route.label, level="memory", why=why)
    # Dead letters are an end as well: a refused message counts as confirmed when they have it.
    ends = (*route.targets, *((route.dead_letters,) if route.dead_letters else ()))
    found = [(end, *_end(end, plan, stated, passed)) for end in ends]
    end, level, why = min(found, key=lambda each: rank(each[1]))
    return Hop(name=route.label, level=level, why=f"{end}: {why}")


def _end(
    name: str, plan: Plan, stated: dict[str, Assurance | None], passed: tuple[str, ...]
) -> tuple[Level, str]:
    """Return what a destination's confirmation means, and why."""
    said = stated.get(name)
    if said is None:
        return "nothing", "its kind does not state what its confirmation means"
    if not said.passes_on:
        return said.confirms, _sentence(said)
    # Each of them waits for the next one, so none confirms.
    if name in passed:
        return "nothing", "it passes it on in a circle"
    behind = [
        _hop(route, said, True, "", plan, stated, (*passed, name)) for route in _routes_from(name, plan)
    ]
    if not behind:
        return "nothing", "no route leads from it"
    weakest = min(behind, key=lambda hop: rank(hop.level))
    return weakest.level, f"{said.how}; {weakest.name}: {weakest.why}"


def _sentence(said: Assurance) -> str:
    return f"{said.how}; {said.but}" if said.but else said.how


def _silent(kind: str) -> str:
    return f"kind {kind!r} does not state what its acknowledgement means"


def _stated(engine: EnginePlan, registry: PluginRegistry) -> Assurance | None:
    """Return what the engine's kind states for its options."""
    installed: Any = registry.apis.get(engine.kind) or registry.engine_for(engine.kind, engine.options)
    kind = registry.kind("engines", engine.kind) if installed is None else installed.kind
    if kind.assures is None:
        return None
    return kind.assures(msgspec.convert(engine.options, kind.options_class(), strict=False))  # type: ignore[no-any-return]
