"""Connections that fail, and the options of others: nothing is paced between two programs of one machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from kernel.contracts.errors import ConnectionLost
from kernel.hosting import connecting
from kernel.hosting.address import parse_address
from kernel.hosting.connecting import connect, forgo_pacing, is_paced, prepare
from kernel.hosting.listener import Listener
from tests.kernel.hosting.test_listener import FakeHost, accept_all


class Recorded:
    """A connection over tcp with this congestion control; remembers which one it was given."""

    family = socket.AF_INET

    def __init__(self, control: bytes, own: str = "192.0.2.1", peer: str = "192.0.2.1") -> None:
        # Linux fills the name up with zeros.
        self._control = control.ljust(16, b"\0")
        self._own, self._peer = own, peer
        self.given: list[bytes] = []

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self._control[:size]

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        self.given.append(value)

    def getsockname(self) -> tuple[str, int]:
        return self._own, 1

    def getpeername(self) -> tuple[str, int]:
        if not self._peer:
            raise OSError("not connected")
        return self._peer, 2


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have no such option, and nothing of this is called there."""
    monkeypatch.setattr(connecting, "_CONGESTION", 13)


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize(
    "control, paced", [(b"bbr", True), (b"bbr2", True), (b"cubic", False), (b"reno", False), (b"", False)]
)
def test_bbr_paces(control: bytes, paced: bool) -> None:
    sock: Any = Recorded(control)
    assert is_paced(sock) is paced


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize(
    "own, peer, given",
    [
        ("127.0.0.1", "127.0.0.1", [b"reno"]),
        # To its own address the system takes the short way as well.
        ("192.0.2.1", "192.0.2.1", [b"reno"]),
        ("::1", "::1", [b"reno"]),
        ("192.0.2.1", "192.0.2.2", []),
        # Reset before it was looked at.
        ("192.0.2.1", "", []),
    ],
)
def test_only_a_peer_on_this_machine_is_not_paced(own: str, peer: str, given: list[bytes]) -> None:
    recorded = Recorded(b"bbr", own, peer)
    sock: Any = recorded
    forgo_pacing(sock)
    assert recorded.given == given


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            yield client, accepted


def _control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


linux_only = pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="an option of Linux")


@linux_only
def test_a_connection_that_was_made_is_not_paced(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever this machine uses counts as one that paces: not every machine has BBR."""
    client, other = connected
    before = _control(other)
    monkeypatch.setattr(connecting, "_PACES", (before,))
    prepare(client)
    assert _control(client) == b"reno"
    assert _control(other) == before


@linux_only
def test_a_connection_that_was_accepted_is_not_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as usual:
        monkeypatch.setattr(connecting, "_PACES", (_control(usual),))
    accepted: list[socket.socket] = []
    host: Any = FakeHost()
    listener = Listener(
        host, "e", parse_address("backend+tcp://127.0.0.1:0"), lambda s, _: accepted.append(s)
    )
    name, _, port = listener.address.partition(":")
    with socket.create_connection((name, int(port))):
        accept_all(host)
        with accepted[0]:
            assert _control(accepted[0]) == b"reno"
    listener.close()


@linux_only
def test_what_does_not_pace_is_left_as_it_is(
    connected: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = connected
    before = _control(client)
    monkeypatch.setattr(connecting, "_PACES", (b"another",))
    prepare(client)
    assert _control(client) == before


@pytest.mark.parametrize("host, named", [("127.0.0.1", ""), ("localhost", r" \((127\.0\.0\.1|::1)\)")])
def test_an_address_that_cannot_be_connected_to_is_said_once(host: str, named: str) -> None:
    with socket.socket() as nobody:
        # Bound and not listened at: nobody else gets the port.
        nobody.bind(("127.0.0.1", 0))
        address = parse_address(f"mqtt+tcp://{host}:{nobody.getsockname()[1]}")
        with pytest.raises(ConnectionLost) as failed:
            trio.run(connect, address, 60)
    assert re.fullmatch(
        rf"cannot connect to {re.escape(str(address))}{named}: Connection refused", str(failed.value)
    )


def test_a_unix_socket_has_no_congestion_control() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not is_paced(one)
        prepare(one)
