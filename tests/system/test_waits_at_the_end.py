"""Calls of the application that wait for threads of the kernel, when another thread closes it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelClosed
from kernel.sockets import Context
from kernel.testing.fixtures import KernelFactory
from kernel.topology.system import Kernel

TIMEOUT = 30.0


class Never:
    """An engine that never comes up, or never answers."""

    def __init__(self, *, comes_up: bool) -> None:
        self._comes_up = comes_up
        self.asked = threading.Event()

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        if self._comes_up:
            task_status.started("here")
        await trio.sleep_forever()

    def operate(self, what: str, argument: Any) -> Iterator[Any]:
        yield lambda _: self.asked.set()

    def statistics(self) -> dict[str, Any]:
        return {}


class Call:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error

    def end(self) -> BaseException | None:
        """Return what it has raised."""
        self._thread.join(2 * TIMEOUT)
        assert not self._thread.is_alive()
        return self.error


def test_who_waits_for_an_engine_that_does_not_come_up(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    kernel.host("never", lambda _: Never(comes_up=False))
    call = Call(lambda: kernel.wait_running(TIMEOUT))
    while not any("told" in getattr(told, "__name__", "") for told in kernel.events):
        os.sched_yield()
    kernel.close(linger=0)
    error = call.end()
    assert isinstance(error, KernelClosed)
    assert "never is" in str(error)
    with pytest.raises(KernelClosed):
        kernel.wait_running(TIMEOUT)


def test_who_waits_for_an_operation(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    engine = Never(comes_up=True)
    kernel.host("never", lambda _: engine)
    kernel.wait_running(TIMEOUT)
    call = Call(lambda: kernel.operate("never", "this", timeout=TIMEOUT))
    assert engine.asked.wait(TIMEOUT)
    kernel.close(linger=0)
    assert isinstance(call.end(), KernelClosed)


def test_who_asks_for_an_operation_of_an_engine_that_was_stopped_with_the_kernel(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory()
    kernel.host("never", lambda _: Never(comes_up=True))
    kernel.wait_running(TIMEOUT)
    kernel.close(linger=0)
    assert kernel.join(TIMEOUT)
    with pytest.raises(KernelClosed, match="never"):
        kernel.operate("never", "this", timeout=TIMEOUT)


def test_who_opens_a_client_of_a_broker_that_does_not_run(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    call = Call(lambda: kernel.open("mine", "broker-client", broker="nobody", timeout=TIMEOUT))
    while not any("nobody" in key for key in list(kernel._dispatcher.rendezvous)):
        os.sched_yield()
    kernel.close(linger=0)
    assert isinstance(call.end(), KernelClosed)


def test_who_binds_a_socket() -> None:
    context = Context()
    socket = context.socket("PULL")
    kernel: Kernel = context.kernel
    gone, over = threading.Event(), threading.Event()

    def hold() -> None:
        gone.set()
        over.wait(TIMEOUT)

    # Its engine cannot come up before the kernel closes.
    thread = kernel._threads()[0]
    thread.mailbox.post(hold)
    assert gone.wait(TIMEOUT)
    call = Call(lambda: socket.bind("inproc://never"))
    while not kernel.events:
        os.sched_yield()
    closing = Call(lambda: context.close(0))
    while not context.closed or kernel._state == "running":
        os.sched_yield()
    over.set()
    assert isinstance(call.end(), KernelClosed)
    assert closing.end() is None
