"""Bytes that are meant to hurt, at the places of sockets: each transport refuses them, and serves the next peer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.sockets import Context
from plugins.apis.sockets.options import TypeName

CORPUS = sorted((Path(__file__).parents[3] / "data" / "fuzz" / "zmtp").iterdir())
TIMEOUT = 20.0
PEERS: dict[TypeName, TypeName] = {"PULL": "PUSH", "SERVER": "CLIENT", "DISH": "RADIO"}
UPGRADE = (
    b"GET /feed HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: ZWS2.0\r\n\r\n"
)


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


def _throw(place: str, octets: bytes) -> None:
    """Send bytes, and read until the other side has closed."""
    family = socket.AF_UNIX if place.startswith("ipc") else socket.AF_INET
    rest = place.partition("://")[2].partition("/feed")[0]
    host, _, port = rest.rpartition(":")
    with socket.socket(family) as thrower:
        thrower.settimeout(TIMEOUT)
        thrower.connect(rest if family is socket.AF_UNIX else (host, int(port)))
        try:
            thrower.sendall(octets)
            thrower.shutdown(socket.SHUT_WR)
            while thrower.recv(65536):
                pass
        except OSError as error:
            # It has been closed meanwhile; ENOTCONN if that was before our end of it.
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise


@pytest.mark.parametrize(
    "transport, kind", [("tcp", "PULL"), ("ipc", "PULL"), ("ws", "PULL"), ("tcp", "SERVER"), ("tcp", "DISH")]
)
def test_a_place_goes_on_after_each_of_them(
    context: Context, tmp_path: Path, transport: str, kind: TypeName
) -> None:
    places = {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path / 's'}", "ws": "ws://127.0.0.1:0/feed"}
    ours = context.socket(kind, rcvtimeo=TIMEOUT, engine={"handshake": 5.0, "max_message": 100_000})
    if kind == "DISH":
        ours.join("")
    place = ours.bind(places[transport])
    failed: list[str] = []
    context.kernel.events.append(
        lambda event: failed.append(event.detail) if event.what == "failed" else None
    )
    for path in CORPUS:
        octets = path.read_bytes()[:100_000]
        _throw(place, octets)
        if transport == "ws":
            _throw(place, UPGRADE + octets)
    # Messages that some of them had in front of what is wrong.
    while ours.readable():
        ours.recv_multipart()
    peer = context.socket(PEERS[kind])
    peer.connect(place)
    if kind == "DISH":
        peer.wait_for_subscribers(timeout=TIMEOUT)
    peer.send(b"good")
    assert ours.recv() == b"good"
    assert failed == []
