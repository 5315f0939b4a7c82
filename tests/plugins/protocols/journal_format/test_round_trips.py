"""What is written is what is read: bodies of any buffers and parts, envelopes with anything that AMQP can say."""

from __future__ import annotations

import string
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from plugins.protocols.journal_format import tagged_json
from plugins.protocols.journal_format.envelopes import Source, fields_of, row_of
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import Bounds, JournalReader
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS, NEVER_NULL, ROWS, STORED
from tests.plugins.protocols.journal_format.conftest import FROM, write_segment
from tests.seeds import examples

TEXTS = st.text(st.characters(codec=None), max_size=20)  # with surrogates
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=20),
    st.binary(max_size=20).map(bytearray),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
TABLES = st.dictionaries(TEXTS | st.sampled_from(["$bytes", "$table", "$exact"]), VALUES, max_size=4)
ENVELOPES = st.builds(
    Envelope,
    key=TEXTS,
    exchange=TEXTS,
    reply_to=TEXTS,
    persistent=st.booleans(),
    priority=st.integers(0, 1 << 40),
    expiration=st.none() | st.integers(0, 1 << 70),
    properties=st.fixed_dictionaries(
        {},
        optional={
            "headers": TABLES,
            "content_type": TEXTS,
            "timestamp": SCALARS,
            "message_id": TEXTS,
            "$exact": VALUES,
            "x-of-another-protocol": VALUES,
        },
    ),
)
BODIES = st.binary(max_size=40)
BATCHES = st.one_of(
    st.builds(batch_of, st.lists(BODIES, min_size=1, max_size=5), ENVELOPES),
    st.builds(
        lambda bodies, envelope: batch_of(bodies, envelope, multipart=True),
        st.lists(st.lists(BODIES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=4),
        ENVELOPES,
    ),
)


def fields(envelope: Envelope) -> dict[str, Any]:
    return {
        name: dict(envelope.properties) if name == "properties" else getattr(envelope, name)
        for name in envelope.__struct_fields__
    }


@given(VALUES | TABLES)
def test_json_loses_nothing(value: Any) -> None:
    again = tagged_json.loads(tagged_json.dumps(value))
    assert again == value
    assert type(again) is type(value)


def test_json_that_only_looks_like_a_tag_and_numbers_that_json_has_not() -> None:
    for value in (
        {"$bytes": "no"},
        {"$table": []},
        {"a": {"$x": 1}},
        {1: "one"},
        float("inf"),
        Decimal("1.50"),
    ):
        assert tagged_json.loads(tagged_json.dumps(value)) == value
    assert tagged_json.dumps(float("nan")) == '{"$float":"nan"}'


@given(ENVELOPES)
def test_an_envelope_comes_back(envelope: Envelope) -> None:
    values = dict(zip([field.name for field in ENVELOPE_FIELDS], row_of(envelope), strict=True))
    assert fields(Envelope(**fields_of(values))) == fields(envelope)
    assert not any(values[name] is None for name in NEVER_NULL & values.keys())


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from([None, "zstd", "lz4"]),
)
def test_what_is_written_is_read(record_batches: list[list[Batch]], compression: str | None) -> None:
    with TemporaryDirectory() as directory:
        journal = Path(directory)
        end = write_segment(journal, record_batches, compression=compression)
        reader = JournalReader(journal)
        assert reader.bounds() == Bounds(0, end)
        rows = pa.Table.from_batches(reader.record_batches(), ROWS).to_pylist()
    wanted = [(batch, body) for batches in record_batches for batch in batches for body in batch.bodies]
    assert [row["offset"] for row in rows] == list(range(len(wanted)))
    for row, (batch, body) in zip(rows, wanted, strict=True):
        assert fields(Envelope(**fields_of(row))) == fields(batch.envelope)
        assert (row["engine"], row["route"]) == FROM
        if batch.multipart:
            assert row["parts"] == [len(part) for part in body]
            assert row["body"] == b"".join(body)
        else:
            assert (row["parts"], row["body"]) == (None, body)


def test_bodies_may_be_any_buffer(tmp_path: Path) -> None:
    bodies = [b"one", bytearray(b"two"), memoryview(b"a three")[2:], b""]
    write_segment(tmp_path, [[batch_of(bodies)]])
    (record_batch,) = JournalReader(tmp_path).record_batches(columns=["body"])
    assert record_batch.column("body").to_pylist() == [b"one", b"two", b"three", b""]


def test_a_segment_is_a_stream_that_any_arrow_reader_reads(tmp_path: Path) -> None:
    envelope = Envelope(key="weather.madrid", properties={"headers": {"n": 1}})
    write_segment(tmp_path, [[batch_of([b"a", b"b"], envelope)], [batch_of([b"c"], PLAIN)]])
    table = pa.ipc.open_stream(SegmentName(0, 0).data_path(tmp_path)).read_all()
    assert table.schema == STORED
    assert [row["key"] for row in table.column("envelope").to_pylist()] == ["weather.madrid"] * 2 + [""]
    assert table.column("body").to_pylist() == [b"a", b"b", b"c"]


def test_when_it_was_sent_is_what_the_sender_says() -> None:
    moment = datetime(2026, 11, 21, 12, tzinfo=UTC)
    at = [field.name for field in ENVELOPE_FIELDS].index("sent")
    for properties, micros in (
        ({"timestamp": moment}, 1795262400_000000),
        ({"timestamp": moment, "headers": {"timestamp_in_ms": 1795262400_123}}, 1795262400_123000),
        ({"headers": {"timestamp_in_ms": "soon"}}, None),
        ({"timestamp": 1 << 60}, None),
        ({}, None),
    ):
        assert row_of(Envelope(properties=properties), Source())[at] == micros


@pytest.mark.slow
def test_reading_imports_nothing_of_the_kernel() -> None:
    code = (
        "import sys, plugins.protocols.journal_format.reader;"
        "print([name for name in sys.modules if name.split('.')[0] in ('kernel', 'trio', 'msgspec', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_columns_prune(tmp_path: Path) -> None:
    write_segment(tmp_path, [[batch_of([b"a"], Envelope(key=string.ascii_letters))]])
    (record_batch,) = JournalReader(tmp_path).record_batches(columns=["key", "offset"])
    assert record_batch.schema.names == ["key", "offset"]
    assert record_batch.to_pylist() == [{"key": string.ascii_letters, "offset": 0}]
