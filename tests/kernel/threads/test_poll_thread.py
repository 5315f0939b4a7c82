"""A thread that hosts engines: descriptors, timers, failures that stay where they belong."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from kernel.dispatcher.dispatcher import Dispatcher
from kernel.hosting.backoff import BackoffOptions
from kernel.pipes.mailbox import Mailbox
from kernel.threads.engine_thread import EngineThread
from kernel.threads.guest_thread import GuestThread
from tests.kernel.threads.conftest import TIMEOUT, Engine, Reports, Rig

QUICK = BackoffOptions(first=0.01, most=0.04, jitter=0)


class Nobody:
    """A port's owner that raises when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def on_output(self) -> None:
        if self._error is not None:
            raise self._error

    def on_writable(self) -> None:
        """Not used."""

    def on_confirmed(self, position: int) -> None:
        """Not used."""


def boom(*_: Any) -> None:
    raise ZeroDivisionError("boom")


async def boom_later() -> None:
    await trio.lowlevel.checkpoint()
    boom()


def fail_in_descriptor(host: Any) -> None:
    read, write = os.pipe()

    def readable() -> None:
        os.close(read)
        os.close(write)
        boom()

    host.watch(read, readable=readable)
    os.write(write, b"x")


def fail_in_task(host: Any) -> None:
    host.nursery.start_soon(boom_later)


FAILURES: dict[str, Callable[[Any], Any]] = {
    "in run": boom,
    "in run, later": lambda _: boom_later(),
    "in a task": fail_in_task,
    "in soon": lambda host: host.soon(boom),
    "in post": lambda host: host.post(boom),
    "in a timer": lambda host: host.set_timer(host.now(), boom, "key"),
    "in a descriptor's callback": fail_in_descriptor,
}


@pytest.mark.parametrize("where", FAILURES)
def test_an_engine_that_raises_takes_nothing_else_down_and_is_restarted(rig: Rig, where: str) -> None:
    good = rig.run("good", Engine())
    lives: list[int] = []

    def make() -> Engine:
        lives.append(1)
        return Engine(FAILURES[where] if len(lives) == 1 else None)

    state = rig.thread.add("bad", make, QUICK)
    failed = rig.reports.wait("failed", "bad")
    assert "ZeroDivisionError" in failed.detail
    assert failed.next_try == 0.01
    rig.reports.wait("running", "bad", times=2)
    assert (state.state, state.failures) == ("running", 1)
    assert state.last_failure.startswith("ZeroDivisionError: boom (")
    assert failed.trace.endswith("ZeroDivisionError: boom")
    assert rig.call(good.host.now) > 0
    assert len(rig.reports.of("running", "good")) == 1


def test_an_engine_that_cannot_be_constructed_is_tried_again_at_growing_distances(rig: Rig) -> None:
    good = rig.run("good", Engine())
    state = rig.thread.add("bad", boom, QUICK)
    rig.reports.wait("failed", "bad", times=4)
    assert [event.next_try for event in rig.reports.of("failed", "bad")[:4]] == [0.01, 0.02, 0.04, 0.04]
    assert state.failures >= 4
    assert state.next_try == 0.04
    assert rig.call(good.host.now) > 0


def test_a_port_owner_that_raises_fails_its_own_engine(rig: Rig) -> None:
    engine = rig.run("bad", Engine())
    rig.call(
        lambda: engine.host.port("p", Nobody(ZeroDivisionError("boom"))).on_failure(ZeroDivisionError("boom"))
    )
    assert "boom" in rig.reports.wait("failed", "bad").detail


def test_an_engine_that_returns_has_ended(rig: Rig) -> None:
    class Brief(Engine):
        async def run(self, host: Any, *, task_status: Any) -> None:
            task_status.started()

    state = rig.thread.add("brief", Brief)
    rig.reports.wait("ended", "brief")
    assert state.state == "ended"


def test_a_failed_engine_gives_everything_back(rig: Rig) -> None:
    ours, theirs = socket.socketpair()
    fired: list[int] = []

    def live(host: Any) -> None:
        host.port("p", Nobody())
        host.watch(ours.fileno(), readable=lambda: fired.append(1))
        host.set_timer(host.now() + 3600, lambda: fired.append(2), "key")
        host.soon(boom)

    lives: list[int] = []

    def make() -> Engine:
        lives.append(1)
        return Engine(live if len(lives) == 1 else None)

    rig.thread.add("bad", make, QUICK)
    rig.reports.wait("failed", "bad")
    theirs.send(b"x")
    assert rig.call(rig.dispatcher.ports) == []
    rig.reports.wait("running", "bad", times=2)
    assert rig.call(lambda: rig.thread._loop.next_timer()) == math.inf
    assert fired == []
    ours.close()
    theirs.close()


def test_a_removed_engine_is_gone_and_its_name_is_free(rig: Rig) -> None:
    rig.run("e", Engine(lambda host: host.port("e", Nobody()) and None))
    gone = threading.Event()
    rig.thread.remove("e", gone.set)
    assert gone.wait(TIMEOUT)
    assert rig.dispatcher.ports() == []
    assert "e" not in rig.thread.states
    rig.thread.remove("e", gone.set)
    rig.thread.add("e", Engine)
    rig.reports.wait("running", "e", times=2)


def test_descriptors_wake_the_thread(rig: Rig) -> None:
    ours, theirs = socket.socketpair()
    got: list[bytes] = []
    arrived = threading.Event()

    def readable() -> None:
        got.append(ours.recv(100))
        arrived.set()

    engine = rig.run("e", Engine(lambda host: host.watch(ours.fileno(), readable=readable)))
    for number in range(5):
        arrived.clear()
        theirs.send(b"%d" % number)
        assert arrived.wait(TIMEOUT)
    assert got == [b"%d" % number for number in range(5)]
    rig.call(lambda: engine.host.watch(ours.fileno()))
    theirs.send(b"unwatched")
    rig.call(lambda: None)
    assert len(got) == 5
    ours.close()
    theirs.close()


def test_timers_fire_in_order_and_may_be_replaced_or_cancelled(rig: Rig) -> None:
    fired: list[str] = []
    over = threading.Event()

    def live(host: Any) -> None:
        now = host.now()
        host.set_timer(now + 0.03, over.set, "last")
        host.set_timer(now + 0.02, lambda: fired.append("b"), "b")
        host.set_timer(now + 0.01, lambda: fired.append("a"), "a")
        host.set_timer(now + 0.015, lambda: fired.append("cancelled"), "c")
        host.set_timer(None, boom, "c")
        host.set_timer(now + 0.001, lambda: fired.append("replaced"), "r")
        host.set_timer(now + 0.025, lambda: fired.append("r"), "r")

    rig.run("e", Engine(live))
    assert over.wait(TIMEOUT)
    assert fired == ["a", "b", "r"]


def test_soon_lets_the_others_have_their_turn(rig: Rig) -> None:
    order: list[str] = []
    over = threading.Event()

    def live(host: Any) -> None:
        def again(left: int) -> None:
            order.append("busy")
            if left:
                host.soon(lambda: again(left - 1))
            else:
                over.set()

        again(3)
        host.post(lambda: order.append("neighbour"))

    rig.run("e", Engine(live))
    assert over.wait(TIMEOUT)
    assert order.index("neighbour") < 4


def test_trio_tasks_get_their_turn_though_engines_never_rest(rig: Rig) -> None:
    ticked = threading.Event()

    def live(host: Any) -> None:
        def busy() -> None:
            if not ticked.is_set():
                host.soon(busy)

        async def tick() -> None:
            await trio.sleep(0.01)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            ticked.set()

        busy()
        host.nursery.start_soon(tick)

    rig.run("e", Engine(live))
    assert ticked.wait(TIMEOUT)


def test_engines_get_their_turn_though_trio_tasks_never_rest(rig: Rig) -> None:
    over = threading.Event()

    def live(host: Any) -> None:
        async def busy() -> None:
            while not over.is_set():
                await trio.lowlevel.checkpoint()

        host.nursery.start_soon(busy)
        host.set_timer(host.now() + 0.01, lambda: host.soon(over.set), "t")

    rig.run("e", Engine(live))
    assert over.wait(TIMEOUT)


def test_posts_from_many_threads_all_arrive(rig: Rig) -> None:
    count = [0]
    each = 3000

    def add() -> None:
        count[0] += 1

    def post() -> None:
        for _ in range(each):
            rig.thread.mailbox.post(add)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rig.call(lambda: count[0]) == 4 * each


@pytest.mark.slow
def test_an_idle_thread_uses_no_processor_time(rig: Rig) -> None:
    rig.run("e", Engine())
    before = rig.call(time.thread_time)
    threading.Event().wait(0.3)
    assert rig.call(time.thread_time) - before < 0.05


def test_a_thread_may_be_stopped_before_it_has_begun() -> None:
    rig = Rig()
    rig.close()


def test_lingering_ends_as_soon_as_it_may_or_at_its_deadline() -> None:
    rig = Rig()
    asked: list[int] = []

    def not_yet() -> bool:
        asked.append(1)
        return False

    rig.thread.linger(0.1, not_yet)
    assert rig.thread.join(TIMEOUT)
    assert asked
    rig.thread.mailbox.bell.close()
    rig = Rig()
    rig.thread.linger(3600, lambda: True)
    assert rig.thread.join(TIMEOUT)
    rig.thread.mailbox.bell.close()


class Lingering(Engine):
    """Keeps how long it may take to end its conversations."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1.0
        self.cancelled = threading.Event()

    async def run(self, host: Any, *, task_status: Any) -> None:
        try:
            await super().run(host, task_status=task_status)
        finally:
            self.left = host.linger_left()
            self.cancelled.set()


@pytest.mark.parametrize(
    "how, most",
    [
        (EngineThread.stop, 0.0),
        (lambda thread: thread.linger(3600, lambda: True), 3600.0),
        (lambda thread: thread.remove("polite"), 0.0),
        (lambda thread: thread.remove("polite", linger=3600), 3600.0),
    ],
    ids=["stopped", "lingering", "removed", "removed, lingering"],
)
def test_an_engine_is_told_how_long_it_may_take_to_end_its_conversations(
    rig: Rig, how: Callable[[EngineThread], None], most: float
) -> None:
    engine = Lingering()
    rig.run("polite", engine)
    how(rig.thread)
    assert engine.cancelled.wait(TIMEOUT)
    assert 0.9 * most <= engine.left <= most


class Polite(Engine):
    """Asks its peer to close when it has to go, and stays until there is an answer."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        self._line = line
        self.answers: list[bytes] = []

    async def run(self, host: Any, *, task_status: Any) -> None:
        answered = trio.Event()

        def on_readable() -> None:
            self.answers.append(self._line.recv(100))
            answered.set()

        host.watch(self._line.fileno(), readable=on_readable)
        try:
            await super().run(host, task_status=task_status)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + TIMEOUT):
                self._line.send(b"bye")
                await answered.wait()


GOING: dict[str, Callable[[EngineThread], None]] = {
    "stopped": EngineThread.stop,
    "lingering": lambda thread: thread.linger(3600, lambda: True),
}


@pytest.mark.parametrize("how", GOING)
def test_an_engine_that_has_to_go_hears_what_it_is_answered(rig: Rig, how: str) -> None:
    ours, peers = socket.socketpair()
    with ours, peers:
        engine = Polite(ours)
        rig.run("polite", engine)
        GOING[how](rig.thread)
        peers.settimeout(TIMEOUT)
        assert peers.recv(100) == b"bye"
        rig.thread.stop()  # once more: it is leaving, and leaves when the engine has
        peers.send(b"close")
        assert rig.thread.join(TIMEOUT)
        assert engine.answers == [b"close"]


def test_so_does_one_in_the_applications_own_trio_run() -> None:
    ours, peers = socket.socketpair()

    async def main() -> None:
        guest = GuestThread("t", Dispatcher(), Reports())
        async with trio.open_nursery() as nursery:
            await nursery.start(guest.serve)
            guest.add("polite", lambda: engine)
            while engine.host is None:
                await trio.lowlevel.checkpoint()
            guest.stop()
            await trio.lowlevel.wait_readable(peers)
            assert peers.recv(100) == b"bye"
            peers.send(b"close")
        guest.mailbox.bell.close()

    with ours, peers:
        engine = Polite(ours)
        trio.run(main)
        assert engine.answers == [b"close"]


@pytest.mark.slow
def test_whoever_is_posted_to_in_answer_to_an_answer_is_woken(rig: Rig) -> None:
    """Two threads and a mailbox of ours, which sleeps: post after post leads to it, and none may stop half-way."""
    ours = Mailbox()
    mailbox = rig.thread.mailbox
    post_to_us = mailbox.poster_to(ours)
    rounds = 3000
    for number in range(rounds):
        ours.bell.sleeping = True

        def answer_late() -> None:
            mailbox.post(lambda: post_to_us(lambda: None))

        mailbox.post(answer_late)
        assert ours.posted or ours.bell.wait(TIMEOUT), f"a wake-up was lost in round {number}"
        while not ours.process():
            ours.bell.sleeping = True
            assert ours.posted or ours.bell.wait(TIMEOUT), f"a wake-up was lost in round {number}"
    ours.bell.close()


def test_a_timer_may_be_set_for_next_month(rig: Rig) -> None:
    def live(host: Any) -> None:
        host.set_timer(host.now() + 30 * 86_400, boom, "later")

    rig.run("patient", Engine(live))
    time.sleep(0.05)  # asleep by then
    assert rig.call(lambda: 1) == 1


def test_an_engine_waits_for_the_last_of_its_name_that_lives_not_for_one_that_never_did(rig: Rig) -> None:
    let_go = trio.Event()
    lives: list[str] = []

    async def slow_farewell(host: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await let_go.wait()
            lives.append("gone")

    rig.run("e", Engine(slow_farewell))
    rig.thread.remove("e")
    rig.thread.add("e", Engine)
    rig.thread.remove("e")
    rig.thread.add("e", lambda: Engine(lambda _: lives.append("came")))
    assert rig.call(lambda: lives) == []
    rig.call(let_go.set)
    rig.reports.wait("running", "e", times=2)
    assert rig.call(lambda: lives) == ["gone", "came"]  # asked there: it comes when it has reported
