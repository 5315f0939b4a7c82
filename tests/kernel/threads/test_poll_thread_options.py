"""Options of poll threads: going on looking after work, and the processors to run on."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan, ThreadPlan
from kernel.hosting import spinning
from kernel.hosting.spinning import INTERRUPTED, MOST_RESTS, TOGETHER, TOGETHER_EVERY
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


class Poller:
    """A poller that finds something in the calls whose numbers are given; each call takes 10 microseconds."""

    def __init__(self, *finds: int) -> None:
        self._finds = finds
        self.asked: list[float | None] = []
        # Not a time at which all threads look, nor is the next tenth of a second.
        self.now = TOGETHER
        self.took = 10e-6

    def poll(self, timeout: float | None) -> int:
        self.asked.append(timeout)
        self.now += self.took
        return int(len(self.asked) - 1 in self._finds)


def loop_with(poller: Poller, monkeypatch: pytest.MonkeyPatch, spin: float | None = None) -> Loop:
    for module in (loop_module, spinning):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: poller.now))
    # Other tests may keep all cores busy.
    monkeypatch.setattr(spinning, "crowded", lambda: False)
    loop = Loop(Mailbox(), own_thread=False, spin=spin)
    loop.poller.close()
    loop.poller = poller  # type: ignore[assignment]
    loop.trio_wanted = lambda: 0
    return loop


def sleeps(poller: Poller) -> int:
    return poller.asked.count(None)


def together(poller: Poller) -> float:
    """How many looks fit the times at which all threads look."""
    return (poller.now * TOGETHER / TOGETHER_EVERY + TOGETHER) / poller.took


def test_a_thread_that_spins_looks_again_after_what_a_descriptor_brought_and_then_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = Poller(0)
    loop = loop_with(poller, monkeypatch, spin=0.0002)
    for _ in range(3):
        loop.turn(None)
    assert poller.asked[0] is None
    assert 20 <= poller.asked.count(0) <= 22
    assert poller.asked[-2:] == [None, None]
    loop.mailbox.bell.close()


def test_a_thread_looks_by_default_while_what_it_waits_for_comes_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something in every fourth look."""
    poller = Poller(0, *range(4, 4000, 4))
    loop = loop_with(poller, monkeypatch)
    while len(poller.asked) < 2000:
        loop.turn(None)
    assert sleeps(poller) == 1
    loop.mailbox.bell.close()


class Answering(Poller):
    """What is found is posted to an engine of the same thread, which posts its answer."""

    mailbox: Mailbox

    def poll(self, timeout: float | None) -> int:
        found = super().poll(timeout)
        if found:
            self.mailbox.post(lambda: self.mailbox.post(lambda: None))
        return found


def test_what_engines_of_a_thread_post_to_each_other_does_not_end_its_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An echo behind the link of a process thread: questions come soon, one after another."""
    poller = Answering(0, *range(4, 4000, 4))
    loop = loop_with(poller, monkeypatch)
    poller.mailbox = loop.mailbox
    while len(poller.asked) < 2000:
        loop.turn(None)
    assert sleeps(poller) == 1
    loop.mailbox.bell.close()


class Late(Poller):
    """What it finds comes in the sleep, and nothing in a look."""

    def poll(self, timeout: float | None) -> int:
        super().poll(timeout)
        return int(timeout is None)


def test_a_thread_hardly_looks_by_default_if_nothing_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    poller = Late()
    loop = loop_with(poller, monkeypatch)
    for _ in range(20_000):
        loop.turn(None)
    assert sleeps(poller) == 20_000
    # Seven looks of 10 microseconds in a moment.
    assert 0 < poller.asked.count(0) < 8 * (20_000 / MOST_RESTS + 12) + together(poller)
    loop.mailbox.bell.close()


def test_a_thread_that_always_has_work_does_not_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    poller = Poller(*range(100_000))
    loop = loop_with(poller, monkeypatch)
    for _ in range(20_000):
        loop.turn(None)
    assert poller.asked.count(0) < 2 * (20_000 / MOST_RESTS + 12) + together(poller)
    loop.mailbox.bell.close()


def test_a_look_ends_when_others_want_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    poller = Poller(0)
    poller.took = 10 * INTERRUPTED
    loop = loop_with(poller, monkeypatch, spin=1.0)
    loop.turn(None)
    loop.turn(None)
    assert poller.asked == [None, 0, 0, None]
    loop.mailbox.bell.close()


def test_a_thread_does_not_look_on_a_crowded_machine_unless_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More threads can run than there are cores.  The first look needs none: what is there is there."""
    by_itself, told_to = Poller(0, 2, 4), Poller(0)
    loops = [loop_with(by_itself, monkeypatch), loop_with(told_to, monkeypatch, spin=0.0002)]
    monkeypatch.setattr(spinning, "crowded", lambda: True)
    for _ in range(3):
        for loop in loops:
            loop.turn(None)
    assert by_itself.asked == [None, 0, None, 0, None]
    assert told_to.asked.count(0) > 10
    for loop in loops:
        loop.mailbox.bell.close()


def test_a_thread_without_spin_sleeps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    poller = Poller(*range(100))
    loop = loop_with(poller, monkeypatch, spin=0.0)
    for _ in range(100):
        loop.turn(None)
    assert poller.asked == [None] * 100
    loop.mailbox.bell.close()


@pytest.mark.parametrize("spin", [None, 0.0002])
def test_a_thread_that_looks_sleeps_at_once_when_it_has_woken_another(
    spin: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other wants the core, and the interpreter's lock."""
    poller = Poller(0)
    loop = loop_with(poller, monkeypatch, spin)
    loop.turn(None)
    other = Doorbell()
    loop.mailbox.rings = [other]
    loop.turn(None)
    assert poller.asked == [None, None]
    other.close()
    loop.mailbox.bell.close()
