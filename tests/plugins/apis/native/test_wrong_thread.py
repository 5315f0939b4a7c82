"""A channel in the wrong thread, also on the short cut that ``send`` takes."""

from __future__ import annotations

import threading

import pytest

from kernel import EnginePlan, RoutePlan
from kernel.contracts.errors import WrongThread
from kernel.testing.fixtures import KernelFactory
from plugins.apis.native.channel import Channel


def pair(make: KernelFactory) -> tuple[Channel, Channel]:
    """Two channels, the one connected to the other."""
    kernel = make(
        EnginePlan(name="a", kind="native"),
        EnginePlan(name="b", kind="native"),
        RoutePlan(source="a", targets=("b",)),
    )
    return kernel.open("a"), kernel.open("b")


def told(channel: Channel, times: int) -> list[int]:
    """Send in another thread; the numbers of the calls that were refused."""
    refused: list[int] = []

    def misuse() -> None:
        for number in range(times):
            try:
                channel.send(b"from another thread")
            except WrongThread:
                refused.append(number)

    thread = threading.Thread(target=misuse)
    thread.start()
    thread.join()
    return refused


def test_the_first_send_of_another_thread_is_refused_on_the_short_cut(kernel_factory: KernelFactory) -> None:
    a, b = pair(kernel_factory)
    a.send(b"mine")
    assert b.receive(timeout=5) == b"mine"  # the short cut leads there, and the reader has seen it all
    assert told(a, 100) == list(range(100))
    a.send(b"mine again")
    assert b.receive(timeout=5) == b"mine again"


def test_into_a_backlog_another_thread_gets_as_far_as_the_grant(kernel_factory: KernelFactory) -> None:
    a, b = pair(kernel_factory)
    a.send(b"mine")
    refused = told(a, 1100)
    assert refused[-1] == 1099
    assert 0 < refused[0] < 1024
    assert len(b.receive_many(timeout=5)) == 1 + refused[0]


@pytest.mark.parametrize("times", [1, 5000])
def test_its_own_thread_is_never_refused(kernel_factory: KernelFactory, times: int) -> None:
    a, b = pair(kernel_factory)
    for _ in range(3):
        for _ in range(times):
            a.send(b"mine")
        got = 0
        while got < times:
            got += len(b.receive_many(timeout=5))
