"""What a poller tells the callbacks that it calls."""

from __future__ import annotations

import ctypes
import select
import socket
import threading
from functools import partial

import pytest

from kernel.pipes.doorbell import Doorbell
from kernel.threads import poller as poller_module
from kernel.threads.poller import EpollPoller, Poller, SelectorPoller, new_poller

SECONDS = 20.0


@pytest.mark.parametrize("make", [new_poller, SelectorPoller])
def test_a_callback_can_ask_which_descriptor_comes_next(make: type[Poller]) -> None:
    poller = make()
    pairs = [socket.socketpair() for _ in range(3)]
    told: list[tuple[int, int]] = []
    errors: list[Exception] = []

    def called(fd: int) -> None:
        told.append((fd, poller.following))

    for ours, theirs in pairs:
        poller.watch(ours.fileno(), partial(called, ours.fileno()), None, errors.append)
        theirs.send(b"x")
    # All of them are ready: the bytes of a socket pair are there when they were sent.
    assert poller.poll(0) == 3
    called_in_order = [fd for fd, _ in told]
    assert [following for _, following in told] == [*called_in_order[1:], -1]
    assert not errors
    poller.close()
    for pair in pairs:
        for each in pair:
            each.close()


@pytest.mark.parametrize("make", [new_poller, SelectorPoller])
def test_a_descriptor_that_is_closed_already_can_be_forgotten(make: type[Poller]) -> None:
    poller = make()
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    poller.watch(number, print, None, pytest.fail)
    ours.close()
    theirs.close()
    poller.watch(number, None, None, pytest.fail)
    poller.watch(ours.fileno(), None, None, pytest.fail)  # -1
    assert poller.poll(0) == 0
    poller.close()


class Turn:
    """A lock that says when somebody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.release = self._lock.release
        self.locked = self._lock.locked
        self.waited_for = threading.Event()

    def acquire(self, timeout: float = -1) -> bool:
        self.waited_for.set()
        return self._lock.acquire(timeout=timeout)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="only epoll's poller lends its turn")
def test_who_keeps_the_interpreters_lock_for_long_does_not_end_the_turn_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has the turn gives it up when it can run again.  By then the one that waits has waited too long."""
    monkeypatch.setattr(poller_module, "TURN_TIMEOUT", 0.2)
    poller, turn = EpollPoller(), Turn()
    poller.turn = turn  # type: ignore[assignment]
    taken, goes_on = threading.Event(), threading.Event()

    def use_the_turn() -> None:
        turn._lock.acquire()
        taken.set()
        goes_on.wait(SECONDS)
        turn.release()

    def keep_the_interpreters_lock() -> None:
        # A library that is loaded in this way is called with the lock held.
        usleep = ctypes.PyDLL(None).usleep
        turn.waited_for.wait(SECONDS)
        goes_on.set()
        usleep(500_000)

    threads = [threading.Thread(target=call) for call in (use_the_turn, keep_the_interpreters_lock)]
    for thread in threads:
        thread.start()
    # The poller gives the turn up, and is woken when the other thread has it.
    poller.watch_bell(bell := Doorbell())

    def ring() -> None:
        taken.wait(SECONDS)
        bell.ring()

    threads.append(threading.Thread(target=ring))
    threads[-1].start()
    poller.poll(SECONDS)
    for thread in threads:
        thread.join()
    assert poller.turn is turn  # type: ignore[comparison-overlap]
    assert turn.locked()
    poller.close()
    bell.close()
