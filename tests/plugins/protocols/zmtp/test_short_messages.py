"""``encode_one`` and ``decode_one``: the same bytes as on the usual way, and None where that has to be taken."""

from __future__ import annotations

import pytest

from kernel.contracts.message import PLAIN, batch_of
from kernel.contracts.protocol import ShortMessages
from plugins.protocols.zmtp.connection import ZmtpConnection
from tests.plugins.protocols.zmtp.conversation import make, opened, told, written

SIZES = (0, 1, 255, 256, 4000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kinds", [("REQ", "REP"), ("DEALER", "DEALER"), ("PAIR", "PAIR")], ids="-".join)
def test_a_short_message_has_the_bytes_of_the_usual_way(kinds: tuple[str, str], size: int) -> None:
    body = bytes(size)
    mine, its = opened(*kinds)
    short = mine.encode_one(body)
    assert short is not None
    mine.send_batches([batch_of([body])], 0)
    assert short == written(mine)
    assert its.decode_one(short) == body
    # Nothing has changed: the usual way decodes it, too.
    (batch,) = its.receive_data(short, 0)
    assert list(batch.bodies) == [body]
    back = its.encode_one(body)
    assert back is not None
    its.send_batches([batch.under(batch.envelope)], 0)
    assert back == written(its)
    assert mine.decode_one(back) == body


def test_they_are_what_a_lease_needs() -> None:
    assert isinstance(opened("REQ", "REP")[0], ShortMessages)


def test_a_req_has_one_question_and_takes_nothing_else_for_an_answer() -> None:
    req, rep = opened("REQ", "REP")
    answer = rep.encode_one(b"nobody has asked")
    assert answer is not None
    assert req.decode_one(answer) is None
    assert req.addresses is not None
    req.addresses.asked = PLAIN
    assert req.encode_one(b"a second question") is None
    assert req.addresses.may_send() == 0
    assert req.decode_one(answer) == b"nobody has asked"
    (batch,) = req.receive_data(answer, 0)
    assert batch.envelope is PLAIN
    assert req.addresses.may_send() == 1


def test_questions_of_one_peer_have_one_envelope_also_behind_such_with_addresses() -> None:
    req, rep = opened("REQ", "REP")
    question = req.encode_one(b"q")
    assert question is not None
    (first,) = rep.receive_data(question, 0)
    (hop,) = rep.receive_data(b"\1\3hop" + question, 0)
    (second,) = rep.receive_data(question, 0)
    assert rep.addresses is not None
    assert first.envelope is second.envelope is rep.addresses.envelope
    assert hop.envelope is not first.envelope
    # The answer to each goes where it came from, in any order.
    rep.send_batches([batch_of([b"a"], hop.envelope), batch_of([b"b"], first.envelope)], 0)
    assert written(rep) == b"\1\3hop\1\0\0\1a\1\0\0\1b"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\2x",
        b"\0\1xy",
        b"\1\1x",
        b"\1\0\0\1x",
        b"\4\5\4PING",
        b"\2" + (5).to_bytes(8, "big") + b"1234",
        b"\2" + (3).to_bytes(8, "big")[:7],
        b"\x08\1x",
        b"\0\1x\0\1y",
    ],
)
def test_what_is_not_one_message_of_one_part_takes_the_usual_way(data: bytes) -> None:
    assert opened("PAIR", "PAIR")[1].decode_one(data) is None


def test_the_rest_of_a_message_takes_the_usual_way() -> None:
    for beginning in (b"\0\5ab", b"\1\1a", b"\2" + (100_000).to_bytes(8, "big") + b"a"):
        pair = opened("PAIR", "PAIR")[1]
        pair.receive_data(beginning, 0)
        assert pair.decode_one(b"\0\1x") is None


def test_limits_hold() -> None:
    assert opened("PAIR", "PAIR", max_message=10)[1].decode_one(b"\0\x0b" + bytes(11)) is None
    assert opened("PAIR", "PAIR")[0].encode_one(bytes(100_000)) is None


@pytest.mark.parametrize("kinds", [("PUSH", "PULL"), ("PUB", "SUB"), ("XPUB", "XSUB"), ("ROUTER", "DEALER")])
def test_other_types_have_no_short_way(kinds: tuple[str, str]) -> None:
    mine = opened(*kinds)[0]
    assert (mine.encode_one(b"x"), mine.decode_one(b"\0\1x")) == (None, None)


def _not_open() -> ZmtpConnection:
    return make("PAIR", "client")


def test_there_is_none_before_the_handshake_and_with_numbered_questions() -> None:
    assert (_not_open().encode_one(b"x"), _not_open().decode_one(b"\0\1x")) == (None, None)
    assert told("REQ", b"REP", correlate=True).encode_one(b"x") is None
