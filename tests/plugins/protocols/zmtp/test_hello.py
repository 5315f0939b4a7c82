"""The message to each new peer, and how long a peer may be silent."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.testing.protocol_checks import written
from plugins.protocols.zmtp.options import ZmtpOptions
from tests.plugins.protocols.zmtp.conversation import SIGNATURE, greeting, make, ready, told


@pytest.mark.parametrize("text, frame", [("", b"\0\0"), ("welcome", b"\0\7welcome"), ("\udcff", b"\0\1\xff")])
def test_it_is_behind_ready_and_before_all_else(text: str, frame: bytes) -> None:
    end = make("DEALER", hello=text)
    end.receive_data(greeting(), 0.0)
    written(end)
    end.receive_data(ready(b"ROUTER"), 0.0)
    assert written(end) == frame


def test_an_old_peer_gets_it_too() -> None:
    end = make("PUSH", hello="x")
    written(end)
    end.receive_data(SIGNATURE + b"\x01\x07\0\0", 0.0)
    assert written(end).endswith(b"\0\1x")


def test_a_subscriber_gets_it_when_it_has_subscribed_to_it() -> None:
    pub = told("XPUB", b"SUB", hello="welcome")
    assert written(pub) == b""
    for prefix, frame in ((b"other", b""), (b"wel", b"\0\7welcome"), (b"w", b"")):
        size = len(prefix) + 10
        pub.receive_data(bytes((4, size)) + b"\x09SUBSCRIBE" + prefix, 0.0)
        assert written(pub) == frame
        assert pub.subscriptions.pop() == ("subscribe", f"prefix:{prefix.decode()}")


def test_a_peer_of_version_1_gets_it_at_once() -> None:
    """It does not tell what it subscribes to."""
    pub = make("PUB", hello="welcome")
    written(pub)
    pub.receive_data(b"\1\0", 0.0)
    assert b"welcome" in written(pub)


def test_what_does_not_send_has_none() -> None:
    with pytest.raises(ValueError, match="PULL does not send"):
        ZmtpOptions(type="PULL", hello="x")


@pytest.mark.parametrize("timeout, given_up", [(0.0, 6.0), (0.5, 2.5), (9.0, 11.0)])
def test_how_long_a_peer_may_be_silent_behind_a_ping(timeout: float, given_up: float) -> None:
    end = told("PULL", b"PUSH", heartbeat=2.0, heartbeat_timeout=timeout, heartbeat_ttl=1.25)
    assert end.next_deadline() == 2.0
    end.handle_timeout(2.0)
    # 37/ZMTP: the time to live in tenths of a second.
    assert written(end) == b"\4\7\4PING\0\x0c"
    assert end.next_deadline() == given_up
    with pytest.raises(RemoteProtocolError, match="without an answer to PING"):
        end.handle_timeout(given_up)
