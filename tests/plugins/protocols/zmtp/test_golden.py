"""Bytes of the specifications, both ways."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.zmtp.connection import Phase
from tests.plugins.protocols.zmtp.conversation import (
    NULL,
    PLAIN,
    SIGNATURE,
    greeting,
    make,
    plain,
    ready,
    told,
    written,
)


def test_a_greeting_is_said_in_three_steps_and_ready_only_behind_that_of_the_peer() -> None:
    end = make("PUSH")
    assert written(end) == SIGNATURE
    end.receive_data(SIGNATURE, 0)
    assert written(end) == b"\x03"
    end.receive_data(b"\x03", 0)
    # 37/ZMTP: minor version, mechanism (20 octets), as-server, filler (31 octets).
    assert written(end) == b"\x01" + NULL + b"\0" + bytes(31)
    end.receive_data(b"\x01" + NULL + b"\0" + bytes(30), 0)
    assert written(end) == b""
    end.receive_data(b"\0", 0)
    assert written(end) == bytes.fromhex("04 1a 05") + b"READY" + b"\x0bSocket-Type" + b"\0\0\0\x04PUSH"
    assert not end.ready_to_send()
    end.receive_data(ready(b"PULL"), 0)
    assert end.ready_to_send()


def test_frames_of_version_3() -> None:
    push, pull = told("PUSH", b"PULL"), told("PULL", b"PUSH")
    for message, octets in (
        (b"", b"\0\0"),
        (b"hello", b"\0\x05hello"),
        (b"x" * 255, b"\0\xff" + b"x" * 255),
        (b"x" * 256, b"\2\0\0\0\0\0\0\1\0" + b"x" * 256),
        ((b"a", b""), b"\1\1a\0\0"),
        ((b"y" * 256, b"z"), b"\3\0\0\0\0\0\0\1\0" + b"y" * 256 + b"\0\1z"),
    ):
        push.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
        assert written(push) == octets
        assert plain(pull.receive_data(octets, 0)) == [(message, "")]


def test_a_key_is_the_first_part() -> None:
    publisher, subscriber = told("PUB", b"SUB"), told("SUB", b"PUB", subscribe=("",))
    publisher.receive_data(b"\4\x0a\x09SUBSCRIBE", 0)
    publisher.send_batches([batch_of([b"sunny", b"windy", b"7"], Envelope(key="wien"))], 0)
    octets = b"\1\4wien\0\5sunny" + b"\1\4wien\0\5windy" + b"\1\4wien\0\1" + b"7"
    assert written(publisher) == octets
    assert plain(subscriber.receive_data(octets, 0)) == [
        (b"sunny", "wien"),
        (b"windy", "wien"),
        (b"7", "wien"),
    ]


def test_subscriptions_are_commands_for_3_1_and_messages_for_3_0() -> None:
    for minor, octets in ((1, b"\4\x0d\x09SUBSCRIBEtea"), (0, b"\0\4\1tea")):
        end = told("SUB", b"PUB", minor)
        end.subscribe("prefix:tea")
        assert written(end) == octets
    for minor, octets in ((1, b"\4\x0a\x06CANCELtea"), (0, b"\0\4\0tea")):
        end = told("SUB", b"PUB", minor, subscribe=("tea",))
        end.subscribe("prefix:tea")
        end.unsubscribe("prefix:tea")
        assert written(end) == b"", "the one in the options is left"
        end.unsubscribe("prefix:tea")
        assert written(end) == octets


@pytest.mark.parametrize(
    "how", [(b"\4\x0d\x09SUBSCRIBEtea", b"\4\x0a\x06CANCELtea"), (b"\0\4\1tea", b"\0\4\0tea")]
)
def test_both_forms_are_taken_from_each_peer(how: tuple[bytes, bytes]) -> None:
    subscribe, cancel = how
    end = told("PUB", b"SUB")
    end.receive_data(subscribe + subscribe, 0)
    assert end.subscriptions == [("subscribe", "prefix:tea")]
    end.subscriptions.clear()
    # As at libzmq, which takes a repeated subscription back once.
    end.receive_data(cancel + cancel, 0)
    assert end.subscriptions == [("unsubscribe", "prefix:tea")]


def test_plain() -> None:
    client = make("PUSH", "client", mechanism="PLAIN", username="admin", password="secret")
    server = make("PULL", "server", mechanism="PLAIN")
    # Only the one that decides sets as-server.
    client.receive_data(greeting(1, PLAIN, 1), 0)
    server.receive_data(greeting(1, PLAIN, 0), 0)
    hello = b"\4\x13\x05HELLO\x05admin\x06secret"
    assert written(client) == greeting(1, PLAIN, 0) + hello
    assert written(server) == greeting(1, PLAIN, 1)
    server.receive_data(hello, 0)
    login = server.login()
    assert login is not None
    assert (login.mechanism, login.user, login.secret) == ("PLAIN", "admin", b"secret")
    assert server.login() is None
    assert written(server) == b""
    server.decide(None, 0)
    assert written(server) == b"\4\x08\x07WELCOME"
    client.receive_data(b"\4\x08\x07WELCOME", 0)
    initiate = b"\4\x1d\x08INITIATE\x0bSocket-Type\0\0\0\x04PUSH"
    assert written(client) == initiate
    server.receive_data(initiate, 0)
    assert server.ready_to_send()
    assert written(server) == ready(b"PULL")
    client.receive_data(ready(b"PULL"), 0)
    assert client.ready_to_send()


def test_a_refused_login_gets_an_error() -> None:
    server = make("PULL", "server", mechanism="PLAIN")
    server.receive_data(greeting(1, PLAIN) + b"\4\x08\x05HELLO\0\0", 0)
    server.data_to_send()
    server.decide("login refused", 0)
    assert written(server) == b"\4\x14\x05ERROR\x0dlogin refused"
    assert server.closed()


@pytest.mark.parametrize("name", [b"\x05ERROR", b"^RROR"])
def test_error_also_as_libzmq_writes_it(name: bytes) -> None:
    end = make("PUSH", "client")
    body = name + b"\x07not you"
    with pytest.raises(RemoteProtocolError, match="not you"):
        end.receive_data(greeting() + bytes((4, len(body))) + body, 0)


def test_ping_and_pong() -> None:
    end = told("PULL", b"PUSH", heartbeat=2.0)
    # Time to live of 10 s, in tenths, and a context.
    end.receive_data(b"\4\x0a\x04PING\0\x64ctx", 1.0)
    assert written(end) == b"\4\x08\x04PONGctx"
    assert end.next_deadline() == 3.0
    end.handle_timeout(3.0)
    assert written(end) == b"\4\x07\x04PING\0\x3c", "6 s without an answer, and we give up"
    end.receive_data(b"\4\x05\x04PONG", 4.0)
    assert end.next_deadline() == 6.0
    end.handle_timeout(6.0)
    with pytest.raises(RemoteProtocolError, match="without an answer to PING"):
        end.handle_timeout(10.0)
    assert end.phase is Phase.CLOSED


def test_a_peer_is_held_to_its_own_time_to_live() -> None:
    end = told("PULL", b"PUSH", heartbeat=0.0)
    assert end.next_deadline() is None
    end.receive_data(b"\4\x07\x04PING\0\x05", 1.0)
    assert end.next_deadline() == 1.5
    with pytest.raises(RemoteProtocolError, match=r"allows 0\.5 s"):
        end.handle_timeout(1.5)


def test_a_peer_of_2_0() -> None:
    end = make("PUSH")
    assert written(end) == SIGNATURE
    # 15/ZMTP: signature, revision 1, socket type 7 (PULL); then the identity as a frame.
    end.receive_data(SIGNATURE + b"\x01\x07", 0)
    # Our revision may be higher; our type is 8 (PUSH); our identity is empty.
    assert written(end) == b"\x03\x08\0\0"
    end.receive_data(b"\0\2me", 0)
    assert end.ready_to_send()
    end.send_batches([batch_of([(b"a", b"b")], multipart=True)], 0)
    assert written(end) == b"\1\1a\0\1b"


def test_subscriptions_of_and_at_peers_of_2_0() -> None:
    publisher, subscriber = make("PUB"), make("SUB", subscribe=("tea",))
    publisher.receive_data(SIGNATURE + b"\x01\x02" + b"\0\0" + b"\0\4\1tea", 0)
    assert publisher.subscriptions == [("subscribe", "prefix:tea")]
    subscriber.receive_data(SIGNATURE + b"\x01\x01" + b"\0\0", 0)
    assert written(subscriber) == SIGNATURE + b"\x03\x02\0\0" + b"\0\4\1tea"


@pytest.mark.parametrize("identity", [b"\x01\0", b"\x03\0me", b"\xff\0\0\0\0\0\0\0\3\0me"])
def test_a_peer_of_1_0(identity: bytes) -> None:
    # 13/ZMTP: length (with the flags), flags, body.  Our signature is an empty identity to it.
    push, pull = make("PUSH"), make("PULL")
    push.receive_data(identity, 0)
    assert push.ready_to_send()
    push.send_batches([batch_of([b"hello"]), batch_of([(b"a", b"")], multipart=True)], 0)
    push.send_batches([batch_of([b"x" * 253, b"y" * 254])], 0)
    octets = b"\x06\0hello" + b"\x02\1a\x01\0" + b"\xfe\0" + b"x" * 253
    octets += b"\xff\0\0\0\0\0\0\0\xff\0" + b"y" * 254
    assert written(push) == SIGNATURE + octets
    assert plain(pull.receive_data(identity + octets, 0)) == [
        (b"hello", ""),
        ((b"a", b""), ""),
        (b"x" * 253, ""),
        (b"y" * 254, ""),
    ]


def test_a_subscriber_of_1_0_gets_everything_and_one_here_sifts() -> None:
    publisher, subscriber = make("PUB"), make("SUB", subscribe=("tea",))
    publisher.receive_data(b"\x01\0", 0)
    assert publisher.subscriptions == [("subscribe", "prefix:")]
    got = subscriber.receive_data(b"\x01\0" + b"\x07\0coffee" + b"\x04\0tea", 0)
    assert plain(got) == [(b"tea", "")]
    assert written(subscriber) == SIGNATURE, "nothing that such a peer would not read"


@pytest.mark.parametrize("peer", [b"\x01\0", SIGNATURE + b"\x01\x08"])
def test_older_versions_do_not_get_around_a_password(peer: bytes) -> None:
    end = make("PULL", mechanism="PLAIN")
    with pytest.raises(RemoteProtocolError, match="no mechanism PLAIN"):
        end.receive_data(peer, 0)
    assert not end.ready_to_send()
