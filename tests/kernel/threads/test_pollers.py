"""What a poller tells the callbacks that it calls."""

from __future__ import annotations

import socket
from functools import partial

import pytest

from kernel.threads.poller import Poller, SelectorPoller, new_poller


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
