"""A channel in the wrong thread, also on the short cut that ``send`` takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: channel.confirm(),
        lambda channel: channel.receive_many(1),
        lambda channel: next(iter(channel)),
        lambda channel: channel.fileno(),
        lambda channel: channel.on_arrival(None),
        lambda channel: channel.has_something(),
        lambda channel: channel.all_confirmed(),
        lambda channel: channel.close(),
    ],
    ids=["confirm", "many", "for", "fileno", "arrival", "something", "confirmed", "close"],
)
def test_no_other_call_changes_or_reads_a_channel_of_another_thread(
    kernel_factory: KernelFactory, call: Callable[[Channel], Any]
) -> None:
    a, b = pair(kernel_factory)
    a.send_many([b"1", b"2", b"3"])
    assert b.receive(timeout=5) == b"1"  # the others are in the batch that it has taken
    with ThreadPoolExecutor(1) as other:
        error = other.submit(call, b).exception()
    assert isinstance(error, WrongThread)
    assert b.receive_many() == [b"2", b"3"]


def test_a_closed_channel_may_be_closed_in_any_thread(kernel_factory: KernelFactory) -> None:
    a, _ = pair(kernel_factory)
    a.close()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(a.close).exception() is None


def test_a_kernel_may_end_in_another_thread_than_its_channels(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(EnginePlan(name="a", kind="native"))
    a = kernel.open("a")
    kernel.close(linger=0)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(kernel.join, 60).result()
    assert a.closed
