"""Wires: partial writes, the end of the stream, and buffers that are let go exactly when they may be."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.loan import lend
from kernel.contracts.message import Buffer
from kernel.hosting.wire import PlainWire, TlsWire, drop_sent


@pytest.fixture
def ends() -> Iterator[tuple[PlainWire, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    yield PlainWire(ours), theirs
    ours.close()
    theirs.close()


Ends = tuple[PlainWire, socket.socket]


def test_nothing_to_read_is_none_and_the_end_is_empty(ends: Ends) -> None:
    wire, peer = ends
    assert wire.receive(10) is None
    peer.sendall(b"abc")
    assert wire.receive(2) == b"ab"
    assert wire.receive(2) == b"c"
    peer.close()
    assert wire.receive(2) == b""


class ResetTls:
    """A TLS socket whose peer has sent something and then reset the connection."""

    def __init__(self) -> None:
        self._left = [b"abc", b"def"]

    def recv(self, most: int) -> bytes:
        if not self._left:
            raise ConnectionResetError
        return self._left.pop(0)

    def pending(self) -> int:
        return 0


def test_what_came_over_tls_before_a_reset_is_received() -> None:
    wire = TlsWire(ResetTls())  # type: ignore[arg-type]
    assert wire.receive(100) == b"abcdef"
    with pytest.raises(ConnectionResetError):
        wire.receive(100)


@pytest.fixture
def tls_ends() -> Iterator[tuple[TlsWire, ssl.SSLSocket]]:
    """A wire, and its peer's socket, after the handshake."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    sockets = socket.socketpair()
    for each in sockets:
        each.setblocking(False)
    ours = server.wrap_socket(sockets[0], server_side=True, do_handshake_on_connect=False)
    theirs = client.wrap_socket(sockets[1], server_hostname="localhost", do_handshake_on_connect=False)
    left = [ours, theirs]
    while left:
        each = left.pop(0)
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            left.append(each)
    yield TlsWire(ours), theirs
    ours.close()
    theirs.close()


def test_an_end_that_comes_with_the_last_bytes_over_tls_is_seen(
    tls_ends: tuple[TlsWire, ssl.SSLSocket],
) -> None:
    wire, peer = tls_ends
    peer.send(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        peer.unwrap()  # its close_notify is sent; it waits for ours, and does not close its socket
    assert wire.receive(1000) == b"last words"
    assert wire.at_end


def test_shutting_down_sends_a_close_notify(tls_ends: tuple[TlsWire, ssl.SSLSocket]) -> None:
    wire, peer = tls_ends
    wire.send(deque([b"last words"]))
    wire.shut_down()
    assert peer.recv(1000) == b"last words"
    peer.suppress_ragged_eofs = False
    assert peer.recv(1000) == b"", "an end without close_notify would raise"


def test_all_buffers_are_written_in_order(ends: Ends) -> None:
    wire, peer = ends
    buffers: deque[Buffer] = deque([b"a", b"", bytearray(b"bc"), memoryview(b"def"), b""])
    assert wire.send(buffers)
    assert not buffers
    assert peer.recv(100) == b"abcdef"


def test_more_buffers_than_one_call_takes_are_written(ends: Ends) -> None:
    wire, peer = ends
    buffers: deque[Buffer] = deque([b"%04d" % number for number in range(3000)])
    assert wire.send(buffers)
    received = b""
    while len(received) < 12_000:
        received += peer.recv(65536)
    assert received == b"".join(b"%04d" % number for number in range(3000))


def test_a_full_socket_keeps_the_rest(ends: Ends) -> None:
    wire, peer = ends
    whole = bytes(range(256)) * 40_000
    buffers: deque[Buffer] = deque([whole, b"tail"])
    received = bytearray()
    while not wire.send(buffers):
        received += peer.recv(1 << 20)
    peer.settimeout(0)
    try:
        while True:
            received += peer.recv(1 << 20)
    except BlockingIOError:
        pass
    assert bytes(received) == whole + b"tail"


@pytest.mark.parametrize("first", [b"", b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_one_buffer_is_written_without_a_queue(ends: Ends, first: Buffer) -> None:
    wire, peer = ends
    buffers: deque[Buffer] = deque()
    assert wire.send_first(first, buffers)
    assert not buffers
    wire.send_first(b"!", buffers)
    assert peer.recv(100) == bytes(first) + b"!"


def test_what_a_full_socket_does_not_take_of_one_buffer_is_kept(ends: Ends) -> None:
    wire, peer = ends
    whole = bytes(range(256)) * 40_000
    buffers: deque[Buffer] = deque()
    assert not wire.send_first(whole, buffers)
    # The socket is full, and takes nothing of this one.
    tail: deque[Buffer] = deque()
    assert not wire.send_first(b"tail", tail)
    buffers += tail
    received = bytearray()
    while not wire.send(buffers):
        received += peer.recv(1 << 20)
    while len(received) < len(whole) + 4:
        received += peer.recv(1 << 20)
    assert bytes(received) == whole + b"tail"


def test_writing_to_a_peer_that_is_gone_is_an_error(ends: Ends) -> None:
    wire, peer = ends
    peer.close()
    with pytest.raises(OSError):
        wire.send(deque([b"x" * 1000]))
    with pytest.raises(OSError):
        wire.send_first(b"x" * 1000, deque())


@pytest.mark.parametrize("first", [False, True])
def test_a_lent_buffer_is_given_back_when_the_last_byte_is_written_and_not_before(
    ends: Ends, first: bool
) -> None:
    wire, peer = ends
    returned: list[bool] = []
    size = 20_000_000
    lent = lend(bytearray(size), lambda: returned.append(True))
    buffers: deque[Buffer] = deque() if first else deque([lent])
    if first:
        assert not wire.send_first(lent, buffers)
    del lent
    received = 0
    while not wire.send(buffers):
        assert not returned, "the rest of the buffer is still to be written"
        received += len(peer.recv(1 << 20))
    assert returned == [True]


def test_a_lent_buffer_is_given_back_when_the_wire_is_closed(ends: Ends) -> None:
    wire, _ = ends
    returned: list[bool] = []
    buffers: deque[Buffer] = deque([lend(bytearray(20_000_000), lambda: returned.append(True))])
    assert not wire.send(buffers)
    buffers.clear()
    assert not returned
    wire.close()
    assert returned == [True]


@given(st.lists(st.binary(max_size=5), max_size=10), st.data())
def test_dropping_sent_bytes_keeps_the_others(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    buffers: deque[Buffer] = deque(parts)
    begun: list[Buffer] = []
    position = 0
    while position < len(whole):
        sent = data.draw(st.integers(1, len(whole) - position))
        drop_sent(buffers, sent, begun)
        position += sent
        assert b"".join(buffers) == whole[position:]
        assert not buffers or len(buffers[0])
