"""Peers that somebody decides on: NULL with a domain, the roles of PLAIN, and what a refused peer is told."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.protocol import Login
from kernel.testing.protocol_checks import carry, written
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.zws import subprotocols_of
from tests.plugins.protocols.zmtp.conversation import SIGNATURE, greeting, make, ready

OLD_GREETINGS = {"1.0": b"\x01\0", "2.0": SIGNATURE + b"\x01\x08\0\0"}


def test_null_waits_for_the_decision() -> None:
    end = make("PULL", zap_domain="lab")
    end.receive_data(greeting() + ready(b"PUSH"), 0.0)
    written(end)
    assert end.login() == Login(mechanism="NULL")
    assert end.login() is None
    assert not end.ready_to_send()
    end.decide(None, 0.0)
    assert end.ready_to_send()
    assert written(end) == ready(b"PULL")


def test_the_peer_may_speak_after_the_decision() -> None:
    end = make("PULL", zap_domain="lab")
    end.receive_data(greeting(), 0.0)
    assert end.login() is not None
    end.decide(None, 0.0)
    assert not end.ready_to_send()
    end.receive_data(ready(b"PUSH"), 0.0)
    assert end.ready_to_send()


@pytest.mark.parametrize(
    "status, said", [("400", b"\4\x0a\5ERROR\x03400"), ("500", b"\4\x0a\5ERROR\x03500"), ("300", b"")]
)
def test_a_refused_peer(status: str, said: bytes) -> None:
    """27/ZAP: a temporary error is not told, so that the peer tries again."""
    end = make("PULL", zap_domain="lab")
    end.receive_data(greeting() + ready(b"PUSH"), 0.0)
    end.login()
    written(end)
    end.decide(status, 0.0)
    assert written(end) == said
    assert end.closed()


def test_the_status_of_a_refusal_by_the_peer() -> None:
    end = make("PUSH", "client")
    with pytest.raises(RemoteProtocolError, match="400, authentication failure"):
        end.receive_data(greeting() + b"\4\x0a\5ERROR\x03400", 0.0)
    assert end.refused_with == "400"


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_versions_without_a_handshake_get_around_nobody(version: str) -> None:
    end = make("PULL", zap_domain="lab")
    with pytest.raises(RemoteProtocolError, match=f"ZMTP {version}, which has no handshake"):
        end.receive_data(OLD_GREETINGS[version], 0.0)


def test_websocket_without_a_handshake_gets_around_nobody() -> None:
    assert subprotocols_of(ZmtpOptions(type="PULL")) == ("ZWS2.0/NULL", "ZWS2.0")
    assert subprotocols_of(ZmtpOptions(type="PULL", zap_domain="lab")) == ("ZWS2.0/NULL",)


def test_the_one_that_connects_is_the_server_of_plain() -> None:
    dialler = make("PULL", "client", mechanism="PLAIN", plain_server=True)
    listener = make(
        "PUSH", "server", mechanism="PLAIN", plain_server=False, username="anna", password="secret"
    )
    carry(dialler, listener, 0.0)
    login = dialler.login()
    assert login is not None
    assert (login.user, login.secret, listener.login()) == ("anna", b"secret", None)
    dialler.decide(None, 0.0)
    carry(dialler, listener, 0.0)
    assert dialler.ready_to_send()
    assert listener.ready_to_send()


def test_roles_are_those_of_plain() -> None:
    with pytest.raises(ValueError, match="plain_server is for"):
        ZmtpOptions(type="PULL", plain_server=True)
