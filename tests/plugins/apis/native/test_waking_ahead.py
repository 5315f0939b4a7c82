"""Waking ahead: who answers wakes who asks ahead while that pays, and nobody is told of what has not come."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from kernel.contracts.errors import WouldBlock
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import RoutePlan
from plugins.apis.native.channel import Channel
from plugins.apis.native.waking_ahead import WakingAhead
from tests.kernel.pipes.test_mailbox import readable


class Other:
    """A thread that sleeps, or not."""

    def __init__(self) -> None:
        self.sleeps = True
        self.woken = 0

    def wake(self) -> bool:
        slept, self.sleeps = self.sleeps, False
        self.woken += slept
        return slept


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
def ahead(two_cores: None, other: Other) -> WakingAhead:
    ahead = WakingAhead()
    ahead.aim(other.wake)
    return ahead


def test_nobody_is_woken_without_an_aim(other: Other) -> None:
    ahead = WakingAhead()
    assert not ahead.wake()
    ahead.aim(other.wake)
    ahead.aim(None)
    assert not ahead.wake()
    assert other.woken == 0


def test_nobody_is_woken_ahead_on_a_single_core(monkeypatch: pytest.MonkeyPatch, other: Other) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    ahead = WakingAhead()
    ahead.aim(other.wake)
    ahead.answer()
    assert other.woken == 0


def test_who_answers_in_time_wakes_the_other_one_as_it_is_woken(ahead: WakingAhead, other: Other) -> None:
    ahead.answer()
    for trip in range(1, 20):
        assert ahead.answered
        other.sleeps = True
        ahead.woken()
        assert other.woken == trip + 1
        assert not ahead.answered
        ahead.answer()
        assert other.woken == trip + 1


def trips_with_a_ring(ahead: WakingAhead, other: Other, trips: int) -> Iterator[int]:
    """The other one is asleep again before each answer."""
    ahead.answer()
    for trip in range(trips):
        other.sleeps = True
        before = other.woken
        ahead.woken()
        if other.woken > before:
            yield trip
        other.sleeps = True
        ahead.answer()
        assert not other.sleeps


def test_who_takes_long_for_its_answers_wakes_ahead_ever_more_rarely(
    ahead: WakingAhead, other: Other
) -> None:
    # Behind each one that was in vain 1, 2, 4, 8 and 16 that do without.
    assert list(trips_with_a_ring(ahead, other, 40)) == [0, 2, 5, 10, 19, 36]


def routes() -> tuple[RoutePlan, RoutePlan]:
    return (
        RoutePlan(source="asker", targets=("clock",)),
        RoutePlan(source="clock", targets=("asker",), router="reply"),
    )


def test_a_thread_that_was_woken_for_nothing_goes_on_waiting(
    two_cores: None, kernel_factory: KernelFactory
) -> None:
    kernel = kernel_factory(*routes())
    answers: list[bytes] = []

    def answer() -> None:
        with kernel.open("clock") as clock:
            for _ in range(3):
                question = clock.receive_message(60)
                clock.reply(question, bytes(question.body) * 2)

    thread = threading.Thread(target=answer)
    thread.start()
    with kernel.open("asker") as asker:
        answers.append(bytes(asker.request(b"1", timeout=60).body))
        wake = asker.caller.waker()
        assert wake is not None
        for _ in range(1000):
            wake()
        answers += [bytes(asker.request(body, timeout=60).body) for body in (b"2", b"3")]
        thread.join()
    assert answers == [b"11", b"22", b"33"]


def armed(channel: Channel) -> int:
    descriptor = channel.fileno()
    with pytest.raises(WouldBlock):
        channel.receive_nowait()
    return descriptor


def test_a_descriptor_that_is_watched_says_nothing_ahead(
    two_cores: None, kernel_factory: KernelFactory
) -> None:
    kernel = kernel_factory(*routes())
    with kernel.open("asker") as asker, kernel.open("clock") as clock:
        asker.wait_subscribed(60)  # so it knows its pipe
        descriptor = armed(clock)
        wake = asker.caller.waker()
        assert wake is not None
        assert not wake()
        assert not readable(descriptor)
        asker.send(b"now")
        assert readable(descriptor)
        assert clock.receive_nowait() == b"now"


def test_a_callback_is_not_called_ahead(two_cores: None, kernel_factory: KernelFactory) -> None:
    """Not even for a thread that sleeps in a call."""
    kernel = kernel_factory(*routes())
    called: list[int] = []
    ready = threading.Event()

    def receive() -> None:
        with kernel.open("clock") as clock:
            clock.on_arrival(lambda: called.append(1))
            called.clear()
            ready.set()
            assert clock.receive(60) == b"now"

    with kernel.open("asker") as asker:
        thread = threading.Thread(target=receive)
        thread.start()
        ready.wait(60)
        asker.wait_subscribed(60)
        wake, pipe = asker.caller.waker(), asker.caller.port.only_target()
        assert wake is not None
        assert pipe is not None
        assert pipe.reader_bell is not None
        while not pipe.reader_bell.waiting:
            pass
        assert not wake()
        assert not called
        asker.send(b"now")
        thread.join()
