"""Faults of peers in the handshake: what is told of them, by name."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.zmtp.commands import encode_command
from plugins.protocols.zmtp.connection import ZmtpConnection
from tests.notes import for_each
from tests.plugins.protocols.zmtp.conversation import greeting, make, ready

PLAIN: dict[str, Any] = {"mechanism": "PLAIN", "username": "anna", "password": "secret"}
CURVE: dict[str, Any] = {
    "mechanism": "CURVE",
    "curve_server_key": "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
}
SERVER: dict[str, Any] = {
    "mechanism": "CURVE",
    "curve_secret_key": "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
}


def command(name: bytes, data: bytes = b"") -> bytes:
    body = encode_command(name, data)
    return bytes((4, len(body))) + body


OF_PLAIN, OF_CURVE = (greeting(mechanism=name.ljust(20, b"\0")) for name in (b"PLAIN", b"CURVE"))
WELCOME = command(b"WELCOME", bytes(160))


def client(**options: Any) -> ZmtpConnection:
    return make("PUSH", "client", **options)


def server(**options: Any) -> ZmtpConnection:
    return make("PULL", "server", **options)


@for_each(
    "end, octets, fault",
    [
        (client, OF_PLAIN, "mechanism-mismatch"),
        (client, b"\1\0", None),
        (client, greeting() + command(b"HELLO"), "unexpected-command"),
        (client, greeting() + b"\4\2\0x", "malformed-command"),
        (client, greeting() + command(b"ERROR"), "malformed-ERROR"),
        (client, greeting() + command(b"ERROR", b"\x03400"), None),
        (client, greeting() + command(b"READY", b"\1"), "invalid-metadata"),
        (client, greeting() + ready(b"PUSH"), "invalid-metadata"),
        (client, greeting() + b"\0\1x", "unexpected-command"),
        (client, greeting() + b"\xff\1x", "unspecified"),
        (lambda: client(**PLAIN), OF_PLAIN + command(b"READY"), "unexpected-command"),
        (lambda: client(**PLAIN), OF_PLAIN + command(b"WELCOME", b"x"), "malformed-WELCOME"),
        (
            lambda: server(mechanism="PLAIN"),
            OF_PLAIN + command(b"HELLO", b"\5an"),
            "malformed-HELLO",
        ),
        (lambda: client(**CURVE), OF_CURVE + command(b"WELCOME", b"x"), "malformed-WELCOME"),
        (lambda: client(**CURVE), OF_CURVE + WELCOME, "cryptographic"),
        (lambda: server(**SERVER), OF_CURVE + command(b"HELLO", b"x"), "malformed-HELLO"),
        (lambda: server(**SERVER), OF_CURVE + command(b"INITIATE"), "unexpected-command"),
    ],
)
def test_a_fault_has_a_name(end: Any, octets: bytes, fault: str | None) -> None:
    """None for a peer of an older version, and for one that refuses this side."""
    made: ZmtpConnection = end()
    try:
        made.receive_data(octets, 0.0)
    except RemoteProtocolError:
        assert made.closed()
    assert made.fault == fault


def test_the_end_of_a_handshake_is_a_fault_if_it_is_not_ours() -> None:
    hung_up, reset, late, ours, over = (server(handshake=1.0) for _ in range(5))
    for end in (hung_up, reset, late, ours, over):
        end.handle_timeout(0.0)
        end.receive_data(greeting(), 0.0)
    hung_up.receive_eof(0.0)
    with pytest.raises(RemoteProtocolError, match="no READY"):
        late.handle_timeout(2.0)
    ours.close("the socket is closed", 0.0)
    over.receive_data(ready(b"PUSH"), 0.0)
    with pytest.raises(RemoteProtocolError, match="second READY"):
        over.receive_data(ready(b"PUSH"), 0.0)
    assert [end.fault for end in (hung_up, reset, late, ours, over)] == [
        *("closed", "closed", "timed-out", None, None)
    ]
