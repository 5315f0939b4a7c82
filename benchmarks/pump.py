"""A plugin for measurements of processes: an engine that sends as fast as it may, and one that counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import trio

from kernel import hookimpl
from kernel.contracts.engine import Host
from kernel.contracts.kinds import EngineKind, EngineSetup
from kernel.contracts.message import batch_of

_BATCH = batch_of([b"x" * 100] * 1000)
_A_TURN = 8


class Pump:
    """Sends batches of 1,000 messages of 100 B while it was told to."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._going = self._posted = False

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Be there until cancelled."""
        self._host = host
        self._port = host.port(self._name, self)
        task_status.started("")
        await trio.sleep_forever()

    def operate(self, what: str, argument: Any) -> None:
        """``go`` or ``stop``."""
        self._going = what == "go"
        self._pump()

    def _pump(self) -> None:
        self._posted = False
        for _ in range(_A_TURN if self._going else 0):
            if not self._port.send([_BATCH]):
                return
        if self._going and not self._posted:
            self._posted = True
            self._host.soon(self._pump)

    def on_output(self) -> None:
        """Nothing comes."""

    def on_writable(self) -> None:
        """Go on."""
        self._pump()

    def on_confirmed(self, position: int) -> None:
        """Nobody confirms."""

    def statistics(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}


class Count:
    """Counts what comes."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._count = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Be there until cancelled."""
        self._port = host.port(self._name, self)
        task_status.started("")
        await trio.sleep_forever()

    def on_output(self) -> None:
        """Take all of it."""
        while taken := self._port.take():
            self._count += taken.count

    def on_writable(self) -> None:
        """Nothing is sent."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is sent."""

    def operate(self, what: str, argument: Any) -> tuple[int, float]:
        """Return how many came, and when it was asked."""
        return self._count, time.monotonic()

    def statistics(self) -> dict[str, Any]:
        """How many came."""
        return {"messages_in": self._count}


class Echo(Count):
    """Sends back what comes."""

    def on_output(self) -> None:
        """Send it back."""
        while taken := self._port.take():
            self._port.send(taken.batches)


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """All of them."""
    return [
        EngineKind(name="bench-pump", summary="sends as fast as it may", create=Pump),
        EngineKind(name="bench-count", summary="counts what comes", create=Count),
        EngineKind(name="bench-echo", summary="sends back what comes", create=Echo),
    ]
