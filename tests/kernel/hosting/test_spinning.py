"""A wait that looks for a moment before it sleeps."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from kernel.hosting import spinning
from kernel.hosting.spinning import (
    LONG_MOMENT,
    MOMENT,
    MOST_APART,
    MOST_RESTS,
    TOGETHER,
    TOGETHER_EVERY,
    Spinning,
    SpinningPoll,
    SpinningRead,
)

NEWS = [(7, 1)]


class Socket:
    """Has news ``delay`` seconds after each wait began; its clock passes a microsecond with each look."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        # Not a time at which all threads look, and neither are the next 98 ms.
        self.now = TOGETHER
        self.looks = self.sleeps = 0
        self.news_at = 0.0

    def wait(self, poll: SpinningPoll) -> None:
        self.news_at = self.now + self.delay
        assert poll(500) == NEWS

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        if milliseconds:
            self.sleeps += 1
            self.now = max(self.now, self.news_at)
            return NEWS
        self.looks += 1
        self.now += 1e-6
        return NEWS if self.now >= self.news_at else []


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may keep all cores busy."""
    monkeypatch.setattr(spinning, "crowded", lambda: False)


@pytest.fixture
def socket(monkeypatch: pytest.MonkeyPatch) -> Socket:
    socket = Socket(10e-6)
    monkeypatch.setattr(spinning.time, "perf_counter", lambda: socket.now)
    return socket


def test_an_answer_that_comes_at_once_is_received_without_a_sleep(socket: Socket) -> None:
    poll = SpinningPoll(socket.poll)
    for _ in range(100):
        socket.wait(poll)
    assert socket.sleeps == 0


def test_who_waits_long_hardly_looks(socket: Socket) -> None:
    # Behind a second that begins with the others', and then at all times.
    socket.delay = 1.00003
    poll = SpinningPoll(socket.poll)
    for _ in range(20_000):
        socket.wait(poll)
    assert socket.sleeps == 20_000
    # Some in the first waits, then one in ``MOST_RESTS``, and the times at which all threads look.
    by_itself = MOMENT * (20_000 / MOST_RESTS + 12)
    together = LONG_MOMENT * 20_000 * TOGETHER / TOGETHER_EVERY
    assert socket.looks * 1e-6 < by_itself + 1.2 * together


def test_who_waits_a_little_too_long_spends_a_fiftieth_of_its_time_on_looks_and_then_less(
    socket: Socket,
) -> None:
    """A peer on another machine, or a feed of 10,000 messages a second."""
    socket.delay = LONG_MOMENT - 10e-6
    poll = SpinningPoll(socket.poll)
    while socket.now < 1:
        socket.wait(poll)
    assert socket.looks * 1e-6 < 1.2 * TOGETHER / TOGETHER_EVERY
    # Later less and less: the times at which all look have not paid.
    socket.looks = 0
    while socket.now < 21:
        socket.wait(poll)
    by_itself = MOMENT / MOST_RESTS / socket.delay
    together = TOGETHER / TOGETHER_EVERY / MOST_APART
    assert socket.looks * 1e-6 < 1.2 * 20 * (by_itself + together)


def test_it_looks_again_when_answers_come_sooner(socket: Socket) -> None:
    poll = SpinningPoll(socket.poll)
    socket.delay = 1.0
    for _ in range(20_000):
        socket.wait(poll)
    socket.delay = 10e-6
    for _ in range(MOST_RESTS + 1):
        socket.wait(poll)
    socket.sleeps = 0
    for _ in range(100):
        socket.wait(poll)
    assert socket.sleeps == 0
    # One answer that is late costs one wait without a look, not a thousand.
    socket.delay = 1.0
    socket.wait(poll)
    socket.delay = 10e-6
    socket.sleeps = 0
    for _ in range(100):
        socket.wait(poll)
    assert socket.sleeps == 1


def test_who_is_told_to_looks_before_every_sleep(socket: Socket) -> None:
    socket.delay = 1.0
    poll = SpinningPoll(socket.poll, 100e-6)
    for _ in range(50):
        socket.wait(poll)
    assert socket.sleeps == 50
    assert socket.looks == pytest.approx(50 * 100, rel=0.05)


def test_who_is_told_not_to_never_looks(socket: Socket) -> None:
    poll = SpinningPoll(socket.poll, 0.0)
    for _ in range(50):
        socket.wait(poll)
    assert socket.sleeps == 50
    assert socket.looks == 0


def test_who_does_not_wait_does_not_look(socket: Socket) -> None:
    socket.news_at = 1.0
    assert SpinningPoll(socket.poll)(0) == []
    assert socket.looks == 1


WAKING = 45e-6
"""Seconds from an answer until a thread that slept has it, on a virtual machine with two cores."""
WORK = 20e-6
"""Seconds from a question until its answer."""


class Talk:
    """Two threads that answer each other, each as soon as it is asked, and wait meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sides = [Spinning(None), Spinning(None)]
        self.now = TOGETHER
        self.since = [self.now, self.now]
        self.sleeps = self.trips = 0
        monkeypatch.setattr(spinning.time, "perf_counter", lambda: self.now)

    def until(self, end: float, hiccups: int = 0) -> None:
        """Talk until ``end``; each ``hiccups``-th answer takes 300 us longer."""
        self.sleeps = self.trips = 0
        while self.now < end:
            for side in range(2):
                late = 300e-6 if hiccups and self.trips % hiccups == side else 0
                self._wait(side, self.now + late)
                self.now += WORK
                self.since[side] = self.now
            self.trips += 1

    def _wait(self, side: int, answer: float) -> None:
        """The side has waited since it answered; set the time to when it has the answer."""
        spin, self.now = self.sides[side], self.since[side]
        until = -math.inf if spin.rests() else spin.until(self.now)
        if answer <= until:
            self.now = max(self.now, answer)
            spin.something_came(self.now)
        else:
            if until > 0:
                spin.nothing_came()
            self.now = max(answer, until) + WAKING
            self.sleeps += 1


def test_two_threads_find_out_together_that_looks_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes longer to wake and to answer than the other one looks by itself."""
    assert MOMENT < WAKING + WORK < LONG_MOMENT
    talk = Talk(monkeypatch)
    for side in talk.sides:
        for _ in range(20):
            side.in_vain()
    talk.until(TOGETHER_EVERY)
    assert talk.sleeps == 2 * talk.trips
    talk.until(2 * TOGETHER_EVERY)
    assert 0 < talk.sleeps < 30
    talk.until(10 * TOGETHER_EVERY)
    assert talk.sleeps == 0


@pytest.mark.parametrize("apart", [(MOST_APART, MOST_APART), (1, MOST_APART), (4, 2)])
def test_threads_for_which_it_has_not_paid_for_long_find_each_other_later(
    monkeypatch: pytest.MonkeyPatch, apart: tuple[int, int]
) -> None:
    """What one keeps of the times at which all look, the one that keeps more of them keeps, too."""
    talk = Talk(monkeypatch)
    for side, every in zip(talk.sides, apart, strict=True):
        for _ in range(20):
            side.in_vain()
        side._every = every
    talk.until((max(apart) + 0.5) * TOGETHER_EVERY)
    talk.until((max(apart) + 10) * TOGETHER_EVERY)
    assert talk.sleeps == 0


def test_two_threads_find_each_other_again_after_a_hiccup(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(monkeypatch)
    talk.until(20 * TOGETHER_EVERY, hiccups=3000)
    # A quarter of all waits.
    assert talk.sleeps < talk.trips / 2


def test_a_read_looks_before_it_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = TOGETHER, []

    def read(size: int, flags: int = 0) -> bytes:
        nonlocal now
        calls.append(flags)
        if not flags:
            return b"late"
        now += 20e-6
        if len(calls) == 3:
            return b"soon"
        raise BlockingIOError

    monkeypatch.setattr(spinning.time, "perf_counter", lambda: now)
    arrived = Arrived()
    recv = SpinningRead(read, 10, arrived)
    recv()
    assert arrived.all == [b"soon"]
    assert 0 not in calls
    calls[:] = [0] * 3
    recv()
    looked = len(calls)
    recv()
    assert arrived.all == [b"soon", b"late", b"late"]
    assert len(calls) == looked + 1, "it rests"


class Arrived:
    """What was read, one item a read."""

    def __init__(self) -> None:
        self.all: list[bytes | None] = []

    @property
    def data(self) -> bytes | None:
        return self.all[-1]

    @data.setter
    def data(self, data: bytes | None) -> None:
        self.all.append(data)


def test_what_a_blocking_read_raises_is_raised() -> None:
    """The end of the time limit of the socket, which the owner takes for a sign that something is due."""

    def read(size: int, flags: int = 0) -> bytes:
        raise BlockingIOError

    with pytest.raises(BlockingIOError):
        SpinningRead(read, 10, Arrived())()


def test_what_is_there_already_is_no_reason_to_look_for_more(socket: Socket) -> None:
    """A peer on the same core may answer before the wait begins, and cannot answer within it."""
    poll = SpinningPoll(socket.poll)
    for number in range(20_000):
        socket.delay = 0.0 if number % 2 else 1.0
        socket.wait(poll)
    assert socket.looks * 1e-6 < MOMENT * (20_000 / MOST_RESTS + 12) + 20_000 * 1e-6


def test_who_is_in_the_way_of_others_sleeps_at_once(socket: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "crowded", lambda: True)
    poll = SpinningPoll(socket.poll)
    for _ in range(100):
        socket.wait(poll)
    assert socket.sleeps == 100
    assert socket.looks == 100, "what is there already is seen before anybody is counted"
    # And looks again as soon as there is a core for it.
    monkeypatch.setattr(spinning, "crowded", lambda: False)
    socket.wait(poll)
    assert socket.sleeps == 100


def test_somebody_who_comes_while_it_looks_gets_the_core(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket.delay = 1.0
    monkeypatch.setattr(spinning, "crowded", lambda: socket.now > TOGETHER + 5e-6)
    socket.wait(SpinningPoll(socket.poll))
    assert socket.sleeps == 1
    assert 5 < socket.looks < MOMENT * 1e6 / 2


def test_who_is_told_to_looks_on_a_crowded_machine(socket: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "crowded", lambda: True)
    poll = SpinningPoll(socket.poll, 100e-6)
    for _ in range(50):
        socket.wait(poll)
    assert socket.sleeps == 0


def test_a_read_that_is_in_the_way_of_others_blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spinning, "crowded", lambda: True)
    calls = []

    def read(size: int, flags: int = 0) -> bytes:
        calls.append(bool(flags))
        if flags:
            raise BlockingIOError
        return b"late"

    arrived = Arrived()
    recv = SpinningRead(read, 10, arrived)
    recv()
    recv()
    assert arrived.all == [b"late", b"late"]
    assert calls == [True, False, True, False]


@pytest.mark.parametrize(
    "text, cores, crowded",
    [
        ("0.87 0.61 0.64 3/79 7180\n", 2, True),
        ("0.87 0.61 0.64 2/79 7180\n", 2, False),
        ("128.00 64.10 3.02 12/1043 99999\n", 8, True),
        ("0.00 0.00 0.00 1/2 1\n", 1, False),
        ("", 1, False),
        ("something else", 1, False),
    ],
)
def test_a_machine_is_crowded_while_more_threads_can_run_than_it_has_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cores: int, crowded: bool
) -> None:
    monkeypatch.undo()
    (tmp_path / "loadavg").write_text(text)
    with (tmp_path / "loadavg").open("rb") as file:
        monkeypatch.setattr(spinning, "_loadavg", file.fileno())
        monkeypatch.setattr(spinning, "_cores", cores)
        assert spinning.crowded() is crowded


def test_where_the_system_does_not_say_it_no_machine_is_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(spinning, "_loadavg", -1)
    assert spinning.crowded() is False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how many threads can run")
def test_the_system_counts_the_threads_that_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    # This thread runs.
    monkeypatch.setattr(spinning, "_cores", 0)
    assert spinning.crowded() is True
