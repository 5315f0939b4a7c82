"""Content properties: lazily read, sent on as they came, and the envelope made of them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import header
from pamqp.commands import Basic

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from plugins.protocols.amqp091.content import (
    ContentProperties,
    encode_properties,
    envelope_of,
    raw_properties,
)
from plugins.protocols.amqp091.errors import MalformedField
from tests.notes import for_each

EVERYTHING: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"a": True, "b": "c"},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c1",
    "reply_to": "answers",
    "expiration": "1500",
    "message_id": "m1",
    "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
    "type": "t",
    "user_id": "guest",
    "app_id": "tests",
    "cluster_id": "",
}


def as_pamqp(values: dict[str, Any]) -> bytes:
    renamed = {("message_type" if name == "type" else name): value for name, value in values.items()}
    renamed.pop("cluster_id", None)  # pamqp refuses the reserved one
    return header.ContentHeader(body_size=0, properties=Basic.Properties(**renamed)).marshal()[12:]


@for_each("name", [name for name in EVERYTHING if name != "cluster_id"])
def test_each_property_agrees_with_pamqp(name: str) -> None:
    values = {name: EVERYTHING[name]}
    raw = encode_properties(values)
    assert raw == as_pamqp(values)
    assert ContentProperties(raw) == values


def test_all_properties_make_an_envelope() -> None:
    raw = encode_properties(EVERYTHING)
    envelope = envelope_of("x", "k", raw)
    assert dict(envelope.properties) == EVERYTHING
    assert (envelope.exchange, envelope.key, envelope.reply_to) == ("x", "k", "answers")
    assert (envelope.persistent, envelope.priority, envelope.expiration) == (True, 5, 1500)
    assert raw_properties(envelope) is raw
    assert len(envelope.properties) == 14
    assert "expiration" in repr(envelope.properties)


def test_the_envelopes_own_fields_are_written() -> None:
    envelope = Envelope(persistent=True, priority=300, expiration=20, reply_to="r", properties={"topic": 1})
    assert ContentProperties(raw_properties(envelope)) == {
        "delivery_mode": 2,
        "priority": 255,
        "expiration": "20",
        "reply_to": "r",
    }


@for_each("text", ["abc", "-1", " 1", "1_0", "٣", "9" * 21])
def test_an_expiration_that_is_no_number_stays_in_the_properties(text: str) -> None:
    envelope = envelope_of("", "", encode_properties({"expiration": text}))
    assert envelope.expiration is None
    assert envelope.properties["expiration"] == text


@for_each("raw", [b"\0\1", b"\0\2", b"\x10\0", b"\0\0\0", b"\x80\0\5a", b"\x20\0\0\0\0\1V", b"\0\x40\0"])
def test_malformed_properties_are_refused_at_once(raw: bytes) -> None:
    with pytest.raises((MalformedField, IndexError, struct.error)):
        envelope_of("", "", raw)


def test_values_of_the_wrong_type_are_a_local_fault() -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties({"content_type": 5})
    with pytest.raises(LocalProtocolError):
        encode_properties({"priority": 256})
    assert ContentProperties.of({"correlation_id": b"ab", "expiration": 5}) == {
        "correlation_id": "ab",
        "expiration": "5",
    }


def test_a_change_leaves_the_octets_of_everything_else() -> None:
    """AMQP has ten types of numbers; those of what is not changed stay."""
    short, single = b"\x01as" + struct.pack(">h", 7), b"\x01bf" + struct.pack(">f", 1.1)
    table = short + single + b"\x04gone" + b"t\x01"
    raw = struct.pack(">HB", 0xA200, 1) + b"x" + struct.pack(">I", len(table)) + table + b"\x02me"
    before = envelope_of("", "key", raw).properties
    after = changed(
        before, {"reply_to": "you", "content_type": None}, headers={"a": "new"}, without=("gone",)
    )
    assert isinstance(after, ContentProperties)
    headers = single + b"\x01aS" + struct.pack(">I", 3) + b"new"
    assert after.raw == struct.pack(">HI", 0x2200, len(headers)) + headers + b"\x03you"
    assert dict(after) == dict(ContentProperties(after.raw))


def test_a_change_that_amqp_cannot_express_is_made_all_the_same() -> None:
    after = changed(ContentProperties.of({"type": "t"}), headers={"x": 1 << 64})
    assert dict(after) == {"type": "t", "headers": {"x": 1 << 64}}
