"""The types that are drafts in libzmq: bytes that libzmq 4.3.5 (of zeromq.js 6.8.0) has sent and taken."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.zmtp.options import ZmtpOptions
from tests.plugins.protocols.zmtp.conversation import SIGNATURE, greeting, make, plain, ready, told, written

READY_OF = {
    "CLIENT": "04 1c 05 5245414459 0b 536f636b65742d54797065 00000006 434c49454e54",
    "SERVER": "04 1c 05 5245414459 0b 536f636b65742d54797065 00000006 534552564552",
    "RADIO": "04 1b 05 5245414459 0b 536f636b65742d54797065 00000005 524144494f",
    "DISH": "04 1a 05 5245414459 0b 536f636b65742d54797065 00000004 44495348",
    "SCATTER": "04 1d 05 5245414459 0b 536f636b65742d54797065 00000007 53434154544552",
    "GATHER": "04 1c 05 5245414459 0b 536f636b65742d54797065 00000006 474154484552",
}
PEER = {
    "CLIENT": "SERVER",
    "SERVER": "CLIENT",
    "RADIO": "DISH",
    "DISH": "RADIO",
    "SCATTER": "GATHER",
    "GATHER": "SCATTER",
}


@pytest.mark.parametrize("kind", READY_OF)
def test_the_handshake_is_that_of_libzmq(kind: str) -> None:
    end = make(kind)
    end.receive_data(greeting(), 0)
    assert written(end) == greeting() + bytes.fromhex(READY_OF[kind])
    end.receive_data(bytes.fromhex(READY_OF[PEER[kind]]), 0)
    assert end.ready_to_send()


@pytest.mark.parametrize("kind", READY_OF)
def test_other_types_and_old_versions_are_refused(kind: str) -> None:
    end = make(kind)
    with pytest.raises(RemoteProtocolError, match=f"{kind} needs {PEER[kind]}"):
        end.receive_data(greeting() + ready(b"PAIR"), 0)
    for old in (SIGNATURE + b"\1\5", b"\1\0"):
        with pytest.raises(RemoteProtocolError, match=f"has no type {kind}"):
            make(kind).receive_data(old, 0)


def test_a_radio_sends_the_group_and_the_body() -> None:
    radio = told("RADIO", b"DISH")

    def sent(group: str, body: Any = b"hello") -> bytes:
        radio.send_batches([batch_of([body], Envelope(key=group), multipart=isinstance(body, tuple))], 0)
        return written(radio)

    assert sent("tea") == b""
    radio.receive_data(b"\4\x08\4JOINtea" + b"\4\5\4JOIN", 0)
    assert sent("tea") == b"\1\3tea\0\5hello"
    assert sent("") == b"\1\0\0\5hello"
    assert sent("te") == sent("teapot") == b""
    # A message with the octets of a subscription means nothing to libzmq's RADIO, either.
    radio.receive_data(b"\0\4\1pot" + b"\4\x09\5LEAVEtea", 0)
    assert sent("tea") == sent("pot") == b""
    # It counts: joined twice and left once.
    radio.receive_data(b"\4\x08\4JOINtea" * 2, 0)
    assert sent("tea") == b"\1\3tea\0\5hello"
    radio.receive_data(b"\4\x09\5LEAVEtea", 0)
    assert sent("tea") == b"\1\3tea\0\5hello"
    radio.receive_data(b"\4\xff\4JOIN" + b"z" * 250, 0)
    assert sent("z" * 250) == b"\1\xfa" + b"z" * 250 + b"\0\5hello"
    assert sent("tea", (b"a", b"b")) == b""
    assert [each.reason for each in radio.refused] == ["RADIO sends messages of one part"]
    assert radio.subscriptions == [
        ("subscribe", "prefix:tea"),
        ("subscribe", "prefix:"),
        ("unsubscribe", "prefix:tea"),
        ("subscribe", "prefix:tea"),
        ("subscribe", "prefix:" + "z" * 250),
    ]


def test_a_dish_joins_and_takes_what_it_has_joined() -> None:
    dish = told("DISH", b"RADIO")
    dish.subscribe("prefix:xxx")
    assert written(dish) == b"\4\x08\4JOINxxx"
    dish.subscribe("prefix:" + "y" * 255)
    assert written(dish) == b"\6\0\0\0\0\0\0\1\4" + b"\4JOIN" + b"y" * 255
    dish.subscribe("prefix:")
    assert written(dish) == b"\4\5\4JOIN"
    dish.unsubscribe("prefix:")
    assert written(dish) == b"\4\6\5LEAVE"
    octets = b"\1\3xxx\0\4body" + b"\1\2no\0\6nobody" + b"\1\4xxxx\0\1a" + b"\1\3xxx\0\0"
    assert plain(dish.receive_data(octets, 0)) == [(b"body", "xxx"), (b"", "xxx")]
    for wrong in (b"\0\3xxx", b"\1\3xxx\1\1a\0\1b"):
        with pytest.raises(RemoteProtocolError, match="a message without a group"):
            told("DISH", b"RADIO", subscribe=("xxx",)).receive_data(wrong, 0)
    with pytest.raises(RemoteProtocolError, match="256 bytes; it has 255 at most"):
        told("RADIO", b"DISH").receive_data(b"\6\0\0\0\0\0\0\1\5" + b"\4JOIN" + b"y" * 256, 0)
    with pytest.raises(RemoteProtocolError, match="a subscription at DISH"):
        dish.receive_data(b"\4\x08\4JOINtea", 0)


@pytest.mark.parametrize("kind", ["CLIENT", "SERVER", "GATHER"])
def test_messages_of_several_parts_are_dropped(kind: str) -> None:
    end = told(kind, PEER[kind].encode())
    assert plain(end.receive_data(b"\1\1a\0\1b" + b"\0\6single", 0)) == [(b"single", "")]
    if kind != "GATHER":
        end.send_batches([batch_of([b"re"]), batch_of([(b"a", b"b")], multipart=True)], 0)
        assert written(end) == b"\0\2re"
        assert [each.reason for each in end.refused] == [f"{kind} sends messages of one part"]


def test_options_of_groups() -> None:
    for options, complaint in (
        ({"type": "RADIO", "subscribe": ("a",)}, "RADIO does not subscribe"),
        ({"type": "DISH", "key_part": False}, "the group of a message is its key"),
        ({"type": "DISH", "subscribe": ("ä" * 128,)}, "at most 255 bytes"),
        ({"type": "RADIO", "hello": ""}, "does not send any"),
        ({"type": "SERVER", "identity": "a"}, "SERVER tells none"),
    ):
        with pytest.raises(ValueError, match=complaint):
            ZmtpOptions(**options)  # type: ignore[arg-type]
