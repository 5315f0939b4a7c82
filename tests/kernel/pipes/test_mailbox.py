"""Doorbell and mailbox: a sleeping reader is always woken, a waking one never disturbed."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest

from kernel.pipes.doorbell import Doorbell
from kernel.pipes.mailbox import Mailbox
from kernel.testing.leaks import open_descriptors


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    made = Mailbox()
    yield made
    made.bell.close()


def test_a_reader_that_is_awake_is_not_rung_for(mailbox: Mailbox) -> None:
    mailbox.post(lambda: None)
    assert not readable(mailbox.bell.fileno())


def test_a_sleeping_reader_is_rung_for_once(mailbox: Mailbox) -> None:
    mailbox.bell.sleeping = True
    mailbox.post(lambda: None)
    assert readable(mailbox.bell.fileno())
    assert not mailbox.bell.sleeping
    mailbox.bell.clear()
    mailbox.post(lambda: None)
    assert not readable(mailbox.bell.fileno())


def test_wait_returns_false_when_nobody_rang(mailbox: Mailbox) -> None:
    mailbox.bell.sleeping = True
    assert not mailbox.bell.wait(0)
    assert not mailbox.bell.sleeping


def test_wait_clears_the_bell(mailbox: Mailbox) -> None:
    mailbox.bell.ring()
    assert mailbox.bell.wait(60)
    assert not readable(mailbox.bell.fileno())


def test_process_calls_what_was_posted_in_order_and_leaves_later_posts_for_later(mailbox: Mailbox) -> None:
    called: list[int] = []

    def first() -> None:
        called.append(1)
        mailbox.post(lambda: called.append(3))

    mailbox.post(first)
    mailbox.post(lambda: called.append(2))
    assert mailbox.process()
    assert called == [1, 2]
    assert mailbox.process()
    assert called == [1, 2, 3]
    assert not mailbox.process()


def test_ringing_a_closed_bell_is_harmless() -> None:
    bell = Doorbell()
    bell.close()
    bell.ring()
    bell.close()
    assert bell.fileno() == -1


def test_ringing_without_end_does_not_block() -> None:
    bell = Doorbell()
    try:
        for _ in range(200_000):
            bell.ring()
        assert bell.wait(0)
        # An eventfd is silent then; a pipe that is full of rings, where there is none, after some more.
        assert any(not bell.wait(0) for _ in range(1 if hasattr(os, "eventfd") else 1000))
    finally:
        bell.close()


def test_a_closed_bell_gives_its_descriptor_back() -> None:
    before = open_descriptors()
    bells = [Doorbell() for _ in range(10)]
    for bell in bells:
        bell.close()
    assert open_descriptors().items() <= before.items()


def test_no_wake_up_is_ever_lost_between_two_threads() -> None:
    """Each side posts, then sleeps for the other's answer: one lost wake-up and both sleep for ever."""
    rounds = 10_000
    boxes = (Mailbox(), Mailbox())
    counts = [0, 0]

    def play(me: int) -> None:
        box, other = boxes[me], boxes[1 - me]

        def other_arrived() -> None:
            counts[1 - me] += 1

        if me == 0:
            other.post(other_arrived)
        while counts[me] < rounds:
            if box.process():
                other.post(other_arrived)
                continue
            box.bell.sleeping = True
            if box.posted:
                box.bell.sleeping = False
                continue
            if not box.bell.wait(60):
                return

    thread = threading.Thread(target=play, args=(1,))
    thread.start()
    play(0)
    thread.join(60)
    for box in boxes:
        box.bell.close()
    assert not thread.is_alive()
    assert min(counts) >= rounds - 1, "a wake-up was lost"


def test_many_writers_wake_one_reader() -> None:
    box = Mailbox()
    arrived: list[int] = []
    writers, each = 4, 5000

    def write(number: int) -> None:
        for _ in range(each):
            box.post(lambda: arrived.append(number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    while len(arrived) < writers * each:
        if box.process():
            continue
        box.bell.sleeping = True
        if not box.posted:
            assert box.bell.wait(60), "a wake-up was lost"
        box.bell.sleeping = False
    for thread in threads:
        thread.join()
    box.bell.close()
    assert [arrived.count(number) for number in range(writers)] == [each] * writers


def test_a_wait_may_be_longer_than_the_system_can_be_asked_for(mailbox: Mailbox) -> None:
    threading.Timer(0.05, mailbox.bell.ring).start()
    assert mailbox.bell.wait(30 * 86_400)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_bell_that_is_closed_before_its_reader_sleeps_wakes_it(timeout: float | None) -> None:
    """A kernel that closes rings its callers and closes their bells; a caller may be on its way to sleep."""
    mailbox = Mailbox()
    assert mailbox.may_sleep()
    mailbox.post(lambda: None)
    mailbox.bell.close()
    assert mailbox.bell.wait(timeout)
    assert not mailbox.bell.sleeping
    mailbox.bell.clear()
    mailbox.bell.silence()


def test_a_reader_is_rung_for_ahead_only_while_it_waits(mailbox: Mailbox) -> None:
    bell = mailbox.bell
    assert not bell.ring_ahead()
    # It is armed, but sleeps elsewhere: there its descriptor says that something has come.
    assert mailbox.may_sleep()
    assert not bell.ring_ahead()
    assert not readable(bell.fileno())
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(bell.wait(60)))
    thread.start()
    while not bell.ring_ahead():
        pass
    thread.join()
    assert waited == [True]
    assert not bell.sleeping
    assert not bell.ring_ahead()
    assert not readable(bell.fileno())


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_bell_that_is_closed_keeps_its_number_until_its_reader_has_left(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """The reader may just be about to ask the system, where the number could be that of another file."""
    bell = Doorbell()
    number = bell.fileno()
    kept: list[bool] = []

    def close() -> None:
        if not kept:
            thread = threading.Thread(target=bell.close)
            thread.start()
            thread.join()
            kept.append(is_open(number))

    def read(descriptor: int, most: int) -> bytes:
        close()
        return real_read(descriptor, most)

    class Poll:
        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            close()
            return real_poll(milliseconds)

    real_read, real_poll = os.read, bell._poll.poll
    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(bell, "_poll", Poll())
    bell.sleeping = True
    assert bell.wait(timeout), "it was woken"
    assert bell.fileno() == -1
    assert kept == [True]
    assert not is_open(number)
    assert bell.wait(timeout), "a bell that is closed counts as rung"
    bell.close()
