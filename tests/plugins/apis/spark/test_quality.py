"""Data quality over bodies whose bytes were written by hand, after the formats' specifications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.apis.spark.jobs import quality
from plugins.apis.spark.jobs.options import QualityOptions
from tests.plugins.apis.spark.journals import Journal

pytestmark = pytest.mark.slow

SCHEMA = "number bigint not null, name string"
CHECKS = {"positive": "number > 0"}


def _violations(spark: Any, journal: Journal, **options: Any) -> list[tuple[int, str]]:
    feed = spark.read.format("kernel").load(str(journal))
    found = quality.violations(feed, QualityOptions(schema=SCHEMA, checks=CHECKS, **options))
    return sorted((row["offset"], row["check"]) for row in found.collect())


def test_json_is_held_to_its_schema_and_checks(spark: Any, journal: Journal) -> None:
    for body in (
        b'{"number": 1, "name": "a", "more": true}',
        b'{"number": 1}',  # a field that may be missing
        b'{"name": "a"}',
        b'{"number": "one"}',
        b'{"number": -1, "name": "a"}',
        b"no JSON",
    ):
        journal.append([body], Envelope(key="k"))
    assert _violations(spark, journal) == [
        (2, "number is missing"),
        (3, "unreadable"),
        (4, "positive"),
        (5, "unreadable"),
    ]
    feed = spark.read.format("kernel").load(str(journal))
    report = quality.report(feed, QualityOptions(schema=SCHEMA, checks=CHECKS))
    assert {figure.label: figure.value for figure in report.figures} == {
        "messages": 6,
        "good": pytest.approx(2 / 6),
        "bad": 4,
    }
    assert [row[:3] for row in report.parts[1].rows] == [
        ("unreadable", 2, 3),
        ("number is missing", 1, 2),
        ("positive", 1, 4),
    ]


def test_fields_may_be_called_like_our_columns_and_an_empty_body_is_no_json(
    spark: Any, journal: Journal
) -> None:
    for body in (b'{"text": "a", "feed": 1, "a.b": 2, "key": "x"}', b"{}", b"", b" "):
        journal.append([body], Envelope(key="k"))
    fields = "text string not null, feed int, `a.b` int not null, `_corrupt` int, key string, value int, `a``b` int not null"
    found = quality.violations(
        spark.read.format("kernel").load(str(journal)),
        QualityOptions(schema=fields, checks={"odd": "feed = 2"}),
    )
    assert sorted((row["offset"], row["key"], row["check"]) for row in found.collect()) == [
        (0, "k", "a`b is missing"),
        (0, "k", "odd"),
        (1, "k", "a.b is missing"),
        (1, "k", "a`b is missing"),
        (1, "k", "text is missing"),
        (2, "k", "unreadable"),
        (3, "k", "unreadable"),
    ]


def test_what_stands_behind_a_whole_value_makes_a_body_unreadable(spark: Any, journal: Journal) -> None:
    value = b'{"number": 1, "name": "]}, x"}'
    good = (value, b" " + value + b"\n\t ", b'{"number": 1, "more": NaN, "text": {"end": 2}}')
    behind = (b" x", b"]", b"}", b",", b",{}", b',"x":3', b'],"x":[3', b'},"x":{"y":3', value, b',"end":1} x')
    for body in (*good, *(value + rest for rest in behind)):
        journal.append([body])
    assert _violations(spark, journal) == [(3 + number, "unreadable") for number in range(len(behind))]


AVRO = """{"type": "record", "name": "Place", "fields": [
    {"name": "number", "type": "long"}, {"name": "name", "type": "string"}]}"""


def test_avro_is_read_by_its_schema(spark: Any, journal: Journal, tmp_path: Path) -> None:
    """Avro 1.12, Binary Encoding: a long is zig-zag, a string its length and its bytes."""
    (tmp_path / "place.avsc").write_text(AVRO)
    for body in (
        b"\x0a\x06PRG",
        b"\x09\x06PRG",
        b"\x0a\x06PR",
        b"\x0a\x06PRG and more",
    ):  # 5, -5, cut off, too long
        journal.append([body])
    found = _violations(spark, journal, format="avro", schema_file=str(tmp_path / "place.avsc"))
    assert found == [(1, "positive"), (2, "unreadable"), (3, "unreadable")]


def test_protobuf_is_read_by_its_descriptors(spark: Any, journal: Journal, tmp_path: Path) -> None:
    """Protocol Buffers, Encoding: field 1 as a varint has the tag 08, field 2 with a length the tag 12."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="place.proto", package="places", syntax="proto3")
    message = file.message_type.add(name="Place")
    for number, (name, kind) in enumerate((("number", 3), ("name", 9)), 1):  # int64, string
        message.field.add(name=name, number=number, type=kind, label=1)
    described = tmp_path / "places.desc"
    described.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    for body in (b"\x08\x05\x12\x03PRG", b"\x12\x03PRG", b"\x08\x05\x12\x09PRG"):
        journal.append([body])
    found = _violations(spark, journal, format="protobuf", schema_file=str(described), message="places.Place")
    assert found == [(1, "number is missing"), (2, "unreadable")]
