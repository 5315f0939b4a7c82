"""A poll thread with a dispatcher of its own, and engines that do as they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from kernel.contracts.engine import EngineEvent
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.testing.leaks import Leaks
from kernel.threads.poll_thread import PollThread

TIMEOUT = 60.0


class Reports:
    """What was reported, and a way to wait for it."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: EngineEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, what: str, engine: str) -> list[EngineEvent]:
        return [event for event in self.events if (event.what, event.engine) == (what, engine)]

    def wait(self, what: str, engine: str, times: int = 1) -> EngineEvent:
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.of(what, engine)) >= times, TIMEOUT)
        assert done, f"no {what} of {engine} (x{times}): {self.events}"
        return self.of(what, engine)[-1]


class Engine:
    """Runs ``live(host)`` once it has started, then waits for ever."""

    def __init__(self, live: Callable[[Any], Any] | None = None) -> None:
        self._live = live
        self.host: Any = None

    async def run(self, host: Any, *, task_status: Any) -> None:
        self.host = host
        task_status.started("here")
        if self._live is not None:
            result = self._live(host)
            if result is not None:
                await result
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        return {}


class Rig:
    """The thread under test."""

    def __init__(self) -> None:
        self.reports = Reports()
        self.dispatcher = Dispatcher()
        self.thread = PollThread("t", self.dispatcher, self.reports)
        self.thread.start()

    def call(self, work: Callable[[], Any]) -> Any:
        """Do something in the thread; return what it returned."""
        done = threading.Event()
        answer: list[Any] = []

        def posted() -> None:
            answer.append(work())
            done.set()

        self.thread.mailbox.post(posted)
        assert done.wait(TIMEOUT), "the thread does not answer"
        return answer[0]

    def run(self, name: str, engine: Engine) -> Engine:
        self.thread.add(name, lambda: engine)
        self.reports.wait("running", name)
        return engine

    def close(self) -> None:
        self.thread.stop()
        assert self.thread.join(TIMEOUT)
        self.thread.mailbox.bell.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    leaks = Leaks()
    made = Rig()
    yield made
    made.close()
    assert made.thread.crash is None
    assert leaks.found() == []
