"""After the end nothing is left, whatever was going on; the fixture looks for threads and descriptors."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelClosed, KernelError, UnknownName
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory, plan_of
from kernel.testing.leaks import Leaks
from kernel.topology.plan import EnginePlan, ThreadPlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.system.conftest import Transport, dialler, held_up, listener, route
from tests.system.stages import until


def test_what_is_queued_is_written_before_the_end(
    kernel_factory: KernelFactory, transport: Transport
) -> None:
    receiving = kernel_factory(transport.listener(), route("net", "app"))
    events = Events()
    sending = kernel_factory(transport.dialler(receiving), route("app", "net"), on_event=events)
    events.wait("connected")
    b = receiving.open("app")
    total = 3000
    sending.open("app").send_many([b"%d" % number + b"x" * 1000 for number in range(total)])
    sending.close(linger=3600)
    got: list[Any] = []
    while len(got) < total:
        got += b.receive_many(timeout=60)
    assert sending.join(60), "it lingers on though everything is written"
    assert [bytes(body[: len(b"%d" % at)]) for at, body in enumerate(got)] == [
        b"%d" % at for at in range(total)
    ]


class Passing:
    """Passes on what it takes, after ``work``; never has anything that it would call pending."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self._name, self._work = name, work
        self.taken: list[bytes] = []

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        self.host = host
        self._port = host.port(self._name, self)
        task_status.started(self._name)
        await trio.sleep_forever()

    def on_output(self) -> None:
        batches = self._port.take().batches
        self.taken += [bytes(body) for batch in batches for body in batch.bodies]
        self._work()
        self._port.send(batches)

    def on_writable(self) -> None: ...

    def on_confirmed(self, position: int) -> None: ...

    def statistics(self) -> dict[str, Any]:
        return {}


def test_what_an_engine_has_just_taken_is_passed_on_before_the_end(kernel_factory: KernelFactory) -> None:
    """It is neither in a pipe nor in what an engine says that it has: another thread must not stop yet."""
    has_taken, goes_on, looked = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        has_taken.set()
        assert goes_on.wait(60)

    first, last = Passing("first", work), Passing("last", lambda: None)
    threads = [ThreadPlan(name="one"), ThreadPlan(name="other")]
    kernel = kernel_factory(*threads, route("app", "first"), route("first", "last"))
    kernel.host("first", lambda _: first, thread="one")
    kernel.host("last", lambda _: last, thread="other")
    kernel.wait_running()
    kernel.open("app").send(b"in the hands of a call")
    assert has_taken.wait(60)
    kernel.close(linger=3600)
    # A thread looks at the end of a turn. When it does what is posted in the second, or is gone, it has looked.
    last.host.post(lambda: last.host.post(looked.set))
    until(lambda: looked.is_set() or not _lives("other"))
    goes_on.set()
    assert kernel.join(60)
    assert last.taken == [b"in the hands of a call"]


def _lives(name: str) -> bool:
    """Whether there is a poll thread of this name."""
    return any(thread.name == f"kernel {name}" for thread in threading.enumerate())


def test_an_idle_kernel_closes_at_once(kernel_factory: KernelFactory, transport: Transport) -> None:
    receiving = kernel_factory(transport.listener(), route("net", "app"))
    events = Events()
    sending = kernel_factory(transport.dialler(receiving), route("app", "net"), on_event=events)
    events.wait("connected")
    for kernel in (sending, receiving):
        kernel.close(linger=3600)
        assert kernel.join(60)


@pytest.mark.slow
def test_lingering_ends_at_its_deadline(kernel_factory: KernelFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        kernel = kernel_factory(
            dialler(f"backend+tcp://{host}:{port}", protocol={"format": "0.x"}, send_buffer=10_000),
            route("app", "net"),
        )
        kernel.open("app").send_many([b"x" * 100_000 for _ in range(100)])
        began = time.monotonic()
        with held_up(kernel):
            kernel.close(linger=0.3)  # which does not wait for the thread
        assert kernel.join(60)
        assert time.monotonic() - began > 0.2


def test_close_may_be_called_twice_and_from_any_thread(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener())
    threads = [threading.Thread(target=kernel.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kernel.join(60)
    kernel.close()
    assert kernel.join(0)


def test_a_closed_kernel_takes_no_more_orders(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener())
    kernel.close()
    kernel.join()
    with pytest.raises(KernelClosed):
        kernel.add_engine(listener("other"))
    with pytest.raises(KernelClosed):
        kernel.add_route(route("a", "b"))
    with pytest.raises(KernelError, match="started once"):
        kernel.start()


@pytest.mark.parametrize("reason", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_in_the_with_block_closes_without_lingering(
    reason: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.topology.system.LINGER", 3600)
    leaks = Leaks()
    with (  # noqa: PT012
        pytest.raises(reason),
        Kernel(plan_of(dialler("backend+tcp://127.0.0.1:1"), route("app", "net"))) as kernel,
    ):
        kernel.wait_running()
        kernel.open("app").send(b"never to be written")
        raise reason
    assert leaks.found() == []


def test_a_kernel_that_was_never_started_leaves_nothing() -> None:
    leaks = Leaks()
    kernel = Kernel(plan_of(listener()))
    kernel.close()
    assert kernel.join(60)
    assert leaks.found() == []


@pytest.mark.parametrize(
    "plan",
    [
        EnginePlan(name="x", kind="no such kind"),
        EnginePlan(name="x", kind="stream", options={"adress": "backend+tcp://127.0.0.1:0"}),
        EnginePlan(
            name="x", kind="stream", thread="no such thread", options={"address": "backend+tcp://127.0.0.1:0"}
        ),
        route("a", "b", router="no such router"),
        route("a", "b", router_options={"no": "such option"}),
    ],
    ids=["kind", "options", "thread", "router", "router options"],
)
def test_a_start_that_fails_leaves_nothing(plan: Any) -> None:
    leaks = Leaks()
    checked = msgspec.structs.replace(plan_of(listener("first"), plan), file="as if it had been checked")
    kernel = Kernel(checked)
    with pytest.raises((KernelError, ValueError, KeyError)):
        kernel.start()
    assert leaks.found() == []


def test_an_engine_that_is_dialling_is_stopped(kernel_factory: KernelFactory) -> None:
    """192.0.2.1 (RFC 5737) answers nobody: the attempt hangs, or fails, until the kernel is closed."""
    kernel = kernel_factory(dialler("backend+tcp://192.0.2.1:9", connect_timeout=3600), route("app", "net"))
    kernel.close(linger=0)
    assert kernel.join(60)


def test_an_engine_that_is_shaking_hands_is_stopped(kernel_factory: KernelFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        kernel = kernel_factory(
            dialler(f"backend+tls://{host}:{port}", tls={"verify": "none"}), route("app", "net")
        )
        silent.accept()[0].close()
        peer, _ = silent.accept()
        kernel.close(linger=0)
        assert kernel.join(60)
        peer.close()


def test_an_engine_that_waits_for_its_next_try_is_stopped(kernel_factory: KernelFactory) -> None:
    events = Events()
    plan = dialler("backend+tcp://127.0.0.1:1")
    plan.options["reconnect"] = {"first": 1000, "most": 1000}
    kernel = kernel_factory(plan, route("app", "net"), on_event=events)
    assert events.wait("retrying").next_try is not None
    kernel.close(linger=0)
    assert kernel.join(60)


def test_two_kernels_share_nothing(kernel_factory: KernelFactory) -> None:
    one = kernel_factory(listener("same"), route("same", "app"))
    other = kernel_factory(listener("same"), route("same", "app"))
    one.close()
    assert one.join(60)
    app = other.open("app")
    host, _, port = other.address_of("same").partition(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(b"\x05alive")
        assert app.receive(60) == b"alive"


def test_names_that_do_not_exist_are_named(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener(), registry=PluginRegistry.load())
    with pytest.raises(UnknownName, match="nett"):
        kernel.address_of("nett")
    with pytest.raises(UnknownName, match="nett"):
        kernel.remove_engine("nett")
    with pytest.raises(UnknownName, match="a -> b"):
        kernel.remove_route(route("a", "b"))
    with pytest.raises(UnknownName, match="applications can only open"):
        kernel.open("net")


def test_an_engine_for_a_thread_that_does_not_exist_is_not_in_the_plan(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    wanted = msgspec.structs.replace(listener(), thread="io")
    with pytest.raises(UnknownName, match="engine 'net': there is no thread 'io'; the threads are poll-1"):
        kernel.add_engine(wanted)
    assert kernel.plan.engines == ()
    kernel.add_engine(listener())
    kernel.wait_running()
