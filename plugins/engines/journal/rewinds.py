"""Rewinds: stretches of a journal that are sent again, to engines of the running system.

A rewind is a replay (``ReplayEngine``) in the thread of the engine that writes the journal, with a port of
its own and a confirming route from there to the destination.  Port and route exist as long as the rewind.

Operations, all with one argument, a table:

* ``rewind``: begin; the fields of ``Wanted``.  Answers with the name of the rewind and the offsets at
  which it begins and ends.
* ``rewind-state``: how far the rewind of this ``name`` is (``Rewind.state``).  One that has ended is
  forgotten with this answer.
* ``rewind-end``: stop it; answers as ``rewind-state`` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import trio

from kernel import RoutePlan
from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelClosed, KernelError, UnknownName
from kernel.contracts.system import System
from plugins.engines.journal.options import ReplayOptions
from plugins.engines.journal.replay import ReplayEngine

MOST = 10
"""Rewinds of one journal at a time, with those that have ended and that nobody has asked for since."""

_LOOK = 0.5
"""Seconds between two looks whether the route is still there."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rewind sends, and to whom."""

    target: str
    """The name of an engine."""
    start: int | str
    end: int | str
    """As in ``ReplayOptions``."""
    speed: float = 0.0
    match: tuple[str, ...] = ()
    exchange: str | None = None
    engine: str | None = None
    into: str | None = None


class Rewind:
    """One rewind."""

    def __init__(self, name: str, path: str, wanted: Wanted) -> None:
        fields = {field: getattr(wanted, field) for field in Wanted.__struct_fields__ if field != "target"}
        # Damage ends a rewind: who asks for a stretch wants to know that a part of it is missing.
        self.replay = ReplayEngine(name, ReplayOptions(path=path, skip_damage=False, **fields), apart=True)
        self.route = RoutePlan(source=name, targets=(wanted.target,), confirm=True)
        self.scope = trio.CancelScope()
        self.ended = False
        self.failure = ""

    def state(self) -> dict[str, Any]:
        """Return how far it is.  Everything before the offset ``position`` is confirmed; None: nothing is."""
        figures = self.replay.statistics()
        return {
            "sent": figures["messages_out"],
            "read_to": figures["read_to"],
            "position": figures["position"],
            "ended": self.ended,
            "failure": self.failure,
        }


class Rewinds:
    """The rewinds of one journal.  Used in its engine's thread."""

    def __init__(self, path: str, system: System | None) -> None:
        self._path = path
        self._system = system
        self._running: dict[str, Rewind] = {}

    def operate(
        self, what: str, argument: Any, host: Host
    ) -> dict[str, Any] | Generator[Any, None, dict[str, Any]]:
        """Do an operation, or return its steps (``Operable``); ``KernelError`` if it cannot be done."""
        if what == "rewind":
            return self._begin(argument, host)
        if what not in ("rewind-state", "rewind-end"):
            raise KernelError(f"a journal cannot {what!r}")
        name = argument.get("name") if isinstance(argument, dict) else None
        rewind = self._running.get(name)  # type: ignore[arg-type]
        if rewind is None:
            raise KernelError(f"there is no rewind {name!r}")
        if what == "rewind-end":
            rewind.scope.cancel()
        if rewind.ended or what == "rewind-end":
            del self._running[name]  # type: ignore[arg-type]
        return rewind.state()

    def _begin(self, argument: Any, host: Host) -> Generator[Any, None, dict[str, Any]]:
        system = self._system
        if system is None:
            raise KernelError("this engine runs without a kernel, so there is nobody to send to")
        try:
            wanted = msgspec.convert(argument, Wanted)
        except msgspec.ValidationError as error:
            raise KernelError(f"rewind: {error}") from None
        if system.plan.engine(wanted.target) is None:
            known = ", ".join(engine.name for engine in system.plan.engines)
            raise UnknownName(f"there is no engine {wanted.target!r} to send to; engines: {known}")
        # What an exchange means to others is for whoever gets the messages.
        if wanted.into and wanted.target in system.engines_with("find-exchange"):
            yield from _need_exchange(wanted.target, wanted.into, host, system)
        return self._start(wanted, host, system)

    def _start(self, wanted: Wanted, host: Host, system: System) -> dict[str, Any]:
        if len(self._running) >= MOST:
            raise KernelError(f"there are {MOST} rewinds already; wait for one, or end one")
        plan = system.plan
        used = {engine.name for engine in plan.engines}.union(
            *(route.ends for route in plan.routes), self._running
        )
        name = next(name for number in range(1, len(used) + 2) if (name := f"rewind-{number}") not in used)
        try:
            rewind = Rewind(name, str(Path(self._path).absolute()), wanted)
        except ValueError as error:
            raise KernelError(f"rewind: {error}") from None
        system.add_route(rewind.route)
        self._running[name] = rewind
        host.nursery.start_soon(self._run, rewind, host, system)
        return {"name": name}

    async def _run(self, rewind: Rewind, host: Host, system: System) -> None:
        try:
            with rewind.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, rewind, system)
                    await rewind.replay.run(host, task_status=trio.TASK_STATUS_IGNORED)
                    nursery.cancel_scope.cancel()
        # A rewind that cannot go on, for example at a damaged row, must not end the engine that
        # writes the journal.
        except* Exception as error:
            rewind.failure = "; ".join(str(each) for each in _leaves(error))
        finally:
            rewind.ended = True
            # A changed topology has removed it, or the kernel has removed everything.
            with contextlib.suppress(UnknownName, KernelClosed):
                system.remove_route(rewind.route)

    async def _watch(self, rewind: Rewind, system: System) -> None:
        """End the rewind if its route has gone: a replay without a route would wait for ever."""
        # A change of routes is no event, so there is nothing to wait for.
        while any(each is rewind.route for each in system.plan.routes):  # noqa: ASYNC110
            await trio.sleep(_LOOK)
        raise KernelError("a changed topology has removed its route")


def _need_exchange(target: str, exchange: str, host: Host, system: System) -> Generator[Any, None, None]:
    """Ask a broker whether it has an exchange; ``KernelError`` if not.

    The steps of an operation.  A broker takes what comes on a route to an exchange that it does not have, and
    confirms it: nobody would learn that no queue got it.
    """
    done: list[tuple[Any, KernelError | None]] = []

    def ask(go_on: Callable[[], None]) -> None:
        def on_done(answer: Any, failure: KernelError | None) -> None:
            done.append((answer, failure))
            go_on()

        system.operate(target, "find-exchange", {"name": exchange}, host, on_done)

    yield ask
    answer, failure = done[0]
    if failure is not None:
        raise failure
    if not answer["found"]:
        raise UnknownName(
            f"broker {target!r} has no exchange {exchange!r} in vhost {answer['vhost']!r}; "
            f"declare it before{answer['hint']}"
        )


def _leaves(error: BaseExceptionGroup[Any]) -> list[BaseException]:
    """Return the exceptions of a group that are no groups themselves."""
    return [
        leaf
        for each in error.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
