"""A plugin for tests of processes: an engine that is told what to do, and says what it has seen."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

import msgspec
import trio

from kernel import hookimpl
from kernel.contracts.engine import Host
from kernel.contracts.kinds import EngineKind, EngineSetup
from kernel.contracts.message import Envelope, batch_of


class ProbeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What it does by itself."""

    takes: bool = True
    """Whether it takes what comes."""
    answers: bool = False
    """Whether it sends back what it takes."""
    refuses: bool = False
    fails: str = ""
    """The text of the error with which it fails."""
    patterns: tuple[str, ...] = ()


class Probe:
    """An engine with one port."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options: ProbeOptions = setup.options
        self._seen: list[tuple[str, str, str]] = []

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Fail, or be there until cancelled."""
        if self._options.fails:
            raise ValueError(self._options.fails)
        self._port = host.port(self._name, self, {"subscriptions": list(self._options.patterns)})
        task_status.started(f"pid {os.getpid()}")
        await trio.sleep_forever()

    def on_output(self) -> None:
        """Take what has come."""
        while self._options.takes and (taken := self._port.take()):
            origin = self._port.origin[0]
            for batch in taken.batches:
                self._seen += [(origin, batch.envelope.key, bytes(body).decode()) for body in batch.bodies]
            if self._options.answers:
                self._port.send(taken.batches)
            if self._options.refuses and taken.position is not None:
                self._port.refuse(taken.position - taken.count + 1, taken.position, "not here")
            else:
                self._port.confirm_through(taken.position)

    def on_writable(self) -> None:
        """There is room again."""

    def on_confirmed(self, position: int) -> None:
        """All of it is confirmed."""

    def take_options(self, options: ProbeOptions) -> None:
        """Change what it does."""
        self._options = options
        self.on_output()

    def statistics(self) -> dict[str, Any]:
        """How many it has seen."""
        return {"messages_in": len(self._seen)}

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """One row for each message."""
        return [{"key": key, "body": body} for _, key, body in self._seen] if what == "seen" else []

    def operate(self, what: str, argument: Any) -> Any:
        """Answer questions."""
        if what == "seen":
            return self._seen
        if what == "send":
            for key, body in argument:
                self._port.send([batch_of([body.encode()], Envelope(key=key))])
            return len(argument)
        if what == "log":
            logging.getLogger("probe").warning(argument)
            return None
        if what == "raise":
            raise KeyError(argument)
        return os.getpid()


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """The probe."""
    return [
        EngineKind(
            name="probe",
            summary="does what a test says",
            options=ProbeOptions,
            create=Probe,
            live_options=("takes", "refuses"),
        )
    ]
