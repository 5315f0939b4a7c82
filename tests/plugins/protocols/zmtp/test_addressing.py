"""Addresses before questions and answers (28/REQREP), in bytes."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.connection import ZmtpConnection, connection_of
from plugins.protocols.zmtp.options import ZmtpOptions
from tests.plugins.protocols.zmtp.conversation import SIGNATURE, greeting, plain, ready, written


def opened(kind: str, peer: bytes, identity: bytes | None = None, **options: Any) -> ZmtpConnection:
    """An end whose peer has said READY, with an identity if it has one."""
    end = connection_of(
        ZmtpOptions(type=kind, **options),  # type: ignore[arg-type]
        "server",
        lambda told: Naming(told.decode() or "made up", f"net/{told.decode() or 'made up'}"),
    )
    end.handle_timeout(0.0)
    said = ready(peer)
    if identity is not None:
        body = said[2:] + b"\x08Identity" + len(identity).to_bytes(4, "big") + identity
        said = bytes((4, len(body))) + body
    end.receive_data(greeting() + said, 0.0)
    assert end.ready_to_send()
    end.data_to_send()
    return end


def parts_of(batches: list[Batch]) -> list[Any]:
    return [body for body, _ in plain(batches)]


def test_the_identity_is_in_ready() -> None:
    end = connection_of(ZmtpOptions(type="DEALER", identity="me"), "client")
    end.receive_data(greeting(), 0.0)
    octets = written(end)
    assert octets.endswith(b"\x05READY" + b"\x0bSocket-Type\0\0\0\x06DEALER" + b"\x08Identity\0\0\0\x02me")


def test_the_identity_for_a_peer_of_2_0() -> None:
    end = connection_of(ZmtpOptions(type="DEALER", identity="me"), "client")
    # 15/ZMTP: revision 1, type 6 (ROUTER).
    end.receive_data(SIGNATURE + b"\x01\x06", 0.0)
    assert written(end) == b"\xff\0\0\0\0\0\0\0\3\x7f" + b"\x03\x05\0\2me"


def test_the_identity_for_a_peer_of_1_0_and_its_size_for_nobody_who_has_to_log_in() -> None:
    """13/ZMTP: a frame in the long form, whose first ten bytes are those of the greeting."""
    end = connection_of(ZmtpOptions(type="DEALER", identity="me"), "client")
    end.receive_data(b"\1\0", 0.0)
    assert written(end) == b"\xff\0\0\0\0\0\0\0\3\x7f" + b"me"
    end = connection_of(
        ZmtpOptions(type="DEALER", identity="me", mechanism="PLAIN", username="a", password="b"), "client"
    )
    assert written(end) == SIGNATURE


@pytest.mark.parametrize("signature", [SIGNATURE + b"\x01\x05", b""], ids=["2.0", "1.0"])
def test_a_router_waits_for_the_identity_of_an_old_peer(signature: bytes) -> None:
    end = connection_of(ZmtpOptions(type="ROUTER"), "server", lambda told: Naming(told.decode(), "net/peer"))
    if signature:
        end.receive_data(signature, 0.0)
        assert not end.ready_to_send()
    (batch,) = end.receive_data(b"\0\4anna\0\5hello" if signature else b"\x05\0anna\x06\0hello", 0.0)
    assert end.ready_to_send()
    assert (end.peer_name, batch.envelope.reply_to, batch.bodies) == ("anna", "net/peer", [b"hello"])


@pytest.mark.parametrize(
    "identity, name", [(b"anna", "net/anna"), (b"", "net/made up"), (None, "net/made up")]
)
def test_a_router_names_its_peer(identity: bytes | None, name: str) -> None:
    end = opened("ROUTER", b"DEALER", identity)
    (batch,) = end.receive_data(b"\1\0\0\5hello", 0.0)
    assert (batch.envelope.reply_to, batch.bodies) == (name, [(b"", b"hello")])
    end.send_batches([batch_of([b"back"], batch.envelope)], 0.0)
    assert written(end) == b"\0\4back"


def test_req_asks_one_question_at_a_time() -> None:
    end = opened("REQ", b"REP")
    assert end.may_send() == 1  # type: ignore[attr-defined]
    asked = Envelope(reply_to="somebody")
    end.send_batches([batch_of([b"question"], asked)], 0.0)
    assert written(end) == b"\1\0\0\x08question"
    assert end.may_send() == 0  # type: ignore[attr-defined]
    # The second answer was not asked for.
    (batch,) = end.receive_data(b"\1\0\0\6answer" * 2, 0.0)
    assert (batch.envelope, batch.bodies) == (asked, [b"answer"])
    assert end.may_send() == 1  # type: ignore[attr-defined]


def test_numbered_questions_may_be_answered_in_any_order() -> None:
    end = opened("REQ", b"ROUTER", correlate=True)
    first, second = Envelope(), Envelope()
    end.send_batches([batch_of([b"1"], first), batch_of([(b"2", b"3")], second, multipart=True)], 0.0)
    assert written(end) == b"\1\4\0\0\0\1\1\0\0\0011" + b"\1\4\0\0\0\2\1\0\1\0012\0\0013"
    batches = end.receive_data(
        b"\1\4\0\0\0\2\1\0\0\1b" + b"\1\4\0\0\0\1\1\0\0\1a" + b"\1\4\0\0\0\7\1\0\0\1c", 0.0
    )
    assert [(each.envelope, each.bodies) for each in batches] == [(second, [b"b"]), (first, [b"a"])]


def test_rep_takes_the_addresses_off_and_puts_them_back() -> None:
    end = opened("REP", b"DEALER")
    questions = {
        b"\1\0\0\1a": b"\1\0\0\1A",
        b"\1\1x\1\2yz\1\0\0\1a": b"\1\1x\1\2yz\1\0\0\1A",
        b"\1\0\1\1a\0\1b": b"\1\0\0\1A",
    }
    for question, answer in questions.items():
        (batch,) = end.receive_data(question, 0.0)
        end.send_batches([batch_of([b"A"], batch.envelope)], 0.0)
        assert written(end) == answer


def test_questions_with_the_same_addresses_are_one_batch() -> None:
    end = opened("REP", b"REQ")
    (batch,) = end.receive_data(b"".join(b"\1\0\0\1%d" % (n % 10) for n in range(100)), 0.0)
    assert batch.bodies == [b"%d" % (n % 10) for n in range(100)]


def test_correlation_ids_of_others_are_no_addresses() -> None:
    end = opened("REP", b"REQ")
    for theirs in ("abcd", "zmq:no hexadecimal", ""):
        end.send_batches([batch_of([b"A"], Envelope(properties={"correlation_id": theirs}))], 0.0)
        assert written(end) == b"\1\0\0\1A"


@pytest.mark.parametrize(
    "kind, peer, options, octets, complaint",
    [
        ("REP", b"DEALER", {}, b"\0\1a", "DEALER has to send that part itself"),
        ("REP", b"DEALER", {}, b"\1\1a\0\1b", "DEALER has to send that part itself"),
        # The empty part is the last one: there is no question behind it.
        ("REP", b"DEALER", {}, b"\1\1a\0\0", "DEALER has to send that part itself"),
        ("REQ", b"ROUTER", {}, b"\0\1a", "empty part"),
        ("REQ", b"ROUTER", {}, b"\1\1a\0\1b", "empty part"),
        ("REQ", b"ROUTER", {"correlate": True}, b"\1\0\0\1b", "number"),
        ("DEALER", b"ROUTER", {"relay": True}, b"\0\1b", "address"),
    ],
)
def test_without_addresses(kind: str, peer: bytes, options: Any, octets: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        opened(kind, peer, **options).receive_data(octets, 0.0)


def test_an_identity_that_is_too_long() -> None:
    end = connection_of(ZmtpOptions(type="ROUTER"), "server")
    body = b"\x05READY" + b"\x0bSocket-Type\0\0\0\x06DEALER" + b"\x08Identity\0\0\1\0" + bytes(256)
    with pytest.raises(RemoteProtocolError, match="identity of 256 bytes"):
        end.receive_data(greeting() + b"\6" + len(body).to_bytes(8, "big") + body, 0.0)


def test_relayed_questions_say_who_asks() -> None:
    end = opened("DEALER", b"REP", relay=True)
    end.send_batches([batch_of([(b"", b"q")], Envelope(reply_to="front/a"), multipart=True)], 0.0)
    assert written(end) == b"\1\7front/a\1\0\0\1q"
    (batch,) = end.receive_data(b"\1\7front/a\1\0\0\1r", 0.0)
    assert (batch.envelope.reply_to, batch.bodies) == ("front/a", [(b"", b"r")])


def test_one_part_without_addresses_is_no_multi_part_message() -> None:
    assert parts_of(opened("REP", b"REQ").receive_data(b"\1\0\0\1a", 0.0)) == [b"a"]
