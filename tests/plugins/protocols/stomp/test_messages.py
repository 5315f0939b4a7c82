"""Messages as MESSAGE frames, and what SEND frames say of a message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kernel.contracts.message import Envelope
from kernel.contracts.timestamp import Timestamp
from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.frames import encode_frame, encode_receipts
from plugins.protocols.stomp.message_template import COPY_LIMIT, MessageTemplate
from plugins.protocols.stomp.properties import envelope_of, headers_of
from plugins.protocols.stomp.versions import Version
from tests.notes import for_each
from tests.plugins.protocols.stomp.reading import plain, read, reader_of

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

EVERYTHING = {
    "content-type": "text/plain",
    "content-encoding": "gzip",
    "correlation-id": "c",
    "amqp-message-id": "m",
    "type": "t",
    "user-id": "guest",
    "app-id": "a",
    "persistent": "true",
    "priority": "7",
    "expiration": "1000",
    "reply-to": "/queue/replies",
    "timestamp": "1767323045",
    "x-own": "own",
}


def test_headers_of_a_send_are_properties() -> None:
    headers = {**EVERYTHING, "destination": "/queue/a", "ack": "1", "subscription": "2"}
    envelope = envelope_of("", "a", headers)
    assert (envelope.exchange, envelope.key, envelope.reply_to) == ("", "a", "/queue/replies")
    assert (envelope.persistent, envelope.priority, envelope.expiration) == (True, 7, 1000)
    assert envelope.properties == {
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "correlation_id": "c",
        "message_id": "m",
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "timestamp": MOMENT,
        "headers": {"x-own": "own"},
    }
    assert dict(headers_of(envelope)) == EVERYTHING


def test_a_plain_send_has_nothing() -> None:
    envelope = envelope_of("x", "k", {"destination": "/exchange/x/k"})
    assert envelope.properties == {}
    assert not envelope.persistent
    assert envelope.expiration is None
    assert list(headers_of(envelope)) == []


@for_each(
    "name, value",
    [
        ("priority", "256"),
        ("priority", "-1"),
        ("priority", "high"),
        ("priority", "\u0663"),
        ("expiration", ""),
        ("expiration", "1.5"),
        ("timestamp", "now"),
        ("timestamp", "9" * 30),
    ],
)
def test_a_number_that_is_none_is_a_fault(name: str, value: str) -> None:
    with pytest.raises(Fault, match=name):
        envelope_of("", "a", {name: value})


@for_each(
    "value, text",
    [
        ("text", "text"),
        (5, "5"),
        (-(2**70), str(-(2**70))),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        (MOMENT, "2026-01-02T03:04:05+00:00"),
        (Timestamp(253402300800), "253402300800"),
        (None, None),
        ([1, 2], None),
        ({"a": 1}, None),
        (b"octets", None),
    ],
)
def test_a_header_of_a_message_is_text_or_dropped(value: Any, text: str | None) -> None:
    envelope = Envelope(properties={"headers": {"x": value}})
    assert dict(headers_of(envelope)).get("x") == text


def test_a_message_cannot_bring_headers_of_the_frame() -> None:
    names = ("destination", "message-id", "subscription", "ack", "content-length", "receipt", "priority")
    envelope = Envelope(properties={"headers": dict.fromkeys(names, "1")})
    assert list(headers_of(envelope)) == []


def test_of_repeated_user_properties_the_last_is_carried() -> None:
    properties = {"user_properties": (("b", "1"), ("a", "2"), ("b", "3"), ("c", "4")), "headers": {"c": "5"}}
    assert dict(headers_of(Envelope(properties=properties))) == {"a": "2", "b": "3", "c": "5"}


@for_each("pairs", [5, "text", [5], [("a",)], [([], "b")], [(b"a", "b")], [("a", "b", "c")]])
def test_user_properties_that_are_none_are_left_out(pairs: Any) -> None:
    assert list(headers_of(Envelope(properties={"user_properties": pairs, "headers": pairs}))) == []


@pytest.mark.parametrize("moment", [-1, 2**64, "now", datetime(1960, 1, 1, tzinfo=UTC)])
def test_a_time_that_is_none_cannot_be_carried(moment: Any) -> None:
    with pytest.raises(CannotCarry, match="timestamp"):
        list(headers_of(Envelope(properties={"timestamp": moment})))


def test_binary_correlation_data_that_is_text_is_carried() -> None:
    assert dict(headers_of(Envelope(properties={"correlation_id": b"abc"}))) == {"correlation-id": "abc"}
    with pytest.raises(CannotCarry, match="correlation_id"):
        list(headers_of(Envelope(properties={"correlation_id": b"\xff"})))


@for_each(
    "version, headers",
    [
        (Version.V1_0, {"a": "b\nc"}),
        (Version.V1_0, {"a:b": "c"}),
        (Version.V1_1, {"a": "b\r"}),
        (Version.V1_2, {"a": "b\0"}),
        (Version.V1_2, {"a\0": "b"}),
        (Version.V1_2, {"": "b"}),
        (Version.V1_2, {"a": "\udcff"}),
    ],
)
def test_what_has_no_form_is_refused_before_anything_is_encoded(
    version: Version, headers: dict[str, str]
) -> None:
    with pytest.raises(CannotCarry):
        MessageTemplate([], "id", headers.items(), version, ack=False)
    with pytest.raises(CannotCarry):
        encode_frame("MESSAGE", headers.items(), version)


def template(*, ack: bool) -> MessageTemplate:
    return MessageTemplate(
        [("subscription", "100%"), ("destination", "/queue/50%25")],
        "T_100%@@s@@",
        [("x", "%d")],
        Version.V1_2,
        ack=ack,
    )


def test_a_message_frame_in_octets() -> None:
    assert b"".join(template(ack=True).encode(7, [b"hello", b"", b"a\0b"], 8)) == (
        b"MESSAGE\nsubscription:100%\ndestination:/queue/50%25\nmessage-id:T_100%@@s@@7\nack:T_100%@@s@@7\n"
        b"x:%d\ncontent-length:5\n\nhello\0\n"
        b"MESSAGE\nsubscription:100%\ndestination:/queue/50%25\nmessage-id:T_100%@@s@@8\nack:T_100%@@s@@8\n"
        b"x:%d\ncontent-length:0\n\n\0\n"
        b"MESSAGE\nsubscription:100%\ndestination:/queue/50%25\nmessage-id:T_100%@@s@@9\nack:T_100%@@s@@9\n"
        b"x:%d\ncontent-length:3\n\na\0b\0\n"
    )


@for_each("ack", [False, True])
@for_each("size", [0, 5, COPY_LIMIT, COPY_LIMIT + 1])
def test_message_frames_are_read_as_they_were_written(ack: bool, size: int) -> None:
    bodies: list[Any] = [b"x" * size, memoryview(b"y" * size), bytearray(b"z" * size), b"short"]
    data = b"".join(template(ack=ack).encode(1, bodies, 3 * size + 5))
    found = plain(read(reader_of(), [data]))
    assert [body for _, _, body, _, _ in found] == [bytes(body) for body in bodies]
    for number, (command, headers, _, _, _) in enumerate(found, 1):
        identifier = f"T_100%@@s@@{number}"
        assert command == "MESSAGE"
        assert headers == {
            "subscription": "100%",
            "destination": "/queue/50%25",
            "message-id": identifier,
            "x": "%d",
            **({"ack": identifier} if ack else {}),
        }


def test_large_bodies_are_not_copied() -> None:
    body = b"x" * (COPY_LIMIT + 1)
    assert any(part is body for part in template(ack=False).encode(1, [body], len(body)))


@pytest.mark.parametrize("version", list(Version))
def test_receipts_in_octets(version: Version) -> None:
    escaped = {Version.V1_0: "c:\\\r.", Version.V1_1: "c\\c\\\\\r.", Version.V1_2: "c\\c\\\\\\r."}[version]
    data = encode_receipts(["a1", "message-12345", "\u00fc", "c:\\\r."], version)
    parts = ["a1", "message-12345", "\u00fc", escaped]
    assert data == "".join(f"RECEIPT\nreceipt-id:{part}\n\n\0\n" for part in parts).encode()
