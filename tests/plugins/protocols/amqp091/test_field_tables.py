"""Field tables against pamqp, type by type and at their limits."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pamqp import decode as their_decode
from pamqp import encode as their_encode

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.field_tables import MAXIMUM_DEPTH, Timestamp, decode_table, encode_table
from tests.notes import for_each
from tests.seeds import examples


def table_of(value: bytes) -> bytes:
    return struct.pack(">I", len(value) + 2) + b"\x01n" + value


@for_each(
    "octets, value",
    [
        (b"t\x01", True),
        (b"t\x00", False),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfe", -2),
        (b"i\xff\xff\xff\xfe", 4294967294),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, 2**64 - 1),
        (b"f\x3f\x80\x00\x00", 1.0),
        (b"d\x3f\xf0" + bytes(6), 1.0),
        (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
        (b"D\x02\xff\xff\xff\x85", Decimal("-1.23")),
        (b"S\x00\x00\x00\x02ab", "ab"),
        (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"A\x00\x00\x00\x03t\x01V", [True, None]),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x01", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (b"T" + b"\xff" * 8, Timestamp(2**64 - 1)),
        (b"F\x00\x00\x00\x04\x01aVV"[:-1], {"a": None}),
        (b"V", None),
        (b"x\x00\x00\x00\x02ab", bytearray(b"ab")),
    ],
)
def test_each_type(octets: bytes, value: Any) -> None:
    if octets[:1] == b"F":
        octets = b"F\x00\x00\x00\x03\x01aV"
    table, end = decode_table(table_of(octets), 0)
    assert table == {"n": value}
    assert type(table["n"]) is type(value)
    assert end == len(octets) + 6
    # Written again, perhaps as a shorter type, it has the same value.
    assert decode_table(encode_table(table), 0)[0] == table


plain = (
    some.booleans()
    | some.integers(-(2**63), 2**63 - 1)
    | some.text(max_size=20)
    | some.floats(allow_nan=False, width=32)
    | some.none()
    | some.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2105, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
    )
)
names = some.text(some.characters(min_codepoint=32, max_codepoint=0x24F), max_size=20)
tables = some.dictionaries(
    names,
    some.recursive(
        plain, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(names, inner, max_size=3)
    ),
    max_size=5,
)


@settings(max_examples=examples(60), deadline=None)
@given(tables)
def test_tables_of_any_shape_agree_with_pamqp(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    assert decode_table(octets, 0) == (table, len(octets))
    assert their_decode.field_table(octets)[1] == table
    theirs = their_encode.field_table(table)
    assert decode_table(theirs, 0) == (table, len(theirs))


def nested(depth: int) -> bytes:
    octets = b"\0\0\0\0"
    for _ in range(depth):
        octets = table_of(b"F" + octets)
    return octets


def test_nesting_is_limited_in_both_directions() -> None:
    octets = nested(MAXIMUM_DEPTH)
    table = decode_table(octets, 0)[0]
    assert encode_table(table) == octets
    with pytest.raises(MalformedField):
        decode_table(nested(MAXIMUM_DEPTH + 1), 0)
    with pytest.raises(LocalProtocolError):
        encode_table({"n": {"n": table}})
    arrays = b""
    for _ in range(5000):
        arrays = b"A" + struct.pack(">I", len(arrays)) + arrays
    with pytest.raises(MalformedField):
        decode_table(table_of(arrays), 0)


@for_each(
    "octets",
    [
        b"\0\0\0\x05\x01nV",
        b"\0\0\0\x02\x01nV",
        table_of(b"?"),
        table_of(b"S\0\0\1\0a"),
        table_of(b"A\0\0\0\1I\0\0\0\0"),
        table_of(b"F\xff\xff\xff\xff"),
    ],
)
def test_a_malformed_table_is_refused(octets: bytes) -> None:
    with pytest.raises((MalformedField, IndexError, struct.error)):
        decode_table(octets, 0)


@for_each(
    "value", [object(), 2**64, -(2**63) - 1, Decimal("1e20"), Decimal("NaN"), datetime(1960, 1, 1), {1, 2}]
)
def test_what_amqp_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encode_table({"n": value})


def test_subclasses_are_written_as_what_they_are() -> None:
    class Level(int):
        pass

    assert encode_table({"n": Level(3)}) == encode_table({"n": 3})
    assert encode_table({"n": memoryview(b"ab")}) == encode_table({"n": bytearray(b"ab")})
