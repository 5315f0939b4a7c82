"""Being told that something has come: by a real-time signal, and by a descriptor in asyncio's loop."""

from __future__ import annotations

import asyncio
import select
import signal
import threading
import time
from typing import Any

import pytest

from kernel.contracts.errors import WouldBlock
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from tests.system.conftest import listener, route
from tests.systems import linux_only

PARTS = (
    EnginePlan(name="a", kind="native"),
    EnginePlan(name="b", kind="native"),
    RoutePlan(source="a", targets=("b",)),
)


def _send_from_another_thread(kernel: Any, body: bytes) -> None:
    def send() -> None:
        with kernel.open("a") as channel:
            channel.send(body, timeout=60)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()


@linux_only
def test_a_real_time_signal_tells_of_an_arrival(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*PARTS)
    b = kernel.open("b")
    told = threading.Event()
    before = signal.signal(signal.SIGRTMIN, lambda number, frame: told.set())
    try:
        b.signal_on_arrival(signal.SIGRTMIN)
        for body in (b"one", b"two"):
            until = time.monotonic() + 60
            _send_from_another_thread(kernel, body)
            while not told.is_set() and time.monotonic() < until:
                time.sleep(0.001)
            assert told.is_set()
            assert b.receive(timeout=60) == body
            b.on_arrival(None)
            told.clear()
            b.signal_on_arrival(signal.SIGRTMIN)
    finally:
        b.on_arrival(None)
        signal.signal(signal.SIGRTMIN, before)


def test_the_descriptor_serves_asyncio(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*PARTS)
    b = kernel.open("b")

    async def wait() -> bytes:
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(b.fileno(), arrived.set)
        try:
            await asyncio.to_thread(_send_from_another_thread, kernel, b"hello")
            await asyncio.wait_for(arrived.wait(), 60)
        finally:
            loop.remove_reader(b.fileno())
        return bytes(b.receive_nowait())

    assert asyncio.run(wait()) == b"hello"


def test_a_callback_that_fails_is_no_concern_of_the_thread_that_brought_the_message(
    kernel_factory: KernelFactory, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = kernel_factory(listener(), EnginePlan(name="b", kind="native"), route("net", "b"))
    b = kernel.open("b")
    b.on_arrival(lambda: 1 / 0)  # as of a loop that is closed already
    with kernel.open("line", "direct", address=f"backend+tcp://{kernel.address_of('net')}") as line:
        for body in (b"one", b"two"):
            line.send(body)
            assert b.receive(timeout=60) == body
            b.fileno()
    assert "a callback on arrival failed" in caplog.text


def test_nobody_is_called_back_once_the_channel_is_closed(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*PARTS[:2], route("a", "b", confirm=True))
    calls: list[str] = []
    b = kernel.open("b")
    with kernel.open("a") as a:
        a.send(b"x", timeout=60)
        a.on_arrival(lambda: calls.append("late"))
        with pytest.raises(WouldBlock):
            a.receive_nowait()
    assert b.receive(timeout=60) == b"x"
    b.confirm()
    assert calls == []


@pytest.mark.parametrize("aside", ["no room at once", "no room for a while", "not confirmed", "confirmed"])
def test_waiting_for_something_else_hides_no_arrival(kernel_factory: KernelFactory, aside: str) -> None:
    kernel = kernel_factory(
        *(EnginePlan(name=name, kind="native") for name in "abc"),
        route("a", "b"),
        route("b", "c", confirm=True, marks={"high": 1}),
    )
    a, b, c = map(kernel.open, "abc")
    with pytest.raises(WouldBlock):
        b.receive_nowait()
    descriptor = b.fileno()
    for number in range(3):
        b.send(b"fills the pipe")
        a.send(b"%d" % number)
        if aside == "confirmed":
            c.receive()
            c.confirm()
            b.wait_confirmed(60)
        elif aside == "not confirmed":
            with pytest.raises(WouldBlock):
                b.wait_confirmed(0)
        else:
            with pytest.raises(WouldBlock):
                b.send(b"", timeout=0 if aside == "no room at once" else 0.01)
        assert select.select([descriptor], [], [], 60)[0], "something has come, and nobody says so"
        assert b.receive_nowait() == b"%d" % number
        if aside != "confirmed":
            c.receive_many(timeout=60)
        with pytest.raises(WouldBlock):
            b.receive_nowait()
        assert not select.select([descriptor], [], [], 0)[0], "nothing is there"
