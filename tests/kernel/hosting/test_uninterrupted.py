"""Handlers of signals wait at the end of a block, run where it sleeps, and are put back whatever happens."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel.hosting.uninterrupted import UNINTERRUPTED
from tests.interruptions import EVERYWHERE, Interrupted, interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)


class Handlers:
    """Handlers that note what comes."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.raises = False

    def __call__(self, number: int, frame: Any) -> None:
        self.came.append(number)
        if self.raises:
            raise Interrupted


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    handlers = Handlers()
    before = {number: signal.signal(number, handlers) for number in NUMBERS}
    yield handlers
    after = {number: signal.signal(number, each) for number, each in before.items()}
    assert set(after.values()) == {handlers}, "they were not put back"
    assert not UNINTERRUPTED.depth


@pytest.mark.parametrize("number", NUMBERS)
def test_a_handler_runs_at_the_end_and_once(handlers: Handlers, number: int) -> None:
    with UNINTERRUPTED:
        with UNINTERRUPTED:
            signal.raise_signal(number)
            signal.raise_signal(number)
        assert not handlers.came
    assert handlers.came == [number]


def test_a_handler_may_raise_at_the_end(handlers: Handlers) -> None:
    handlers.raises = True
    done: list[bool] = []

    def block() -> None:
        with UNINTERRUPTED:
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(Interrupted):
        block()
    assert done


def test_each_of_several_runs_although_all_raise(handlers: Handlers) -> None:
    handlers.raises = True

    def block() -> None:
        with UNINTERRUPTED:
            for number in NUMBERS:
                signal.raise_signal(number)

    with pytest.raises(Interrupted):
        block()
    assert sorted(handlers.came) == sorted(NUMBERS)


def test_where_a_block_sleeps_handlers_run_and_raise(handlers: Handlers) -> None:
    with UNINTERRUPTED, UNINTERRUPTED:
        signal.raise_signal(signal.SIGINT)
        with UNINTERRUPTED.sleeping():
            assert handlers.came == [signal.SIGINT]
            handlers.raises = True
            with pytest.raises(Interrupted):
                signal.raise_signal(signal.SIGINT)
            handlers.raises = False
        signal.raise_signal(signal.SIGTERM)
        assert len(handlers.came) == 2
    assert handlers.came[2:] == [signal.SIGTERM]
    with UNINTERRUPTED.sleeping():
        signal.raise_signal(signal.SIGINT)
    assert handlers.came[3:] == [signal.SIGINT]


def test_a_handler_may_have_blocks_of_its_own() -> None:
    came: list[int] = []

    def handler(number: int, frame: Any) -> None:
        with UNINTERRUPTED:
            came.append(number)
            if len(came) == 1:
                signal.raise_signal(signal.SIGINT)
                assert len(came) == 1
        assert not UNINTERRUPTED.depth

    before = signal.signal(signal.SIGINT, handler)
    try:
        with UNINTERRUPTED:
            signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("raises", [False, True])
def test_wherever_a_signal_comes_its_handler_runs_and_is_put_back(handlers: Handlers, raises: bool) -> None:
    def blocks() -> None:
        with UNINTERRUPTED:
            with UNINTERRUPTED:
                pass
            with UNINTERRUPTED.sleeping():
                pass

    at = 0
    where = "first"
    while where:
        handlers.raises = raises
        handlers.came.clear()

        def run() -> None:
            handlers(signal.SIGINT, None)

        where, _ = interrupted(blocks, at, run, EVERYWHERE)
        handlers.raises = False
        assert len(handlers.came) == bool(where), where
        assert [signal.getsignal(number) for number in NUMBERS] == [handlers] * len(NUMBERS), where
        assert not UNINTERRUPTED.depth, where
        at += 1
    assert at > 20


def test_those_who_are_ignored_or_have_their_default_stay_so() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with UNINTERRUPTED:
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_other_threads_hold_nothing(handlers: Handlers) -> None:
    seen: list[Any] = []

    def block() -> None:
        with UNINTERRUPTED:
            seen.append(signal.getsignal(signal.SIGINT))
            with UNINTERRUPTED.sleeping():
                seen.append(UNINTERRUPTED.depth)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [handlers, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings(
    "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)  # of xdist, by Python 3.15
def test_a_child_that_is_forked_in_a_block_has_its_handlers(handlers: Handlers) -> None:
    with UNINTERRUPTED:
        signal.raise_signal(signal.SIGINT)
        child = os.fork()
        if not child:
            right = signal.getsignal(signal.SIGINT) is handlers and not handlers.came
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert handlers.came == [signal.SIGINT]
