"""Round robin over those that can take more: one full destination does not hold up what others could take."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan, TimedOut, WaterMarks


def plan(high: int = WaterMarks().high, workers: tuple[str, ...] = ("idle", "busy")) -> Plan:
    """A source and two workers that share its messages."""
    return Plan(
        engines=tuple(EnginePlan(name=name, kind="native") for name in ("source", *workers)),
        routes=(
            RoutePlan(source="source", targets=workers, router="round-robin", marks=WaterMarks(high=high)),
        ),
    )


@pytest.mark.slow
def test_a_slow_worker_gets_less() -> None:
    """With the marks that a route has by itself; a task takes one worker 1 ms and the other 10 ms."""
    seconds = {"fast": 0.001, "slow": 0.01}
    tasks, at_once = 300, 20
    done: Counter[str] = Counter()
    never = threading.Event()
    # The source waits while so many tasks are not done. With equal turns most of these would soon be the slow
    # worker's, and each would have got the half of all.
    free = threading.Semaphore(at_once)

    def work(kernel: Kernel, name: str) -> None:
        with kernel.open(name) as worker:
            for _ in worker:
                never.wait(seconds[name])
                done[name] += 1
                free.release()

    with Kernel(plan(workers=("fast", "slow"))) as kernel, kernel.open("source") as source:
        threads = [threading.Thread(target=work, args=(kernel, name)) for name in seconds]
        for thread in threads:
            thread.start()
        for _ in range(tasks):
            assert free.acquire(timeout=60)
            source.send(b"task", timeout=60)
        for _ in range(at_once):
            assert free.acquire(timeout=60)
    for thread in threads:
        thread.join()
    assert done.total() == tasks
    assert done["fast"] >= 2 * done["slow"], done


def test_a_worker_that_takes_nothing_does_not_stop_the_other() -> None:
    with Kernel(plan(high=10)) as kernel:
        source, idle, busy = (kernel.open(name) for name in ("source", "idle", "busy"))
        received: list[bytes] = []
        for number in range(500):
            source.send(b"%d" % number, timeout=60)
            while True:
                try:
                    received += [bytes(body) for body in busy.receive_many(timeout=0)]
                except TimedOut:
                    break
        waiting = [bytes(body) for body in idle.receive_many(timeout=60)]
        assert len(waiting) == 1, "what the other could take at once does not wait behind the idle one's"
        assert sorted(received + waiting, key=int) == [b"%d" % number for number in range(500)]


def test_a_source_waits_when_all_are_full() -> None:
    with Kernel(plan(high=10)) as kernel:
        source, _, busy = (kernel.open(name) for name in ("source", "idle", "busy"))
        for number in range(20):
            source.send(b"%d" % number, timeout=60)
        with pytest.raises(TimedOut):
            source.send(b"too many", timeout=0)
        busy.receive_many(timeout=60)
        source.send(b"one more", timeout=60)
        assert busy.receive(60) == b"one more"


def test_a_full_subscriber_does_not_hold_up_messages_for_others() -> None:
    """No head-of-line blocking: by key, only what is for the full one waits."""
    by_key = Plan(
        engines=tuple(EnginePlan(name=name, kind="native") for name in ("source", "slow", "quick")),
        routes=(
            RoutePlan(source="source", targets=("slow", "quick"), router="by-key", marks=WaterMarks(high=10)),
        ),
    )
    with Kernel(by_key) as kernel:
        source, slow, quick = (kernel.open(name) for name in ("source", "slow", "quick"))
        slow.subscribe("slow.#")
        quick.subscribe("quick.#")
        for number in range(10):
            source.send(b"%d" % number, key="slow.x", timeout=60)
        with pytest.raises(TimedOut):
            source.send(b"too many", key="slow.x", timeout=0)
        for number in range(100):
            source.send(b"%d" % number, key="quick.x", timeout=60)
            assert quick.receive(60) == b"%d" % number
        assert len(slow.receive_many(timeout=60)) == 10
        source.send(b"one more", key="slow.x", timeout=60)
        assert slow.receive(60) == b"one more"
