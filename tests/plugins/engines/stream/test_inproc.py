"""The in-process transport: no socket, no copy, and everything else that a wire gives."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from kernel import EnginePlan, Kernel, Plan, RoutePlan, ThreadPlan
from kernel.contracts.engine import EngineEvent
from kernel.hosting.inproc_host import pipe_pair
from plugins.engines.stream.inproc import InprocEngine


def plan(*, confirm: bool = False) -> Plan:
    """Two applications, two poll threads, and an in-process wire between them."""
    return Plan(
        threads=(ThreadPlan(name="one"), ThreadPlan(name="two")),
        engines=(
            EnginePlan(
                name="listener",
                kind="stream",
                thread="one",
                options={"address": "backend+inproc://bus", "mode": "listen"},
            ),
            EnginePlan(
                name="dialler", kind="stream", thread="two", options={"address": "backend+inproc://bus"}
            ),
            EnginePlan(name="left", kind="native"),
            EnginePlan(name="right", kind="native"),
        ),
        routes=(
            RoutePlan(source="left", targets=("dialler",), confirm=confirm),
            RoutePlan(source="dialler", targets=("left",)),
            RoutePlan(source="listener", targets=("right",), confirm=confirm),
            RoutePlan(source="right", targets=("listener",)),
        ),
    )


def test_the_same_body_object_arrives() -> None:
    with Kernel(plan()) as kernel:
        left, right = kernel.open("left"), kernel.open("right")
        body = b"x" * 100_000
        left.send(body)
        assert right.receive(60) is body
        right.send(b"back")
        assert left.receive(60) == b"back"


def test_confirmations_pass_through() -> None:
    with Kernel(plan(confirm=True)) as kernel:
        left, right = kernel.open("left"), kernel.open("right")
        for number in range(5000):
            left.send(b"%d" % number)
        received: list[bytes] = []
        while len(received) < 5000:
            received += [bytes(body) for body in right.receive_many(timeout=60)]
        assert received == [b"%d" % number for number in range(5000)]
        right.confirm()
        left.wait_confirmed(60)


def test_a_dialler_waits_for_its_listener_and_comes_back_to_it() -> None:
    with Kernel(plan(confirm=True)) as kernel:
        connected = threading.Semaphore(0)

        def count(event: EngineEvent) -> None:
            if event.engine == "dialler" and event.what == "connected":
                connected.release()

        kernel.events.append(count)
        left, right = kernel.open("left"), kernel.open("right")
        left.send(b"one")
        assert right.receive(60) == b"one"
        right.confirm()
        left.wait_confirmed(60)
        listener = kernel.plan.engine("listener")
        assert listener is not None
        kernel.remove_engine("listener")
        left.send(b"two")
        kernel.add_engine(listener)
        assert right.receive(60) == b"two"


def test_who_dials_a_listener_that_has_just_gone_is_told_so() -> None:
    """Its call was on its way to the listener's thread when the listener ended."""
    host: Any = SimpleNamespace(rendezvous={}, post=lambda callback: callback())
    options = SimpleNamespace(address="backend+inproc://bus", mode="listen")
    engine = InprocEngine(cast("Any", SimpleNamespace(name="in", options=options)))

    async def live_shortly() -> Any:
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run, host)
            _, accept = host.rendezvous["bus"]
            nursery.cancel_scope.cancel()
        return accept

    accept = trio.run(live_shortly)
    to_there, to_here = pipe_pair("bus", host, host)
    accept(to_there, to_here, "dialler")
    assert to_here.ended


def test_a_dialler_that_is_said_to_run_has_its_port() -> None:
    """Who opens a channel then is connected to it."""
    steps: list[str] = []
    host: Any = SimpleNamespace(rendezvous={}, port=lambda *_: steps.append("port"))
    options = SimpleNamespace(address="backend+inproc://bus", mode="dial")
    engine = InprocEngine(cast("Any", SimpleNamespace(name="in", options=options)))

    class Stop(Exception):
        pass

    def started(address: str) -> None:
        steps.append(f"running {address}")
        raise Stop

    with pytest.raises(Stop):
        trio.run(partial(engine.run, host, task_status=cast("Any", SimpleNamespace(started=started))))
    assert steps == ["port", "running inproc://bus"]


def test_messages_of_an_end_wait_although_another_end_leaves_during_the_look() -> None:
    options = SimpleNamespace(address="backend+inproc://bus")
    engine = InprocEngine(cast("Any", SimpleNamespace(name="in", options=options)))
    ends: list[Any] = engine._ends

    def leaves() -> bool:
        del ends[0]
        return False

    ends.append(SimpleNamespace(port=SimpleNamespace(has_input=leaves)))
    ends.append(SimpleNamespace(port=SimpleNamespace(has_input=lambda: True)))
    assert engine.pending()
