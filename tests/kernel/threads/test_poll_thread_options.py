"""Options of poll threads: going on looking after work, and the processors to run on."""

from __future__ import annotations

import itertools
import os
import threading
from types import SimpleNamespace

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan, ThreadPlan
from kernel.pipes.doorbell import Doorbell
from kernel.pipes.mailbox import Mailbox
from kernel.threads import loop as loop_module
from kernel.threads.loop import Loop


def plan(**options: object) -> Plan:
    """Two applications with an in-process wire on a poll thread of such options between them."""
    address = "backend+inproc://here"
    return Plan(
        threads=(ThreadPlan(name="io", options=options),),
        engines=(
            EnginePlan(name="in", kind="stream", options={"address": address, "mode": "listen"}),
            EnginePlan(name="out", kind="stream", options={"address": address}),
            EnginePlan(name="left", kind="native"),
            EnginePlan(name="right", kind="native"),
        ),
        routes=(
            RoutePlan(source="left", targets=("out",)),
            RoutePlan(source="in", targets=("right",)),
        ),
    )


def test_a_thread_that_spins_delivers_and_sleeps_in_the_end() -> None:
    with Kernel(plan(spin=0.0001)) as kernel:
        left, right = kernel.open("left"), kernel.open("right")
        for number in range(100):
            left.send(b"%d" % number)
            assert right.receive(60) == b"%d" % number


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_thread_keeps_to_its_processors() -> None:
    one = min(os.sched_getaffinity(0))
    with Kernel(plan(cpus=[one])) as kernel:
        left, right = kernel.open("left"), kernel.open("right")
        left.send(b"x")
        assert right.receive(60) == b"x"
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "kernel io"]
        assert os.sched_getaffinity(thread.native_id) == {one}


class Wakes:
    """A poller with a descriptor that is ready once."""

    def __init__(self) -> None:
        self.asked: list[float | None] = []

    def poll(self, timeout: float | None) -> int:
        self.asked.append(timeout)
        return int(len(self.asked) == 1)


def test_a_thread_that_spins_looks_again_after_what_a_descriptor_brought_and_then_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(step=0.0001)
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(perf_counter=clock.__next__))
    loop = Loop(Mailbox(), own_thread=False, spin=0.0002)
    loop.poller.close()
    wakes = loop.poller = Wakes()  # type: ignore[assignment]
    loop.turn(None)
    loop.turn(None)
    loop.turn(None)
    assert wakes.asked[0] is None
    assert set(wakes.asked[1:-2]) == {0}
    assert wakes.asked[-2:] == [None, None]
    loop.mailbox.bell.close()


def test_a_thread_that_spins_sleeps_at_once_when_it_has_woken_another() -> None:
    """The other wants the core, and the interpreter's lock."""
    loop = Loop(Mailbox(), own_thread=False, spin=0.0002)
    loop.poller.close()
    wakes = loop.poller = Wakes()  # type: ignore[assignment]
    loop.turn(None)
    other = Doorbell()
    loop.mailbox.rings = [other]
    loop.turn(None)
    assert wakes.asked == [None, None]
    other.close()
    loop.mailbox.bell.close()
