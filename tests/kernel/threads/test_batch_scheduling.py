"""Batch scheduling: it is tried where it may pay, kept where it does, and given up where it does not."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kernel.pipes.mailbox import Mailbox
from kernel.threads import batch_scheduling
from kernel.threads.batch_scheduling import (
    LONGEST,
    MOST_RESTS,
    OFTEN,
    WINDOW,
    BatchScheduling,
    policy_chooser,
)
from kernel.threads.loop import Loop
from kernel.threads.poller import Poller, SelectorPoller, new_poller
from tests.kernel.threads.conftest import TIMEOUT, Engine, Rig


class Thread:
    """A thread that sleeps so often, and gets so much."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.now = 0.0
        self.octets = 0.0
        self.chosen: list[bool] = []
        self._allowed = allowed
        self.scheduling = BatchScheduling(self._choose, lambda: self.now)

    def _choose(self, batch: bool) -> bool:
        self.chosen.append(batch)
        return self._allowed

    def window(self, rate: float, *, pause: float = OFTEN / 4) -> bool:
        """Live for one window; return whether it is scheduled as a batch thread then."""
        end = self.now + WINDOW
        while self.now < end:
            self.now += pause
            self.octets += rate * pause
            self.scheduling.before_sleep(int(self.octets))
        return self.scheduling.batch

    def trials(self, windows: int, rate: float, gain: float) -> list[int]:
        """Live for so many windows; return in which ones it was tried."""
        tried = []
        for window in range(windows):
            if self.scheduling.batch:
                tried.append(window)
            self.window(rate * gain if self.scheduling.batch else rate)
        return tried


def test_who_sleeps_rarely_is_scheduled_as_usual() -> None:
    thread = Thread()
    for _ in range(10):
        assert not thread.window(1e6, pause=OFTEN * 1.1)
    assert not thread.chosen


def test_who_sleeps_often_and_gets_more_stays_a_batch_thread_and_is_compared_anew_after_a_while() -> None:
    assert Thread().trials(2 * (LONGEST + 1), 1e6, 1.2) == [
        *range(1, LONGEST + 1),
        *range(LONGEST + 2, 2 * (LONGEST + 1)),
    ]


def test_what_gives_nothing_is_tried_ever_more_rarely() -> None:
    # Strangers have the cores, or a client waits for each answer, or a clock sends the messages.
    tried = Thread().trials(400, 1e6, 1.0)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:6] == [3, 4, 6, 10, 18, 34]
    assert set(pauses[6:]) == {MOST_RESTS + 2}


def test_a_gain_that_is_over_ends_it_and_it_is_tried_again_at_once() -> None:
    thread = Thread()
    assert thread.window(1e6)
    assert thread.window(1.2e6)
    assert thread.window(1.0e6)
    assert not thread.window(0.99e6)
    assert thread.window(0.8e6)
    assert thread.chosen == [True, False, True]


def test_a_gain_makes_trials_frequent_again() -> None:
    thread = Thread()
    thread.trials(60, 1e6, 0.5)
    for _ in range(MOST_RESTS):
        if thread.window(1e6):
            break
    assert thread.window(1.1e6)
    assert not thread.window(0.9e6)
    assert thread.window(1e6)
    assert not thread.window(1e6)
    # In vain, for the first time since.
    assert not thread.window(1e6)
    assert thread.window(1e6)


def test_who_falls_silent_is_scheduled_as_usual_with_the_first_message_behind_it() -> None:
    thread = Thread()
    assert thread.window(1e6)
    assert thread.window(2e6)
    assert not thread.window(10, pause=60.0)


def test_who_gets_no_octets_is_scheduled_as_usual() -> None:
    thread = Thread()
    assert thread.trials(10, 0.0, 1.0) == []
    assert not thread.chosen


def test_who_is_not_allowed_to_choose_asks_once() -> None:
    thread = Thread(allowed=False)
    assert thread.trials(100, 1e6, 2.0) == []
    assert thread.chosen == [True]


def in_a_thread(work: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _has_batch_threads() -> bool:
    try:
        return hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) >= 0
    except OSError:
        return False


needs_linux = pytest.mark.skipif(
    not _has_batch_threads(),
    reason="batch threads are Linux's, and musl cannot ask for them: run this with glibc",
)


@needs_linux
def test_the_system_schedules_the_thread_so_and_no_other() -> None:
    def work() -> None:
        choose = policy_chooser()
        assert choose is not None
        assert choose(True)
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        assert os.sched_getscheduler(os.getpid()) == os.SCHED_OTHER
        assert choose(False)
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    in_a_thread(work)


@needs_linux
@pytest.mark.parametrize("policy", ["SCHED_BATCH", "SCHED_IDLE"])
def test_what_somebody_has_chosen_for_a_thread_stays(policy: str) -> None:
    def work() -> None:
        os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
        assert policy_chooser() is None

    in_a_thread(work)


@needs_linux
def test_where_the_library_cannot_even_tell_there_is_nothing_to_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """musl, of Alpine Linux."""

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "sched_getscheduler", fail)
    monkeypatch.setattr(os, "sched_setscheduler", fail)
    assert policy_chooser() is None


@needs_linux
def test_a_choice_that_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    choose = policy_chooser()
    assert choose is not None
    assert not choose(True)


@pytest.mark.parametrize("make", [new_poller, SelectorPoller])
def test_a_poller_counts_what_callbacks_say_that_they_have_read(make: type[Poller]) -> None:
    poller = make()
    errors: list[Exception] = []
    pairs = [socket.socketpair() for _ in range(3)]
    results: list[int | None] = [5, None, 0]
    for (ours, theirs), result in zip(pairs, results, strict=True):
        poller.watch(ours.fileno(), partial(lambda result: result, result), None, errors.append)
        theirs.send(b"x")
    assert poller.poll(0) == 3
    assert poller.octets == 5
    assert not errors
    poller.close()
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


@needs_linux
def test_a_poll_thread_tells_how_much_has_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_scheduling, "WINDOW", 0.0)
    monkeypatch.setattr(batch_scheduling, "OFTEN", 3600.0)
    chosen: list[bool] = []
    tried = threading.Event()

    def choose(batch: bool) -> bool:
        chosen.append(batch)
        tried.set()
        return True

    monkeypatch.setattr("kernel.threads.loop.policy_chooser", lambda: choose)
    rig = Rig()
    ours, theirs = socket.socketpair()

    def live(host: Any) -> None:
        host.watch(ours.fileno(), readable=lambda: len(ours.recv(4096)))

    engine = rig.run("reader", Engine(live))
    assert not chosen
    theirs.send(b"x" * 1000)
    # The first sleep behind it ends a window in which something has come.
    assert tried.wait(TIMEOUT)
    assert rig.call(lambda: engine.host._loop.poller.octets) == 1000
    assert chosen[0]
    rig.call(lambda: engine.host.watch(ours.fileno()))
    rig.close()
    ours.close()
    theirs.close()


def test_a_loop_in_the_run_of_an_application_leaves_its_thread_alone() -> None:
    loop = Loop(Mailbox(), own_thread=False)
    assert loop._scheduling is None
    loop.close()
    loop.mailbox.bell.close()
