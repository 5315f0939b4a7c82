"""What a publisher sends in one packet with the end of its handshake, before a subscriber can have subscribed."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kernel.sockets import Again, Context
from tests.plugins.protocols.zmtp.conversation import greeting, ready

TIMEOUT = 30.0
WELCOME, OTHER = b"\0\7welcome", b"\0\5other"


@pytest.mark.parametrize("binds", [False, True], ids=["connects", "binds"])
def test_a_welcome_in_one_packet_with_ready(binds: bool) -> None:
    """libzmq's XPUB sends XPUB_WELCOME_MSG so.  What of it was not subscribed to is not received."""
    with Context() as context, context.socket("SUB", linger=0) as sub:
        sub.subscribe("wel")
        with _publisher(sub, binds=binds) as peer:
            peer.sendall(greeting() + ready(b"XPUB") + OTHER + WELCOME)
            assert sub.recv(timeout=TIMEOUT) == b"welcome"
            peer.sendall(OTHER + WELCOME)
            assert sub.recv(timeout=TIMEOUT) == b"welcome"
            with pytest.raises(Again):
                sub.recv(timeout=0)


def _publisher(sub: Any, *, binds: bool) -> socket.socket:
    if binds:
        place = sub.bind("tcp://127.0.0.1:0")
        return socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])), timeout=TIMEOUT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sub.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        listener.settimeout(TIMEOUT)
        return listener.accept()[0]
