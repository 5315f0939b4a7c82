"""Peers of ``tls`` that mean harm: each is refused and counted, nothing of it stays, and the next peer is served."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kernel.sockets import Context, Socket
from tests.interop.until import until
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates"]

CORPUS = sorted((Path(__file__).parents[3] / "data" / "fuzz" / "zmtp").iterdir())
TIMEOUT = 30.0
SHORT = 0.3
"""Seconds that a peer here may take for a handshake, of either protocol."""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(48)
READY = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


class Place:
    """A PULL at a place of ``tls``, and what has become of its peers."""

    def __init__(self, context: Context, files: Certificates, **engine: Any) -> None:
        self.files = files
        self.context = context
        self.failed: list[str] = []
        context.kernel.events.append(
            lambda event: self.failed.append(event.detail) if event.what == "failed" else None
        )
        self.pull = context.socket(
            "PULL", rcvtimeo=TIMEOUT, engine={"tls": {"certificate": files.server}, **engine}
        )
        self.place = self.pull.bind("tls://127.0.0.1:0")
        self.name = self.pull._place.engine

    def connect(self) -> socket.socket:
        port = int(self.place.rpartition(":")[2])
        return socket.create_connection(("127.0.0.1", port), TIMEOUT)

    def figures(self) -> dict[str, int]:
        found = next(each for each in self.context.kernel.statistics().engines if each.name == self.name)
        return dict(found.counters)

    def push(self) -> Socket:
        push = self.context.socket("PUSH", linger=0, engine={"tls": {"authorities": self.files.authorities}})
        push.connect(self.place)
        return push

    def serves(self) -> None:
        """Whether a good peer is served, and nothing has failed."""
        with self.push() as push:
            push.send(b"good", timeout=TIMEOUT)
            assert self.pull.recv() == b"good"
        assert self.failed == []


def first_flight() -> bytes:
    """Return what a client says first."""
    told, wanted = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = client_context().wrap_bio(told, wanted, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        peer.do_handshake()
    return wanted.read()


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def read_to_end(peer: socket.socket) -> None:
    with suppress(OSError):
        while peer.recv(65536):
            pass


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "octets",
    [b"\0" * 600, GREETING, b"GET / HTTP/1.1\r\n\r\n", first_flight()[:100], first_flight() + b"x" * 600],
    ids=["zeros", "zmtp", "http", "half", "garbage behind"],
)
@pytest.mark.parametrize("stalls", [False, True])
def test_a_handshake_that_is_none(
    context: Context, certificates: Certificates, octets: bytes, stalls: bool
) -> None:
    place = Place(context, certificates, connect_timeout=SHORT)
    place.serves()
    until(lambda: place.figures()["connections"] == 0)
    before, refused = descriptors(), place.figures()["refused"]
    for _ in range(5):
        with place.connect() as peer:
            # A refusal may come in the middle.
            with suppress(OSError):
                peer.sendall(octets)
                if not stalls:
                    peer.shutdown(socket.SHUT_WR)
            # It ends by itself, also if nothing more comes.
            read_to_end(peer)
    until(lambda: place.figures()["refused"] >= refused + 5)
    until(lambda: descriptors() <= before)
    place.serves()


def secure(place: Place) -> ssl.SSLSocket:
    return client_context().wrap_socket(place.connect())


def test_bytes_of_the_corpus_in_tls(context: Context, certificates: Certificates) -> None:
    """The protocol's own errors, counted."""
    place = Place(context, certificates, handshake=SHORT, max_message=100_000)
    place.serves()
    until(lambda: place.figures()["connections"] == 0)
    before = descriptors()
    for path in CORPUS:
        with secure(place) as peer, suppress(OSError):
            peer.sendall(path.read_bytes()[:100_000])
            # Bare, without the end of TLS.
            peer.shutdown(socket.SHUT_WR)
            read_to_end(peer)
    until(lambda: place.figures()["connections"] == 0)
    assert place.figures()["protocol_errors"] > 0
    until(lambda: descriptors() <= before)
    while place.pull.readable():
        place.pull.recv_multipart()
    place.serves()


def stall(peer: ssl.SSLSocket) -> None:
    """Say nothing more."""


def break_record(peer: ssl.SSLSocket) -> None:
    """Send what is not of this conversation of TLS."""
    with closing(socket.socket(fileno=os.dup(peer.fileno()))) as bare:
        bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))


def reset(peer: ssl.SSLSocket) -> None:
    """End without the end of TLS."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    os.close(peer.detach())


@pytest.mark.parametrize("said", [b"", GREETING[:20], GREETING, GREETING + READY[:9]])
@pytest.mark.parametrize("harm", [stall, break_record, reset])
def test_a_conversation_that_breaks_off(
    context: Context, certificates: Certificates, said: bytes, harm: Callable[[ssl.SSLSocket], None]
) -> None:
    place = Place(context, certificates, handshake=SHORT)
    place.serves()
    until(lambda: place.figures()["connections"] == 0)
    before = descriptors()
    for _ in range(5):
        peer = secure(place)
        with suppress(OSError):
            peer.sendall(said)
        harm(peer)
        if harm is not reset:
            read_to_end(peer)
            peer.close()
    until(lambda: place.figures()["connections"] == 0)
    until(lambda: descriptors() <= before)
    place.serves()


def test_a_peer_that_breaks_off_in_a_message(context: Context, certificates: Certificates) -> None:
    place = Place(context, certificates)
    for harm in (break_record, reset):
        peer = secure(place)
        peer.sendall(GREETING + READY + b"\0\3one\2" + (1 << 20).to_bytes(8, "big") + b"x" * 1000)
        assert place.pull.recv() == b"one"
        harm(peer)
        peer.close()
        until(lambda: place.figures()["connections"] == 0)
    assert not place.pull.readable()
    place.serves()


def test_a_renegotiation(context: Context, certificates: Certificates) -> None:
    """TLS 1.2 has it, and OpenSSL does not let clients begin one; the conversation goes on or ends."""
    from OpenSSL import SSL

    place = Place(context, certificates)
    settings = SSL.Context(SSL.TLSv1_2_METHOD)
    with place.connect() as bare:
        bare.settimeout(None)
        peer = SSL.Connection(settings, bare)
        peer.set_connect_state()
        peer.do_handshake()
        peer.sendall(GREETING + READY + b"\0\3one")
        assert place.pull.recv() == b"one"
        assert peer.renegotiate()
        with suppress(SSL.Error):
            peer.do_handshake()
        with suppress(SSL.Error):
            peer.sendall(b"\0\3two")
            peer.shutdown()
    until(lambda: place.figures()["connections"] == 0)
    while place.pull.readable():
        assert place.pull.recv() == b"two"
    place.serves()


@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_certificate_that_is_wrong(context: Context, certificates: Certificates, wrong: str) -> None:
    """Nothing is said to a server that is not the one that is meant; when the right one comes, messages go there."""
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.load_cert_chain(certificates.stranger if wrong == "authority" else certificates.client)
    push = context.socket(
        "PUSH", linger=0, reconnect=0.01, engine={"tls": {"authorities": certificates.authorities}}
    )
    with socket.create_server(("127.0.0.1", 0)) as server, push.monitor() as monitor:
        port = server.getsockname()[1]
        push.connect(f"tls://127.0.0.1:{port}")
        push.send(b"for the right one")
        for _ in range(3):
            connected, _ = server.accept()
            connected.settimeout(TIMEOUT)
            # With TLS 1.3 a client refuses behind the server's last word.
            with connected, suppress(OSError):
                assert settings.wrap_socket(connected, server_side=True).recv(1) == b""
        events = [monitor.recv(timeout=TIMEOUT) for _ in range(3)]
        assert {event.what for event in events} <= {"connecting", "retrying", "refused"}
        assert any("certificate" in event.reason for event in events)
    pull = context.socket("PULL", rcvtimeo=TIMEOUT, engine={"tls": {"certificate": certificates.server}})
    pull.bind(f"tls://127.0.0.1:{port}")
    assert pull.recv() == b"for the right one"


def test_a_server_that_wants_to_know_its_peers(context: Context, certificates: Certificates) -> None:
    """Who has no certificate of the authority, or a stranger's, is refused."""
    tls = {
        "certificate": certificates.server,
        "authorities": certificates.authorities,
        "require_client_certificate": True,
    }
    place = Place(context, certificates, tls=tls)
    for own in ("", certificates.stranger):
        settings = client_context()
        if own:
            settings.load_cert_chain(own)
        with suppress(OSError), settings.wrap_socket(place.connect()) as peer:
            peer.sendall(GREETING + READY + b"\0\3one")
            read_to_end(peer)
    until(lambda: place.figures()["refused"] == 2)
    assert not place.pull.readable()
    assert place.failed == []
