"""Rehearsing: play recorded messages through a topology in memory, and count who gets what.

For each engine of the plan there is a stand-in, or the engine itself in a form without sockets and files, as
its kind says (``kernel.contracts.rehearsing``).  All routes confirm and block, so that a message that is
confirmed has arrived everywhere.  docs/decisions/0040-rehearsals.md has the reasons.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import trio

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import KernelError
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.rehearsing import Inside, Played, Recorded, Rehearsal, Subject
from kernel.pipes.water_marks import WaterMarks
from kernel.plugins import PluginRegistry
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

TIMEOUT = 30.0
"""Seconds without any confirmation, after which a rehearsal fails."""


def rehearse(
    plan: Plan, recorded: Iterable[Sequence[Recorded]], registry: PluginRegistry | None = None
) -> Played:
    """Play messages, piece by piece; each piece should be small enough to be in memory several times.

    Raises ``KernelError`` if an engine does not start or does not confirm.
    """
    played = Played()
    sent: Counter[Subject] = Counter()
    with _Stage(plan, registry or PluginRegistry.load()) as stage:
        for piece in recorded:
            for source, batches in _by_engine(piece, plan).items():
                count = sum(len(batch.bodies) for batch in batches)
                if plan.engine(source) is None:
                    played.unknown[source] += count
                    continue
                played.fed[source] += count
                for batch in batches:
                    sent[_subject(batch.envelope)] += len(batch.bodies)
                stage.send(source, batches)
            # After each piece, so that what has arrived does not pile up in the memory.
            stage.collect(played.got, last=False)
        stage.collect(played.got, last=True)
    arrived = {subject for counts in played.got.values() for subject in counts}
    played.nobody = Counter({subject: count for subject, count in sent.items() if subject not in arrived})
    return played


def _by_engine(piece: Sequence[Recorded], plan: Plan) -> dict[str, list[Batch]]:
    found: dict[str, list[Batch]] = {}
    for port, batch in piece:
        # The ports of a listener are named ``ENGINE/PEER``, and an engine's own name may have a slash, too.
        engine = port if plan.engine(port) is not None else port.partition("/")[0]
        found.setdefault(engine, []).append(batch)
    return found


def _subject(envelope: Envelope) -> Subject:
    return envelope.exchange, envelope.key


class _Stage:
    """A kernel with stand-ins."""

    def __init__(self, plan: Plan, registry: PluginRegistry) -> None:
        rehearsed = {engine.name: _rehearsal(engine, registry) for engine in plan.engines}
        self._running: dict[str, Rehearsal] = {
            name: each for name, each in rehearsed.items() if each is not None
        }
        self._stand_ins = {name: _StandIn(name) for name, each in rehearsed.items() if each is None}
        self._routes = [_as_rehearsed(route) for route in plan.routes]
        self._insides: dict[str, Inside] = {}
        self._feeders: dict[str, _StandIn] = {}
        # In the one thread of this kernel, whatever the plan says: where an engine runs does not change who
        # gets what.
        engines = tuple(msgspec.structs.replace(each.plan, thread=None) for each in self._running.values())
        self._kernel = Kernel(Plan(engines=engines), registry)

    def __enter__(self) -> _Stage:
        kernel = self._kernel.start()
        try:
            # Before the stand-ins, because a kernel checks the names of routes only in the plan
            # that it starts with.
            for name, each in self._running.items():
                if each.enter is None:
                    feeder = self._feeders[name] = _StandIn(f"clients of {name}")
                    self._routes.append(RoutePlan(source=feeder.name, targets=(name,), confirm=True))
            for stand_in in (*self._stand_ins.values(), *self._feeders.values()):
                kernel.host(stand_in.name, partial(_made, stand_in))
            for route in self._routes:
                kernel.add_route(route)
            kernel.wait_running(TIMEOUT)
            for name, each in self._running.items():
                if each.enter is not None:
                    self._insides[name] = each.enter(kernel, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The clients before the engines that they are in.
        for inside in self._insides.values():
            inside.close()
        self._kernel.close(linger=0)
        self._kernel.join()

    def send(self, engine: str, batches: list[Batch]) -> None:
        """Send as this engine; return when everything has arrived."""
        inside = self._insides.get(engine)
        if inside is not None:
            inside.send(batches)
        else:
            (self._stand_ins.get(engine) or self._feeders[engine]).play(batches)

    def collect(self, got: defaultdict[str, Counter[Subject]], *, last: bool) -> None:
        """Add what has arrived."""
        for name, inside in self._insides.items():
            for receiver, envelope, count in inside.got(last=last):
                got[f"{name}: {receiver}"][_subject(envelope)] += count
        for name, stand_in in self._stand_ins.items():
            for envelope, count in stand_in.collect():
                got[name][_subject(envelope)] += count


def _rehearsal(engine: EnginePlan, registry: PluginRegistry) -> Rehearsal | None:
    installed = registry.engines.get(engine.kind)
    # Another sort of kind is an API, whose application does not run here.
    if installed is None or installed.kind.rehearse is None:
        return None
    return cast("Rehearsal", installed.kind.rehearse(engine))


def _as_rehearsed(route: RoutePlan) -> RoutePlan:
    return msgspec.structs.replace(route, confirm=True, marks=WaterMarks())


def _made(stand_in: _StandIn, _: Any) -> _StandIn:
    return stand_in


class _StandIn:
    """Sends what another engine has sent, and counts what it would get."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._host: Host | None = None
        self._port: Port | None = None
        self._failed: BaseException | None = None
        # By the identity of envelopes, which are the same objects again and again.  Kept in the entry, so
        # that no other envelope gets the identity.
        self._got: dict[int, tuple[Envelope, int]] = {}
        self._arrived = threading.Event()
        self._position = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled."""
        self._host = host
        self._port = host.port(self.name, self)
        task_status.started("")
        await trio.sleep_forever()

    def pending(self) -> bool:
        """Return False: ``play`` has waited for everything."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Return no counters: nobody looks."""
        return {}

    # The rehearsal's thread

    def play(self, batches: list[Batch]) -> None:
        """Send; return when everything is confirmed."""
        assert self._host is not None, "it runs"
        self._arrived.clear()
        self._host.post(partial(self._send, batches))
        # A large piece may take longer than any limit, so what counts is whether confirmations still come.
        # ``_look`` reads in the engine's thread how far they are.
        while not self._arrived.wait(TIMEOUT):
            before = self._position
            self._host.post(self._look)
            if not self._arrived.wait(TIMEOUT) and self._position == before:
                raise KernelError(f"what {self.name!r} has sent was not confirmed within {2 * TIMEOUT:g} s")

    def collect(self) -> Iterator[tuple[Envelope, int]]:
        """Return what has come since the last call."""
        # Everything that was played is confirmed, so the engine's thread adds nothing now.
        got, self._got = self._got, {}
        yield from got.values()

    # The engine's thread

    def _send(self, batches: list[Batch]) -> None:
        assert self._port is not None, "it runs"
        self._port.send(batches)
        # Without a route that confirms nothing would call ``on_confirmed``.
        self._look()

    def _look(self) -> None:
        port = self._port
        assert port is not None, "it runs"
        self._position = port.confirmed()
        if not port.confirms or self._position >= port.sent():
            self._arrived.set()

    def on_output(self) -> None:
        """Count what has come, and confirm it."""
        port = self._port
        if port is None:
            return
        while (taken := port.take()).batches:
            for batch in taken.batches:
                _, before = self._got.get(id(batch.envelope), (batch.envelope, 0))
                self._got[id(batch.envelope)] = batch.envelope, before + len(batch.bodies)
            port.confirm_through(taken.position)

    def on_writable(self) -> None:
        """Nothing waits: ``send`` accepts all of it."""

    def on_confirmed(self, position: int) -> None:
        """Something has arrived."""
        self._look()
