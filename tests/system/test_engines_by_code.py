"""Engines that code makes, adds with sockets of its own, and lets go when they have written everything."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import KernelError, UnknownName
from kernel.contracts.kinds import BoundSockets, EngineSetup
from kernel.hosting.address import parse_address
from kernel.hosting.listener import Listener, listen_on
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from tests.system.conftest import route

TIMEOUT = 30.0


class Upper:
    """Answers in capitals; takes nothing while ``open`` is not set."""

    def __init__(self, setup: EngineSetup, taken: list[bytes], *, opened: bool = True) -> None:
        self.name = setup.name
        self.taken = taken
        self.opened = opened

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        self.host = host
        self.port: Port = host.port(self.name, self)
        task_status.started(self.name)
        await trio.sleep_forever()

    def open(self) -> None:
        self.opened = True
        self.on_output()

    def on_output(self) -> None:
        if self.opened:
            for batch in self.port.take().batches:
                self.taken += [bytes(body) for body in batch.bodies]
                self.port.send([type(batch)([bytes(body).upper() for body in batch.bodies], batch.size)])

    def on_writable(self) -> None: ...

    def on_confirmed(self, position: int) -> None: ...

    def statistics(self) -> dict[str, Any]:
        return {}


def test_an_engine_made_by_code_is_hosted_as_others_are(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("app", "upper"), route("upper", "app"))
    kernel.host("upper", lambda setup: Upper(setup, []))
    kernel.wait_running()
    app = kernel.open("app")
    app.send(b"loud")
    assert app.receive(timeout=TIMEOUT) == b"LOUD"
    assert [state.name for state in kernel.engine_states()] == ["upper"]
    with pytest.raises(KernelError, match="already"):
        kernel.host("upper", lambda setup: Upper(setup, []))
    with pytest.raises(KernelError, match="already"):
        kernel.add_engine(EnginePlan(name="upper", kind="native"))
    with pytest.raises(UnknownName, match="applications can only open APIs"):
        kernel.open("upper")
    with pytest.raises(UnknownName, match="thread"):
        kernel.host("other", lambda setup: Upper(setup, []), thread="nowhere")


def test_applying_a_plan_leaves_engines_made_by_code_alone(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("app", "upper"), route("upper", "app"))
    kernel.host("upper", lambda setup: Upper(setup, []))
    assert kernel.apply(Plan(routes=(route("app", "upper"), route("upper", "app")))) == []
    app = kernel.open("app")
    app.send(b"still here")
    assert app.receive(timeout=TIMEOUT) == b"STILL HERE"


def _hosted(kernel: Kernel, taken: list[bytes], *, opened: bool) -> Upper:
    made: list[Upper] = []

    def make(setup: EngineSetup) -> Upper:
        made.append(Upper(setup, taken, opened=opened))
        return made[-1]

    kernel.host("sink", make)
    kernel.wait_running()
    return made[0]


def test_an_engine_that_lingers_takes_what_waits_for_it_before_it_goes(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("app", "sink"))
    taken: list[bytes] = []
    sink = _hosted(kernel, taken, opened=False)
    kernel.open("app").send_many([b"1", b"2", b"3"])
    gone = threading.Event()
    kernel.remove_engine("sink", linger=TIMEOUT, on_gone=gone.set)
    looked = threading.Event()  # three turns of its thread: an engine that does not linger is gone by then
    sink.host.post(lambda: sink.host.post(lambda: sink.host.post(looked.set)))
    assert looked.wait(TIMEOUT)
    assert not gone.is_set()
    sink.host.post(sink.open)
    assert gone.wait(TIMEOUT)
    assert taken == [b"1", b"2", b"3"]


def test_an_engine_lingers_no_longer_than_it_may(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("app", "sink"))
    taken: list[bytes] = []
    _hosted(kernel, taken, opened=False)
    kernel.open("app").send(b"never taken")
    gone = threading.Event()
    kernel.remove_engine("sink", linger=0.05, on_gone=gone.set)
    assert gone.wait(TIMEOUT)
    assert taken == []


def test_a_name_can_be_used_again_while_its_last_engine_lingers(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("app", "sink"))
    sink = _hosted(kernel, [], opened=False)
    kernel.open("app").send(b"for the first")
    kernel.remove_engine("sink", linger=TIMEOUT)
    again: list[bytes] = []
    kernel.host("sink", lambda setup: Upper(setup, again))
    sink.host.post(sink.open)
    kernel.wait_running()
    assert sink.taken == [b"for the first"]


def test_a_kernel_that_closes_does_not_wait_for_one_that_lingers_for_ever(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("app", "sink"))
    _hosted(kernel, [], opened=False)
    kernel.open("app").send(b"never taken")
    gone = threading.Event()
    kernel.remove_engine("sink", linger=3600, on_gone=gone.set)
    kernel.close(linger=0)
    assert kernel.join(TIMEOUT)
    assert gone.is_set()


# ---------------------------------------------------------------------- sockets that are bound already


def _knock(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def test_a_taken_address_is_the_error_of_the_caller() -> None:
    bound = listen_on("backend+tcp://127.0.0.1:0")
    try:
        with pytest.raises(OSError, match="cannot listen on"):
            listen_on(f"backend+tcp://{bound.address}")
    finally:
        bound.close()


def test_a_listener_accepts_on_sockets_that_were_bound_for_it(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("net", "app"))
    bound = listen_on("backend+tcp://127.0.0.1:0")
    address = bound.address
    options = {"mode": "listen", "address": f"backend+tcp://{address}", "protocol": {"format": "0.x"}}
    with _knock(address) as early:  # it waits in the backlog
        early.sendall(b"\x05early")
        kernel.add_engine(EnginePlan(name="net", kind="stream", options=options), bound=bound)
        assert kernel.open("app").receive(timeout=TIMEOUT) == b"early"
    gone = threading.Event()
    kernel.remove_engine("net", on_gone=gone.set)
    assert gone.wait(TIMEOUT)
    with pytest.raises(ConnectionRefusedError):
        _knock(address)


class Fragile:
    """Accepts, and fails at the first connection of its first life."""

    def __init__(self, bound: BoundSockets | None, accepted: list[str]) -> None:
        self.bound = bound
        self.accepted = accepted

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        listener = Listener(host, "fragile", ADDRESS, self.on_accept, bound=self.bound)
        try:
            task_status.started(listener.address)
            await trio.sleep_forever()
        finally:
            listener.close()

    def on_accept(self, connected: socket.socket, peer: str) -> None:
        self.accepted.append(peer)
        connected.close()
        if len(self.accepted) == 1:
            raise RuntimeError("the first life ends")

    def statistics(self) -> dict[str, Any]:
        return {}


ADDRESS = parse_address("backend+tcp://127.0.0.1:0")


def test_the_next_life_of_an_engine_accepts_on_the_same_port(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    bound = listen_on(ADDRESS)
    accepted: list[str] = []
    kernel.host("fragile", lambda setup: Fragile(setup.bound, accepted), bound=bound)
    for _ in range(2):
        with _knock(bound.address) as knocking:
            assert knocking.recv(1) == b""
    assert len(accepted) == 2


def test_the_file_of_a_unix_socket_goes_with_the_bound_socket(tmp_path: Path) -> None:
    path = tmp_path / "feed.sock"
    bound = listen_on(f"backend+unix://{path}")
    assert path.exists()
    bound.close()
    bound.close()
    assert not path.exists()
