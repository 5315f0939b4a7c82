"""Our own sinks and sources keep the contract that strangers' have to; and the checks find those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kernel import hookimpl
from kernel.contracts.engine import Host
from kernel.contracts.kinds import EngineKind
from kernel.plugins import Origin, PluginRegistry
from kernel.testing import end_checks
from kernel.testing.end_checks import (
    SINK_CHECKS,
    SOURCE_CHECKS,
    SinkSubject,
    SourceSubject,
    takes_everything_in_order,
)
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan

pytest.importorskip("pyarrow")

from plugins.protocols.journal_format.reader import JournalReader


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_journal(check: Callable[[SinkSubject], None], kernel_factory: KernelFactory, tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def arrived() -> Sequence[bytes]:
        batches = JournalReader(journal).record_batches(columns=["body"])
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    def plan() -> EnginePlan:
        return EnginePlan(name="sink", kind="journal", options={"path": str(journal)})

    check(SinkSubject(plan=plan, arrived=arrived, kernels=kernel_factory))


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_replay(
    check: Callable[[SourceSubject], None], kernel_factory: KernelFactory, tmp_path: Path
) -> None:
    journal = str(tmp_path / "journal")

    def offer(bodies: Sequence[bytes]) -> None:
        kernel = kernel_factory(
            EnginePlan(name="log", kind="journal", options={"path": journal}),
            RoutePlan(source="app", targets=("log",), confirm=True),
        )
        app = kernel.open("app", "native")
        app.send_many(bodies, timeout=60)
        app.wait_confirmed(60)
        kernel.close()
        assert kernel.join(60)

    def plan() -> EnginePlan:
        return EnginePlan(name="source", kind="journal-replay", options={"path": journal, "speed": 0.0})

    check(SourceSubject(plan=plan, offer=offer, kernels=kernel_factory))


class BadSink:
    """Confirms what it takes at once; every tenth message it forgets."""

    def __init__(self, written: list[bytes], forgets: bool) -> None:
        self._written = written
        self._forgets = forgets
        self._count = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        self._host = host
        self._port = host.port("sink", self)
        task_status.started("")
        await trio.sleep_forever()

    def on_output(self) -> None:
        taken = self._port.take()
        if taken.position is not None:
            self._port.confirm_through(taken.position)
        for batch in taken.batches:
            for body in batch.bodies:
                self._count += 1
                if not (self._forgets and self._count % 10 == 0):
                    self._written.append(bytes(body))
        if self._port.has_input():
            self._host.soon(self.on_output)

    def on_writable(self) -> None: ...

    def on_confirmed(self, position: int) -> None: ...

    def statistics(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("forgets", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sink_that_forgets_is_found(
    forgets: bool, kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(end_checks, "TIMEOUT", 1.0)

    class Plugin:
        @staticmethod
        @hookimpl
        def register_engines() -> list[EngineKind]:
            return [EngineKind(name="bad", summary="bad", create=lambda setup: BadSink(written, forgets))]

    registry = PluginRegistry.load()
    registry.add(Plugin, Origin("bad", "tests", "1"))
    subject = SinkSubject(
        plan=lambda: EnginePlan(name="sink", kind="bad"),
        arrived=lambda: written,
        kernels=partial(kernel_factory, registry=registry),
    )
    if forgets:
        with pytest.raises(AssertionError, match="messages have not arrived"):
            takes_everything_in_order(subject)
    else:
        takes_everything_in_order(subject)
