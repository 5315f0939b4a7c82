"""ZWS 2.0, in the bytes of 45/ZWS."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer, Envelope, batch_of
from kernel.contracts.protocol import Side
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.zws import BARE, WebConnection, subprotocols_of, web_connection_of
from tests.plugins.protocols.zmtp.conversation import plain

NULL = "ZWS2.0/NULL"


def ready(kind: bytes) -> bytes:
    return b"\2\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind


def end_of(kind: str, subprotocol: str = NULL, side: Side = "server", **options: Any) -> WebConnection:
    end = web_connection_of(
        ZmtpOptions(type=kind, **options),  # type: ignore[arg-type]
        side,
        lambda told: Naming(told.decode(), f"net/{told.decode()}"),
        subprotocol,
    )
    end.handle_timeout(0.0)
    return end


def sized(*messages: Buffer) -> bytes:
    """Messages of WebSocket as the wire hands them over."""
    return b"".join(len(message).to_bytes(8, "big") + message for message in messages)


class SizedEnd(WebConnection):
    """An end that writes what its peer's wire would hand over."""

    def data_to_send(self) -> list[Buffer]:
        return [sized(*super().data_to_send())]


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subprotocol", [NULL, BARE])
def test_it_passes_the_checks_that_every_protocol_has_to(check: Any, subprotocol: str) -> None:
    def make() -> tuple[SizedEnd, SizedEnd]:
        push, pull = ZmtpOptions(type="PUSH", handshake=5.0), ZmtpOptions(type="PULL", handshake=5.0)
        return (
            SizedEnd(push, "client", subprotocol=subprotocol),
            SizedEnd(pull, "server", subprotocol=subprotocol),
        )

    check(ProtocolSubject(make=make, keys=False))


def test_names_of_what_can_be_spoken() -> None:
    # Without a mechanism there is no password.
    assert subprotocols_of(ZmtpOptions(type="PULL")) == ("ZWS2.0/NULL", "ZWS2.0")
    assert subprotocols_of(ZmtpOptions(type="PULL", mechanism="PLAIN")) == ("ZWS2.0/PLAIN",)


def test_a_frame_is_a_message() -> None:
    push, pull = end_of("PUSH"), end_of("PULL")
    assert push.data_to_send() == [ready(b"PUSH")]
    push.receive_data(sized(ready(b"PULL")), 0)
    pull.receive_data(sized(ready(b"PUSH")), 0)
    for message, frames in (
        (b"", [b"\0"]),
        (b"hello", [b"\0hello"]),
        (memoryview(b"x" * 70_000), [b"\0" + b"x" * 70_000]),
        ((b"a", b"", memoryview(b"c")), [b"\1a", b"\1", b"\0c"]),
    ):
        multipart = isinstance(message, tuple)
        push.send_batches([batch_of([message], multipart=multipart)], 0)
        assert push.data_to_send() == frames
        assert plain(pull.receive_data(sized(*frames), 0)) == [
            (tuple(map(bytes, message)) if multipart else bytes(message), "")  # type: ignore[arg-type]
        ]


@pytest.mark.parametrize("subprotocol", [NULL, BARE])
def test_subscriptions_are_messages(subprotocol: str) -> None:
    sub, pub = end_of("SUB", subprotocol, subscribe=("tea",)), end_of("PUB", subprotocol)
    told = (ready(b"PUB"), ready(b"SUB")) if subprotocol == NULL else (b"\0", b"\0")
    for end, first in zip((sub, pub), told, strict=True):
        end.receive_data(sized(first), 0)
        assert end.ready_to_send()
    assert sub.data_to_send()[1:] == [b"\0\1tea"]
    pub.data_to_send()
    pub.receive_data(sized(b"\0\1tea"), 0)
    pub.send_batches([batch_of([b"1"], Envelope(key="coffee")), batch_of([b"2"], Envelope(key="teapot"))], 0)
    assert pub.data_to_send() == [b"\1teapot", b"\0" + b"2"]
    sub.subscribe("prefix:milk")
    sub.unsubscribe("prefix:milk")
    assert sub.data_to_send() == [b"\0\1milk", b"\0\0milk"]


def test_without_a_mechanism_the_identity_comes_first() -> None:
    router, dealer = end_of("ROUTER", BARE), end_of("DEALER", BARE, identity="anna")
    assert (router.data_to_send(), dealer.data_to_send()) == ([b"\0"], [b"\0anna"])
    assert not router.ready_to_send()
    (batch,) = router.receive_data(sized(b"\0anna", b"\0question"), 0)
    assert router.ready_to_send()
    assert (router.peer_name, batch.envelope.reply_to) == ("anna", "net/anna")


def test_plain() -> None:
    client = end_of("PUSH", "ZWS2.0/PLAIN", "client", mechanism="PLAIN", username="anna", password="tea")
    server = end_of("PULL", "ZWS2.0/PLAIN", mechanism="PLAIN")
    (hello,) = client.data_to_send()
    assert hello == b"\2\x05HELLO" + b"\4anna\3tea"
    server.receive_data(sized(hello), 0)
    login = server.login()
    assert login is not None
    assert (login.user, login.secret) == ("anna", b"tea")
    server.decide(None, 0)
    assert server.data_to_send() == [b"\2\x07WELCOME"]


def test_there_is_no_ping() -> None:
    end = end_of("PULL", BARE, heartbeat=1.0)
    assert end.next_deadline() is None


@pytest.mark.parametrize("first", [b"\0hello", b"\4\x05READY", b"\3\x05READY", b""])
def test_frames_that_cannot_be(first: bytes) -> None:
    end = end_of("PULL")
    end.data_to_send()
    with pytest.raises(RemoteProtocolError):
        end.receive_data(sized(first), 0)
    # 23/ZMTP: ERROR, as in a handshake over TCP.
    assert end.data_to_send()[0][:7] == b"\2\x05ERROR"


def test_without_a_mechanism_there_are_no_commands() -> None:
    end = end_of("PULL", BARE)
    with pytest.raises(RemoteProtocolError, match="flags"):
        end.receive_data(sized(b"\0", b"\2\x05READY"), 0)
