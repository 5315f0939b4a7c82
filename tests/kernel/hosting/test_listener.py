"""Listening sockets, above all when there are no descriptors left."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import parse_address
from kernel.hosting.listener import ACCEPTS_A_TURN, Listener, listen_on, why_unavailable
from kernel.testing.leaks import open_descriptors


class FakeHost:
    """Remembers what is watched."""

    def __init__(self) -> None:
        self.poller = self
        self.watched: dict[int, Any] = {}
        self.timers: dict[object, tuple[float, Any]] = {}
        self.events: list[Any] = []

    def watch(self, fd: int, *, readable: Any, writable: Any) -> None:
        self.watched[fd] = readable
        if readable is None:
            del self.watched[fd]

    def set_timer(self, when: float | None, callback: Any, key: object) -> None:
        self.timers.pop(key, None)
        if when is not None:
            self.timers[key] = (when, callback)

    def now(self) -> float:
        return 0.0

    def report(self, event: Any) -> None:
        self.events.append(event)


def listen(address: str, accepted: list[Any]) -> tuple[FakeHost, Listener]:
    host: Any = FakeHost()
    return host, Listener(host, "e", parse_address(address), lambda sock, peer: accepted.append((sock, peer)))


def accept_all(host: FakeHost) -> None:
    for readable in list(host.watched.values()):
        readable()


def test_the_chosen_port_is_told_and_connections_are_accepted() -> None:
    accepted: list[Any] = []
    host, listener = listen("backend+tcp://127.0.0.1:0", accepted)
    name, _, port = listener.address.partition(":")
    with socket.create_connection((name, int(port))) as client:
        accept_all(host)
        ((connection, peer),) = accepted
        assert peer == f"127.0.0.1:{client.getsockname()[1]}"
        connection.close()
    listener.close()
    assert not host.watched


def test_who_waits_is_accepted_in_a_few_turns() -> None:
    """As many at once as came the last time, and a limit: the others have their turns in between."""
    accepted: list[Any] = []
    host, listener = listen("backend+tcp://127.0.0.1:0", accepted)
    name, _, port = listener.address.partition(":")
    clients = [socket.create_connection((name, int(port))) for _ in range(100)]
    came = []
    while len(accepted) < len(clients):
        before = len(accepted)
        accept_all(host)
        came.append(len(accepted) - before)
    assert max(came) <= ACCEPTS_A_TURN
    assert len(came) < 10
    accept_all(host)  # nobody is there
    clients.append(socket.create_connection((name, int(port))))
    accept_all(host)
    assert len(accepted) == len(clients)
    for connection in (*clients, *(each for each, _ in accepted)):
        connection.close()
    listener.close()


@pytest.mark.parametrize("place", ["127.0.0.1", "[::1]"])
def test_what_is_accepted_does_not_block_and_has_the_options_of_all_connections(place: str) -> None:
    accepted: list[Any] = []
    host, listener = listen(f"backend+tcp://{place}:0", accepted)
    with socket.create_connection((place.strip("[]"), int(listener.address.rpartition(":")[2]))):
        accept_all(host)
        ((connection, _),) = accepted
        assert not connection.getblocking()
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        connection.close()
    listener.close()


def test_a_unix_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    accepted: list[Any] = []
    host, listener = listen(f"backend+unix://{path}", accepted)
    assert listener.address == str(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        accept_all(host)
        accepted[0][0].close()
    listener.close()
    assert not path.exists()


def test_a_unix_socket_that_has_taken_our_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    _, ours = listen(f"backend+unix://{path}", [])
    path.unlink()
    _, theirs = listen(f"backend+unix://{path}", [])
    ours.close()
    assert path.exists()
    theirs.close()
    assert not path.exists()


def test_a_unix_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    _, listener = listen(f"backend+unix://{path}", [])
    listener.close()


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_a_place_that_is_taken_is_refused_and_nothing_is_left_open(tmp_path: Path, transport: str) -> None:
    address = "backend+tcp://127.0.0.1:0" if transport == "tcp" else f"backend+unix://{tmp_path}/s"
    _, first = listen(address, [])
    before = open_descriptors()
    with pytest.raises(OSError, match="cannot listen on"):
        listen(f"backend+{transport}://{first.address}", [])
    assert open_descriptors().items() <= before.items()
    first.close()


def test_a_host_that_is_not_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    with pytest.raises(
        socket.gaierror, match=r"cannot listen on .*nowhere:5: Name or service not known"
    ) as raised:
        listen("backend+tcp://nowhere:5", [])
    assert raised.value.errno == socket.EAI_NONAME


NO_SUCH_FAMILY = 45
"""Neither Linux nor macOS has a protocol of this number."""
NO_SUCH_ADDRESS = ("192.0.2.1", 0)
"""RFC 5737: no system has it."""


def resolving(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, Any]) -> None:
    """Have every name mean these addresses."""
    rows = [(family, socket.SOCK_STREAM, 0, "", place) for family, place in found]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)


@pytest.mark.parametrize("missing", [(NO_SUCH_FAMILY, ("::", 0)), (socket.AF_INET, NO_SUCH_ADDRESS)])
@pytest.mark.parametrize("first", [True, False])
def test_an_address_that_the_system_does_not_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[int, Any], first: bool
) -> None:
    """``localhost`` in a container without IPv6, and every interface of a system that was started without it."""
    there = (socket.AF_INET, ("127.0.0.1", 0))
    resolving(monkeypatch, *((missing, there) if first else (there, missing)))
    assert why_unavailable(ListeningPlace("tcp", "localhost", 0)) == ""
    before = open_descriptors()
    bound = listen_on("backend+tcp://localhost:0")
    assert bound.address.startswith("127.0.0.1:")
    bound.close()
    assert open_descriptors().items() <= before.items()


def test_an_address_that_is_taken_is_refused_though_another_one_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else would get half of the connections."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = (socket.AF_INET, other.getsockname())
        resolving(monkeypatch, (socket.AF_INET, ("127.0.0.1", 0)), taken)
        with pytest.raises(OSError, match="in use"):
            listen_on("backend+tcp://localhost:0")


def test_where_none_of_the_addresses_is_there_the_first_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, (socket.AF_INET, NO_SUCH_ADDRESS), (NO_SUCH_FAMILY, ("::", 0)))
    why = os.strerror(errno.EADDRNOTAVAIL)
    assert why_unavailable(ListeningPlace("tcp", "elsewhere", 0)) == why
    with pytest.raises(OSError, match=f"cannot listen on backend.tcp://elsewhere:0: {why}"):
        listen_on("backend+tcp://elsewhere:0")


def test_a_path_that_is_too_long_is_named() -> None:
    with pytest.raises(OSError, match=r"^cannot listen on /tmp/x+: AF_UNIX path too long$"):
        listen(f"backend+unix:///tmp/{'x' * 120}", [])


def test_a_unix_socket_of_somebody_who_does_not_accept_is_taken_all_the_same(tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(path)
        busy.listen(0)
        for _ in range(2):  # the second finds no place
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(path)
        with pytest.raises(OSError, match="cannot listen on"):
            listen(f"backend+unix://{path}", [])
        assert Path(path).exists()


EXHAUSTION = """
import resource, socket, sys, threading
from kernel.testing.fixtures import plan_of
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel

refused, disconnected = threading.Event(), threading.Event()

def on_event(event):
    if event.what == "refused":
        refused.set()

kernel = Kernel(plan_of(
    EnginePlan(name="in", kind="stream", options={
        "address": "backend+tcp://127.0.0.1:0", "mode": "listen", "protocol": {"format": "0.x"}}),
    RoutePlan(source="in", targets=("app",)),
))
kernel.events.append(on_event)
with kernel:
    kernel.wait_running()
    app = kernel.open("app")
    host, _, port = kernel.address_of("in").partition(":")
    place = (host, int(port))
    peers = [socket.create_connection(place, 60)]
    peers[0].sendall(b"\\x05first")
    assert app.receive(60) == b"first"
    used = len(__import__("os").listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, 4096))
    try:
        while len(peers) < 100:
            peers.append(socket.create_connection(place, 60))
    except OSError:
        pass
    assert refused.wait(60), "the listener did not notice"
    peers[0].sendall(b"\\x05again")
    assert app.receive(60) == b"again", "who is connected is served"
    for peer in peers:
        peer.close()
    while True:  # the listener pauses, then accepts again
        try:
            with socket.create_connection(place, 60) as late:
                late.sendall(b"\\x04late")
                if app.receive(0.5) == b"late":
                    break
        except (OSError, __import__("kernel").TimedOut):
            pass
print("recovered")
"""


RESERVED = """
import os, resource, subprocess, sys, threading
from kernel import EnginePlan, Kernel, RoutePlan
from kernel.testing.fixtures import plan_of

CROWD = '''
import socket, sys
crowd = []
for _ in range(60):
    crowd.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60))
sys.stdin.read()
'''
refused = threading.Event()
kernel = Kernel(plan_of(
    EnginePlan(name="in", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}),
    RoutePlan(source="in", targets=("app",)),
))
kernel.events.append(lambda event: refused.set() if event.what == "refused" else None)
with kernel:
    kernel.wait_running()
    port = kernel.address_of("in").rpartition(":")[2]
    crowd = subprocess.Popen([sys.executable, "-c", CROWD, port], stdin=subprocess.PIPE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    assert refused.wait(60), "the listener took everybody"
    kept = [os.open("/proc/self/statm", os.O_RDONLY) for _ in range(16)]
    crowd.communicate()
print("kept")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_idle_connections_leave_descriptors_to_the_rest_of_the_process() -> None:
    done = _python(RESERVED)
    assert done.stdout == "kept\n", done.stderr


@pytest.mark.slow
def test_a_listener_that_ran_out_of_descriptors_recovers() -> None:
    done = _python(EXHAUSTION)
    assert done.stdout == "recovered\n", done.stderr


def _python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=250,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": "."},
        check=False,
    )
