"""What an engine asks of the kernel that hosts it, and changes in it, from its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
import trio

from kernel import EnginePlan, RoutePlan
from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.system import System
from kernel.testing.fixtures import KernelFactory
from kernel.topology.inspection import Inspection
from kernel.topology.plan import ThreadPlan
from kernel.topology.system import Kernel

TIMEOUT = 30.0


class Asking:
    """Does in its own thread what a test asks for; inspectable and operable itself."""

    def __init__(self, setup: EngineSetup) -> None:
        assert setup.system is not None
        self.name = setup.name
        self.system: System = setup.system
        self.release = threading.Event()

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        self.host = host
        self.thread = threading.get_ident()
        task_status.started(self.name)
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        return {}

    def inspect(self, what: str) -> list[dict[str, Any]]:
        return [{"name": what}]

    def operate(self, what: str, argument: Any) -> Any:
        if what == "wait":
            self.release.wait(TIMEOUT)
        if what == "fail":
            raise ValueError("cannot be done")
        return [self.name, what, argument]

    def do(self, work: Callable[[], Any]) -> None:
        self.host.post(work)


def _host(kernel: Kernel, name: str, thread: str | None = None) -> Asking:
    made: list[Asking] = []

    def make(setup: EngineSetup) -> Asking:
        made.append(Asking(setup))
        return made[-1]

    kernel.host(name, make, thread)
    kernel.wait_running()
    return made[0]


@pytest.fixture
def kernel(kernel_factory: KernelFactory) -> Kernel:
    return kernel_factory(ThreadPlan(name="poll-1"), ThreadPlan(name="poll-2"))


def test_an_engine_inspects_all_engines_its_own_thread_included(kernel: Kernel) -> None:
    asking = _host(kernel, "one", "poll-1")
    _host(kernel, "two", "poll-2")
    answers: SimpleQueue[tuple[Inspection, int]] = SimpleQueue()
    asking.do(
        lambda: asking.system.inspect(
            "things", asking.host, lambda answer: answers.put((answer, threading.get_ident()))
        )
    )
    inspection, thread = answers.get(timeout=TIMEOUT)
    assert sorted(row["engine"] for row in inspection.rows) == ["one", "two"]
    assert inspection.failed == ()
    assert thread == asking.thread


def test_a_thread_that_does_not_answer_is_named_and_its_late_answer_is_dropped(kernel: Kernel) -> None:
    asking = _host(kernel, "one", "poll-1")
    busy = _host(kernel, "two", "poll-2")
    busy.do(lambda: busy.release.wait(TIMEOUT))
    answers: SimpleQueue[Inspection] = SimpleQueue()
    asking.do(lambda: asking.system.inspect("things", asking.host, answers.put, timeout=0.05))
    inspection = answers.get(timeout=TIMEOUT)
    assert [row["engine"] for row in inspection.rows] == ["one"]
    assert inspection.failed == ("thread poll-2 has not answered within 0.05 s",)
    busy.release.set()
    later = kernel.inspect("things")  # has passed both threads, and so has the late answer
    assert len(later.rows) == 2
    assert answers.empty()


def _operate(asking: Asking, engine: str, what: str, **options: Any) -> tuple[Any, KernelError | None]:
    done: SimpleQueue[tuple[Any, KernelError | None]] = SimpleQueue()
    asking.do(
        lambda: asking.system.operate(
            engine, what, 7, asking.host, lambda answer, failure: done.put((answer, failure)), **options
        )
    )
    return done.get(timeout=TIMEOUT)


def test_an_engine_has_another_do_something_and_itself_too(kernel: Kernel) -> None:
    asking = _host(kernel, "one", "poll-1")
    _host(kernel, "two", "poll-2")
    assert _operate(asking, "two", "count") == (["two", "count", 7], None)
    assert _operate(asking, "one", "count") == (["one", "count", 7], None)


@pytest.mark.parametrize(
    "engine, what, expected",
    [
        ("two", "fail", "cannot be done"),
        ("nobody", "count", "no engine"),
        ("two", "wait", "has not answered"),
    ],
)
def test_what_cannot_be_done_is_told_to_the_callback(
    kernel: Kernel, engine: str, what: str, expected: str
) -> None:
    asking = _host(kernel, "one", "poll-1")
    two = _host(kernel, "two", "poll-2")
    answer, failure = _operate(asking, engine, what, timeout=0.05 if what == "wait" else TIMEOUT)
    two.release.set()
    assert answer is None
    assert expected in str(failure)


def test_an_engine_adds_and_removes_routes_while_it_runs(kernel: Kernel) -> None:
    asking = _host(kernel, "one")
    route = RoutePlan(source="in", targets=("out",))
    for name in ("in", "out"):
        kernel.add_engine(EnginePlan(name=name, kind="native"))
    sender, receiver = kernel.open("in"), kernel.open("out")
    added = threading.Event()
    asking.do(lambda: asking.system.add_route(route))
    asking.do(added.set)
    assert added.wait(TIMEOUT)
    sender.send(b"over a route that an engine made", timeout=TIMEOUT)
    assert receiver.receive(timeout=TIMEOUT) == b"over a route that an engine made"
    assert asking.system.plan.routes == kernel.plan.routes == (route,)
    removed = threading.Event()
    asking.do(lambda: asking.system.remove_route(route))
    asking.do(removed.set)
    assert removed.wait(TIMEOUT)
    assert not kernel.plan.routes
    assert kernel.statistics().routes == asking.system.statistics().routes == ()


def test_routes_that_several_threads_add_and_remove_are_all_in_the_plan(kernel: Kernel) -> None:
    engines = [_host(kernel, name, thread) for name, thread in (("one", "poll-1"), ("two", "poll-2"))]
    done = [threading.Event() for _ in engines]

    def change(engine: Asking, finished: threading.Event) -> None:
        for number in range(50):
            route = RoutePlan(source=f"{engine.name}{number}", targets=("out",))
            engine.system.add_route(route)
            if number % 2:
                engine.system.remove_route(route)
        finished.set()

    for engine, finished in zip(engines, done, strict=True):
        engine.do(lambda engine=engine, finished=finished: change(engine, finished))  # type: ignore[misc]
    assert all(finished.wait(TIMEOUT) for finished in done)
    expected = {f"{name}{number}" for name in ("one", "two") for number in range(0, 50, 2)}
    assert {route.source for route in kernel.plan.routes} == expected
    assert {route.name for route in kernel.statistics().routes} == {f"{name} -> out" for name in expected}


def test_an_engine_hears_events_in_its_own_thread_until_it_has_heard_enough(kernel: Kernel) -> None:
    asking = _host(kernel, "one", "poll-1")
    heard: SimpleQueue[tuple[EngineEvent, int]] = SimpleQueue()
    ends: list[Callable[[], None]] = []
    subscribed = threading.Event()

    def subscribe() -> None:
        ends.append(
            asking.system.subscribe(asking.host, lambda event: heard.put((event, threading.get_ident())))
        )
        subscribed.set()

    asking.do(subscribe)
    assert subscribed.wait(TIMEOUT)
    _host(kernel, "two", "poll-2")
    event, thread = heard.get(timeout=TIMEOUT)
    assert (event.engine, event.what, thread) == ("two", "running", asking.thread)
    ended = threading.Event()
    for step in (ends[0], ends[0], ended.set):
        asking.do(step)
    assert ended.wait(TIMEOUT)
    _host(kernel, "three", "poll-1")  # in the same thread: what it reported has been passed on by now
    assert heard.empty()
