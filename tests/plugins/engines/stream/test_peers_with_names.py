"""Peers that say who they are, and that are let in by an engine that decides."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import trio

from kernel import hookimpl
from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup, ProtocolKind
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel.contracts.protocol import Login
from kernel.plugins import Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.line_protocol import LineProtocol

__all__ = ["kernel_factory"]
TIMEOUT = 30.0

pytestmark = pytest.mark.usefixtures("short_login_delay")


class Hello(LineProtocol):
    """Lines; the first is ``name password`` and has to be accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.peer_name = ""
        self.peer_options: Mapping[str, Any] = {}
        self._login: Login | None = None
        self._open = False

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        lines = self.lines(data)
        if lines and not self.peer_name:
            name, secret = lines.pop(0).split(b" ")
            self.peer_name = name.decode()
            self.peer_options = {"subscriptions": [f"{self.peer_name}.#"]}
            self._login = Login(mechanism="PLAIN", user=self.peer_name, secret=secret)
        return [batch_of(lines)] if lines else []

    def login(self) -> Login | None:
        login, self._login = self._login, None
        return login

    def decide(self, reason: str | None, now: float) -> None:
        self._out.append(b"welcome\n" if reason is None else b"sorry: " + reason.encode() + b"\n")
        self._open, self._closed = reason is None, reason is not None

    def ready_to_send(self) -> bool:
        return self._open and not self._closed


class Plugin:
    @hookimpl
    def register_protocols(self) -> Iterable[ProtocolKind]:
        yield ProtocolKind(name="hello", summary="for tests", create=lambda options, side: Hello())


class Doorkeeper:
    """Lets in who has the right password."""

    def __init__(self, asked: list[Mapping[str, Any]]) -> None:
        self.asked = asked

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("here")
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        return {}

    def operate(self, what: str, argument: Any) -> Any:
        assert what == "authenticate"
        self.asked.append(argument)
        if argument["secret"] != b"right":
            raise KernelError("wrong password")


def _make(
    kernel_factory: KernelFactory, authenticator: str, on_event: Callable[..., Any] | None = None
) -> Kernel:
    registry = PluginRegistry.load()
    registry.add(Plugin(), Origin("hello", "test", "1.0"))
    options = {"mode": "listen", "address": "hello+tcp://127.0.0.1:0", "authenticator": authenticator}
    return kernel_factory(
        EnginePlan(name="net", kind="stream", options=options),
        RoutePlan(source="net", targets=("app",)),
        RoutePlan(source="app", targets=("net",), router="by-key"),
        registry=registry,
        on_event=on_event,
    )


@pytest.fixture
def asked() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def kernel(kernel_factory: KernelFactory, asked: list[Mapping[str, Any]], events: Events) -> Kernel:
    kernel = _make(kernel_factory, "door", events)

    def make(setup: EngineSetup) -> Doorkeeper:
        return Doorkeeper(asked)

    kernel.host("door", make)
    kernel.wait_running()
    return kernel


def _knock(kernel: Kernel, first: bytes) -> socket.socket:
    host, _, port = kernel.address_of("net").rpartition(":")
    knocking = socket.create_connection((host, int(port)), timeout=TIMEOUT)
    knocking.sendall(first)
    return knocking


def _read_line(knocking: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        more = knocking.recv(1)
        if not more:
            break
        line += more
    return line


def test_a_peer_that_is_let_in_has_a_port_of_its_name_and_options(
    kernel: Kernel, asked: list[Mapping[str, Any]]
) -> None:
    app = kernel.open("app")
    with _knock(kernel, b"anna right\nhello\n") as anna:
        assert _read_line(anna) == b"welcome\n"
        message = app.receive_message(timeout=TIMEOUT)
        assert message.body == b"hello"
        assert "app > net/anna" in [pipe.name for pipe in kernel.statistics().pipes]
        app.send(b"for anna", key="anna.x", timeout=TIMEOUT)  # by what her options subscribe to
        assert _read_line(anna) == b"for anna\n"
        (login,) = asked
        assert (login["user"], login["secret"], login["mechanism"]) == ("anna", b"right", "PLAIN")
        assert login["peer"] == "{}:{}".format(*anna.getsockname())


def test_a_peer_that_is_refused_is_told_and_nothing_of_it_is_passed_on(
    kernel: Kernel, events: Events
) -> None:
    app = kernel.open("app")
    with _knock(kernel, b"eve wrong\nsecretly\n") as eve:
        assert _read_line(eve) == b"sorry: login refused\n"
        assert _read_line(eve) == b""
    assert "wrong password" in events.wait("refused").detail
    (net,) = (each for each in kernel.statistics().engines if each.name == "net")
    assert net.counters["refused"] == 1
    with _knock(kernel, b"anna right\nhello\n"):
        assert app.receive(timeout=TIMEOUT) == b"hello"


def test_a_peer_that_leaves_before_the_decision_leaves_nothing_behind(kernel: Kernel, events: Events) -> None:
    _knock(kernel, b"anna right\n").close()
    events.wait("disconnected")
    assert not [port for port in kernel.statistics().ports if port.name == "net" and port.ports]


def test_without_somebody_who_decides_nobody_is_let_in(kernel_factory: KernelFactory) -> None:
    kernel = _make(kernel_factory, "")
    with _knock(kernel, b"anna right\n") as anna:
        assert _read_line(anna) == b"sorry: this engine has no authentication\n"


def test_an_authenticator_that_is_not_there_lets_nobody_in(kernel_factory: KernelFactory) -> None:
    kernel = _make(kernel_factory, "nobody")
    with _knock(kernel, b"anna right\n") as anna:
        assert _read_line(anna) == b"sorry: login refused\n"
