"""Explaining: who would get a message, from an engine on, and for those who would not, why.

The routes are explained here, from the plan and as their filters decide.  What happens inside an engine the
engine explains itself: the one where the message begins, and those to which routes lead.  What it can be
asked with is announced by its kind (``kernel.topology.asking``).  ``kernel.contracts.explaining`` has the
form of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.errors import KernelError, UnknownName, nearest
from kernel.contracts.explaining import Row, row
from kernel.contracts.key_trie import key_filter
from kernel.topology.asking import argument_for, engines_asked, fields_of, only_engine
from kernel.topology.plan import RoutePlan

if TYPE_CHECKING:
    from kernel.topology.system import Kernel


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message, and where it begins."""

    engine: str = ""
    """The engine that sends it, or to whose clients it belongs; empty: the only one that can be asked so."""
    key: str = ""
    headers: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    """What else is said of it: options that the engine's kind brings (``EngineKind.asked``)."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    engine: str
    rows: list[Row]


def explain(kernel: Kernel, question: Question, timeout: float) -> Explanation:
    """Ask the engine where the message begins, and explain the routes from there."""
    asked = question.asked
    name = question.engine or only_engine(
        kernel, "explain", asked, "say where the message begins: --from ENGINE"
    )
    plan = kernel.plan
    names = [engine.name for engine in plan.engines]
    if name not in names and not any(route.source == name for route in plan.routes):
        raise UnknownName(f"there is no engine {name!r}; {nearest(name, names)}")
    routes = _Routes(kernel, question, timeout)
    if name not in engines_asked(kernel, "explain", asked):
        fields = fields_of(kernel, "explain", name, asked)
        return Explanation(engine=name, rows=routes.rows(name, fields.get("exchange", ""), question.key))
    wanted = {
        **argument_for(kernel, "explain", name, asked),
        "key": question.key,
        "headers": question.headers,
    }
    answer = kernel.operate(name, "explain", wanted, timeout)
    rows: list[Row] = list(answer["rows"])
    for message in answer["messages"]:
        rows += routes.rows(name, message.get("exchange", ""), message["key"])
    return Explanation(engine=name, rows=rows)


class _Routes:
    """Explains the routes from an engine, and the engines behind them."""

    def __init__(self, kernel: Kernel, question: Question, timeout: float) -> None:
        self._kernel = kernel
        self._able = kernel.engines_with("explain")
        self._question = question
        self._timeout = timeout
        self._states = {state.name: state for state in kernel.engine_states()}
        self._open = {port.name for port in kernel.statistics().ports if port.ports}

    def rows(self, source: str, exchange: str, key: str) -> list[Row]:
        """Return a row for each route that begins at ``source``."""
        routes = [route for route in self._kernel.plan.routes if route.source == source]
        return [self._route(route, exchange, key) for route in routes]

    def _route(self, route: RoutePlan, exchange: str, key: str) -> Row:
        gets, why = _filter(route, exchange, key)
        made = row("route", route.label, gets=gets, why=why)
        if not gets:
            return made
        made["notes"].append(
            f"router {route.router}: {self._kernel.registry.kind('routers', route.router).summary}"
        )
        if route.marks.when_full != "block":
            made["notes"].append(f"{route.marks.when_full}: a destination that is full loses messages")
        if route.dead_letters is not None:
            made["notes"].append(f"what a destination refuses goes to {route.dead_letters!r}")
        made["next"] = [self._target(target, exchange, key) for target in route.targets]
        for target in made["next"]:
            if target["name"] not in self._open:
                self._explain_absence(target, route)
        return made

    def _explain_absence(self, made: Row, route: RoutePlan) -> None:
        """The destination has no port now.

        A client of a bridge is not connected, or no application has opened it.
        """
        made["gets"] = False
        waits = (
            route.marks.when_full == "block"
            and self._kernel.registry.kind("routers", route.router).by_content is False
        )
        here = "it has no connection now" if made["name"] in self._states else "no application has opened it"
        then = (
            "messages wait for it, and their source waits with them"
            if waits
            else "messages are dropped and counted"
        )
        made["notes"].append(f"{here}: {then}")

    def _target(self, name: str, exchange: str, key: str) -> Row:
        plan = self._kernel.plan.engine(name)
        state = self._states.get(name)
        kind = "opened by an application" if plan is None else f"kind {plan.kind!r}"
        made = row("engine", name, gets=True, why=kind)
        if state is not None and state.state != "running":
            made["gets"] = False
            made["notes"].append(f"it is {state.state} now {state.last_failure}".rstrip())
        elif name in self._able:
            wanted = {"exchange": exchange, "key": key, "headers": self._question.headers, "routed": True}
            try:
                made["next"] = self._kernel.operate(name, "explain", wanted, self._timeout)["rows"]
            except KernelError as error:
                made["notes"].append(str(error))
        return made


def _filter(route: RoutePlan, exchange: str, key: str) -> tuple[bool, str]:
    """Return what the filter of a route does with a message, and why."""
    if route.exchange is not None and route.exchange != exchange:
        return False, f"it is for exchange {route.exchange!r}, and the message has {exchange!r}"
    if not route.match:
        return True, "it has no pattern, so it takes every key"
    found = next((pattern for pattern in route.match if key_filter((pattern,))(key)), None)
    if found is None:
        patterns = ", ".join(map(repr, route.match))
        one = "does not match" if len(route.match) == 1 else "do not match"
        return False, f"{patterns} {one} key {key!r}"
    return True, f"pattern {found!r} matches key {key!r}"
