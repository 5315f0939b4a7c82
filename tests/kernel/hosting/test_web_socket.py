"""WebSocket as a transport, with the package ``websockets`` at the other end."""

from __future__ import annotations

import base64
import random
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request

from kernel.contracts.errors import ConnectionLost
from kernel.contracts.loan import lend
from kernel.contracts.message import Buffer
from kernel.hosting.address import parse_address
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions
from kernel.hosting.web_socket import FRAME_BYTES, WebSocketWire
from kernel.hosting.wire import PlainWire
from kernel.testing.fixtures import KernelFactory
from tests.events import Events
from tests.seeds import many
from tests.system.conftest import dialler, listener, route

HELLO = b"\x05hello"
"""A message as the backend protocol has it, from a peer that does not greet."""
GREETING = bytes.fromhex("ff8100000000000001") + b"\x80"


class Server:
    """A kernel that listens for WebSockets, and the application behind it."""

    def __init__(self, kernel_factory: KernelFactory, **options: Any) -> None:
        self.events = Events()
        options = {"address": "backend+ws://127.0.0.1:0/feed", "connect_timeout": 0.5, **options}
        self.kernel = kernel_factory(
            listener(**options), route("net", "app"), route("app", "net"), on_event=self.events
        )
        self.place = self.kernel.address_of("net")
        self.url = f"ws://{self.place}/feed"
        self.app = self.kernel.open("app")

    def raw(self) -> socket.socket:
        host, _, port = self.place.partition(":")
        return socket.create_connection((host, int(port)), 60)


@pytest.fixture
def client() -> Iterator[Callable[..., ClientConnection]]:
    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(connect(url, proxy=None, open_timeout=60, **options))


Connect = Callable[..., ClientConnection]


def read_to_the_end(peer: ClientConnection) -> None:
    try:
        while True:
            peer.recv(60)
    except ConnectionClosed:
        pass


def test_messages_come_however_they_are_cut_into_frames(
    kernel_factory: KernelFactory, client: Connect
) -> None:
    server = Server(kernel_factory)
    peer = client(server.url)
    peer.send(HELLO * 3)
    peer.send(b"\x05he")
    peer.send(b"llo")
    peer.send([b"\x05", b"hel", b"lo"])
    peer.send(HELLO.decode())  # as text, which is UTF-8
    got: list[bytes] = []
    while len(got) < 6:
        got += map(bytes, server.app.receive_many(60))
    assert got == [b"hello"] * 6


def test_messages_go_out(kernel_factory: KernelFactory, client: Connect) -> None:
    server = Server(kernel_factory)
    peer = client(server.url)
    peer.send(HELLO)
    assert bytes(server.app.receive(60)) == b"hello"
    server.app.send(b"x" * 1_000_000)
    data = b""
    while len(data) < 1_000_009:
        data += peer.recv(60)  # type: ignore[operator]  # all of it is binary
    assert data.endswith(b"x" * 1_000_000)


def test_pings_are_answered_and_a_close_is_answered_with_a_close(
    kernel_factory: KernelFactory, client: Connect
) -> None:
    server = Server(kernel_factory)
    peer = client(server.url)
    assert peer.ping().wait(60)
    peer.send(HELLO)
    peer.close()
    assert peer.close_code == 1000
    assert bytes(server.app.receive(60)) == b"hello"
    server.events.wait("disconnected")


def test_a_kernel_that_stops_says_so(kernel_factory: KernelFactory, client: Connect) -> None:
    server = Server(kernel_factory)
    peer = client(server.url)
    peer.send(HELLO)
    server.app.receive(60)
    server.kernel.close()
    read_to_the_end(peer)
    assert peer.close_code == 1000


def test_the_first_subprotocol_that_both_know_is_chosen(
    kernel_factory: KernelFactory, client: Connect
) -> None:
    server = Server(kernel_factory, web={"subprotocols": ["new", "old"]})
    assert client(server.url, subprotocols=["old", "new"]).subprotocol == "new"
    with pytest.raises(InvalidStatus, match="400"):
        client(server.url, subprotocols=["other"])
    assert "it speaks none of new, old" in server.events.wait("refused").detail


class Hosted:
    """A listener whose protocol has a name of its own."""

    def __init__(self, **options: Any) -> None:
        self.handshakes = Handshakes(
            parse_address("x+ws://127.0.0.1:0/"),
            server_side=True,
            tls=TlsOptions(),
            seconds=60.0,
            web=WebOptions(**options),
            subprotocols=("new", "old"),
        )

    def answer(self, *offered: str) -> str | None:
        """Return the name that is chosen for a client."""
        ours, theirs = socket.socketpair()
        client = WSConnection(ConnectionType.CLIENT)
        with ours, theirs:
            theirs.sendall(client.send(Request(host="h", target="/", subprotocols=list(offered))))
            ours.setblocking(False)
            trio.run(self.handshakes.shake, ours)
            client.receive_data(theirs.recv(10_000))
        (accepted,) = client.events()
        assert isinstance(accepted, AcceptConnection)
        return accepted.subprotocol


def test_a_protocol_s_own_name_is_chosen_and_not_required() -> None:
    hosted = Hosted()
    assert hosted.answer("old", "new") == "new"
    assert hosted.answer() is None
    with pytest.raises(ConnectionLost, match="it speaks none of new, old"):
        hosted.answer("other")


def test_a_name_of_the_options_replaces_the_protocol_s_and_is_required() -> None:
    hosted = Hosted(subprotocols=("mine",))
    assert hosted.answer("new", "mine") == "mine"
    for offered in ([], ["new"]):
        with pytest.raises(ConnectionLost, match="it speaks none of mine"):
            hosted.answer(*offered)


def test_another_path_and_another_page_are_refused(kernel_factory: KernelFactory, client: Connect) -> None:
    server = Server(kernel_factory, web={"origins": ["https://example.org"]})
    with pytest.raises(InvalidStatus, match="404"):
        client(server.url + "/other")
    with pytest.raises(InvalidStatus, match="403"):
        client(server.url, origin="https://evil.example")
    client(server.url, origin="https://example.org")
    client(server.url)


def test_a_message_that_is_too_large_ends_the_connection(
    kernel_factory: KernelFactory, client: Connect
) -> None:
    server = Server(kernel_factory, web={"max_message": 1000})
    peer = client(server.url)
    peer.send(HELLO * 166)
    peer.send(HELLO * 167)
    read_to_the_end(peer)
    assert peer.close_code == 1009
    assert "web.max_message" in server.events.wait("disconnected").detail


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x00" * 100,
        b"GET /feed HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.0\r\n\r\n",
        b"GET /feed HTTP/1.1\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
        pytest.param(b"", marks=pytest.mark.slow),
    ],
    ids=["zeros", "no upgrade", "old", "large header", "silence"],
)
def test_who_asks_for_no_web_socket_is_refused_and_others_are_not(
    kernel_factory: KernelFactory, client: Connect, rubbish: bytes
) -> None:
    server = Server(kernel_factory)
    with server.raw() as peer:
        try:
            peer.sendall(rubbish)
            while peer.recv(10_000):
                pass
        except ConnectionError:
            pass
    assert "WebSocket handshake" in server.events.wait("refused").detail
    client(server.url).send(HELLO)
    assert bytes(server.app.receive(60)) == b"hello"


@pytest.mark.parametrize("seed", many(0, 20))
def test_rubbish_in_place_of_frames_ends_its_connection_only(
    kernel_factory: KernelFactory, client: Connect, seed: int
) -> None:
    server = Server(kernel_factory)
    chance = random.Random(seed)
    key = base64.b64encode(chance.randbytes(16))
    with server.raw() as peer:
        peer.sendall(
            b"GET /feed HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        assert peer.recv(10_000).startswith(b"HTTP/1.1 101")
        try:
            peer.sendall(b"\xf0" + chance.randbytes(500))  # reserved bits, at the least
            while peer.recv(10_000):
                pass
        except ConnectionError:
            pass
    client(server.url).send(HELLO)
    assert bytes(server.app.receive(60)) == b"hello"
    assert not server.events.count("failed")


class Far:
    """A server of theirs, that a kernel of ours dials."""

    def __init__(self, handler: Callable[[ServerConnection], None], **options: Any) -> None:
        self._server = serve(handler, "127.0.0.1", 0, **options)
        self.port = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(60)


@pytest.fixture
def far() -> Iterator[Callable[..., Far]]:
    made: list[Far] = []

    def make(*arguments: Any, **options: Any) -> Far:
        made.append(Far(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_we_dial_and_what_comes_with_the_handshake_is_read(
    kernel_factory: KernelFactory, far: Callable[..., Far]
) -> None:
    heard: list[bytes] = []
    done = threading.Event()

    def handler(peer: ServerConnection) -> None:
        peer.send(GREETING + HELLO)
        try:
            for data in peer:
                heard.append(data)  # type: ignore[arg-type]  # all of it is binary
                if b"from here" in b"".join(heard):
                    done.set()
        except ConnectionClosed:
            pass

    theirs = far(handler, subprotocols=["kernel"])
    kernel = kernel_factory(
        dialler(f"backend+ws://127.0.0.1:{theirs.port}/any/path", web={"subprotocols": ["kernel"]}),
        route("net", "app"),
        route("app", "net"),
    )
    app = kernel.open("app")
    assert bytes(app.receive(60)) == b"hello"
    app.send(b"from here")
    assert done.wait(60)
    kernel.close()
    kernel.join(60)


@pytest.mark.parametrize(
    "options, why",
    [
        ({"subprotocols": ["other"]}, "speaks none of kernel"),
        ({"process_request": lambda peer, request: peer.respond(403, "no")}, "status 403"),
    ],
)
def test_a_server_that_refuses_is_tried_again_later(
    kernel_factory: KernelFactory, far: Callable[..., Far], options: dict[str, Any], why: str
) -> None:
    theirs = far(lambda peer: None, select_subprotocol=lambda peer, offered: None, **options)
    events = Events()
    kernel_factory(
        dialler(f"backend+ws://127.0.0.1:{theirs.port}", web={"subprotocols": ["kernel"]}),
        route("net", "app"),
        on_event=events,
    )
    assert why in events.wait("retrying").detail


def test_without_the_extra_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kernel.hosting.web_socket", raising=False)
    monkeypatch.setitem(sys.modules, "wsproto", None)
    with pytest.raises(ValueError, match=r"messaging-kernel\[web\]"):
        Handshakes(parse_address("backend+ws://127.0.0.1:1"), server_side=True, tls=TlsOptions(), seconds=1.0)


class GoneWire(PlainWire):
    """A wire whose peer has hung up after what it sent last."""

    def send(self, buffers: deque[Buffer]) -> bool:
        raise BrokenPipeError(32, "Broken pipe")


class SlowWire(PlainWire):
    """A wire that takes one frame at a time."""

    def send(self, buffers: deque[Buffer]) -> bool:
        if not buffers:
            return True
        buffers.popleft()
        return False


def test_a_lent_buffer_is_given_back_when_its_last_frame_is_made_and_not_before() -> None:
    returned: list[bool] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = WebSocketWire(SlowWire(ours), web_socket_server(), 1 << 20, [])
        buffers: deque[Buffer] = deque([lend(bytearray(3 * FRAME_BYTES), lambda: returned.append(True))])
        for _ in range(2):
            assert not wire.send(buffers)
            assert not returned, "the rest is still to be put into frames"
        assert not wire.send(buffers)
        assert returned == [True]
        assert wire.send(buffers)


def web_socket_server() -> WSConnection:
    """Return the server's side of a connection whose handshake is over."""
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    server.receive_data(client.send(Request(host="h", target="/")))
    list(server.events())
    server.send(AcceptConnection())
    return server


def test_what_came_before_a_close_counts_though_the_answer_to_the_close_cannot_be_written() -> None:
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    server.receive_data(client.send(Request(host="h", target="/")))
    list(server.events())
    client.receive_data(server.send(AcceptConnection()))
    list(client.events())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(client.send(BytesMessage(b"last words")) + client.send(CloseConnection(1000)))
        wire = WebSocketWire(GoneWire(ours), server, 1 << 20, [])
        assert wire.receive(65536) == b"last words"
        assert wire.at_end
