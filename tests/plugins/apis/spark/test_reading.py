"""The readers as plain objects: what Spark calls, without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from kernel.contracts.message import Envelope, batch_of
from plugins.apis.spark import stream_reader
from plugins.apis.spark.batch_reader import BatchReader, PushdownReader, Rows
from plugins.apis.spark.columns import SCHEMA, WITH_JOURNAL, wanted_columns
from plugins.apis.spark.errors import DataLost, SparkOptionError
from plugins.apis.spark.options import ReadOptions, WriteOptions, local_path
from plugins.apis.spark.planning import ranges
from plugins.apis.spark.rows import BATCH_ROWS
from plugins.apis.spark.several_streams import SeveralStreams
from plugins.apis.spark.source import KernelDataSource
from plugins.apis.spark.stream_reader import StreamReader
from plugins.engines.journal.positions import positions
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.errors import Damaged, OutOfRange
from plugins.protocols.journal_format.names import SegmentName
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import ROWS
from plugins.protocols.journal_format.segment import Segment
from tests.notes import for_each
from tests.plugins.apis.spark.journals import EPOCH, SOURCE, Journal

ALL = SCHEMA
NARROW = StructType([SCHEMA["body"], SCHEMA["offset"]])


def _options(journal: Journal | Path, **options: object) -> ReadOptions:
    return ReadOptions.parse({"path": str(journal), **{name: str(value) for name, value in options.items()}})


def _offsets(reader: Any, tasks: Iterable[InputPartition]) -> list[int]:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def _read(journal: Journal, **options: object) -> list[int]:
    reader = BatchReader(ALL, _options(journal, **options))
    return _offsets(reader, reader.partitions())


# ------------------------------------------------------------------ several journals


@pytest.fixture
def shops(tmp_path: Path) -> dict[str, Journal]:
    """Two journals with different rows, beside a directory and a file that are none."""
    made = {name: Journal(tmp_path / f"shop-{name}") for name in ("a", "b")}
    made["a"].numbers(20)
    made["b"].numbers(5)
    (tmp_path / "shop-none").mkdir()
    (tmp_path / "shop.txt").write_text("no journal")
    return made


def _with_journals(reader: BatchReader) -> list[tuple[str, int]]:
    """The journal and the offset of each row."""
    rows = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [
        (Path(journal).name, offset)
        for batch in rows
        for journal, offset in zip(
            batch.column("journal").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


EVERY = [("shop-a", offset) for offset in range(20)] + [("shop-b", offset) for offset in range(5)]


def test_a_pattern_makes_one_table_of_several_journals(shops: dict[str, Journal], tmp_path: Path) -> None:
    options = {"path": f"{tmp_path}/shop*", "rowsPerTask": "7"}
    schema = KernelDataSource(options).schema()
    assert schema.names == [*ALL.names, "journal"]
    reader = KernelDataSource(options).reader(schema)
    assert _with_journals(reader) == EVERY
    (batch, *_) = reader.read(reader.partitions()[0])
    assert batch.schema == to_arrow_schema(schema, timezone="UTC")
    # The column may be asked for with one journal, too, and anywhere among the others.
    named = {"path": str(tmp_path / "shop-b"), "columns": "journal, offset"}
    source = KernelDataSource(named)
    assert source.schema().names == ["journal", "offset"]
    assert _with_journals(source.reader(source.schema())) == EVERY[20:]


def test_several_paths_make_one_table(shops: dict[str, Journal], tmp_path: Path) -> None:
    paths = [str(tmp_path / "shop-a"), f"{tmp_path}/shop-?", f"file:{tmp_path}/shop-b"]
    source = KernelDataSource({"paths": json.dumps(paths), "columns": "offset,journal"})
    assert _with_journals(source.reader(source.schema())) == EVERY


def test_a_count_by_journal_needs_no_other_column(shops: dict[str, Journal], tmp_path: Path) -> None:
    source = KernelDataSource({"path": f"{tmp_path}/shop*", "columns": "journal"})
    reader = source.reader(source.schema())
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert [batch.schema.names for batch in batches] == [["journal"]] * len(batches)
    assert sum(batch.num_rows for batch in batches) == 25


def test_each_journal_is_read_from_the_same_moment(shops: dict[str, Journal], tmp_path: Path) -> None:
    moment = EPOCH + 500
    options = {"path": f"{tmp_path}/shop*", "startingTimestamp": str(moment), "columns": "ts,offset,journal"}
    source = KernelDataSource(options)
    reader = source.reader(source.schema())
    alone = {name: _read(each, startingTimestamp=moment) for name, each in shops.items()}
    assert _with_journals(reader) == [(f"shop-{name}", offset) for name in alone for offset in alone[name]]
    assert 0 < sum(map(len, alone.values())) < 25


@pytest.mark.parametrize(
    "options, said",
    [
        ({"path": "none*"}, "the pattern matches nothing"),
        ({"path": "shop-n*"}, "the pattern matches 1 files and directories, none of which is a journal"),
        ({"paths": '["shop-a", "shop-none"]'}, "no journal at .*shop-none: the directory has no segment"),
        ({"paths": "shop-a"}, "the option paths is to be a JSON list"),
        ({"path": "shop*", "startingOffset": "3"}, "each has offsets of its own: use startingTimestamp"),
        ({"path": "shop-a", "paths": '["shop-b"]'}, "give one of the options path"),
    ],
)
def test_several_journals_that_cannot_be_are_named(
    shops: dict[str, Journal],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SparkOptionError, match=said):
        KernelDataSource(options).reader(ALL)


def test_a_directory_may_have_the_name_of_a_pattern(tmp_path: Path) -> None:
    odd = Journal(tmp_path / "odd[1]")
    odd.numbers(3)
    assert _read(odd, startingOffset=1) == [1, 2]


# ------------------------------------------------------------------ what is read


def test_every_row_is_read_once_and_in_order_whatever_the_tasks(journal: Journal) -> None:
    journal.numbers(95, batch=10)
    for rows in (1, 7, 10, 94, 95, 1000):
        assert _read(journal, rowsPerTask=rows) == list(range(95))


def test_rows_have_the_arrow_schema_that_spark_asks_for(journal: Journal) -> None:
    journal.append([b"x"], Envelope(key="a.b", properties={"headers": {"n": 1}}))
    for schema in (ALL, NARROW):
        reader = BatchReader(schema, _options(journal))
        (batch,) = reader.read(reader.partitions()[0])
        assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)


@pytest.mark.parametrize("nullable", [True, False])
def test_a_column_that_is_never_null_may_be_asked_for_either_way(journal: Journal, nullable: bool) -> None:
    journal.append([b"x"])
    schema = StructType([StructField("key", StringType(), nullable)])
    reader = BatchReader(schema, _options(journal))
    (batch,) = reader.read(reader.partitions()[0])
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)


def test_a_column_that_may_be_null_cannot_be_asked_for_as_not_null() -> None:
    with pytest.raises(SparkOptionError, match="`headers string` may be null: leave out NOT NULL"):
        wanted_columns(StructType([StructField("headers", StringType(), False)]))


def test_columns_that_are_not_asked_for_are_not_read(journal: Journal) -> None:
    journal.append([b"x", b"y"])
    reader = BatchReader(NARROW, _options(journal))
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.to_pylist() == [{"body": b"x", "offset": 0}, {"body": b"y", "offset": 1}]


@pytest.mark.parametrize(
    "schema,columns,rows,said",
    [
        (ALL, "", 20, True),
        (ALL, ",".join(ROWS.names), 20, False),
        (NARROW, "", 20, False),
        (ALL, "", 19, False),
    ],
)
def test_a_large_read_of_all_columns_that_nobody_has_named_says_so(
    journal: Journal,
    schema: StructType,
    columns: str,
    rows: int,
    said: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("plugins.apis.spark.batch_reader.MANY_ROWS", 20)
    journal.numbers(rows)
    BatchReader(schema, _options(journal, columns=columns)).partitions()
    assert (f"all 16 columns of {rows} rows are read" in caplog.text) == said


@pytest.mark.parametrize("name", ["topic", "offset", "body"])
def test_a_column_that_a_feed_has_not_is_refused_with_those_that_it_has(name: str) -> None:
    with pytest.raises(SparkOptionError, match=rf"no column `{name} string`.*offset bigint, ts timestamp"):
        wanted_columns(StructType([StructField(name, StringType())]))


def test_small_commits_are_put_together_and_large_ones_left_alone(journal: Journal) -> None:
    journal.numbers(25_000, batch=100)
    reader = BatchReader(NARROW, _options(journal))
    sizes = [batch.num_rows for batch in reader.read(Rows(0, 25_000))]
    assert sizes == [BATCH_ROWS, BATCH_ROWS, 5000]


def test_rows_keep_their_envelopes_when_commits_are_put_together(journal: Journal) -> None:
    keys = [key for _ in range(30) for key in ("a", "b", "c")]
    for key in keys:
        journal.append([key.encode()] * 2, Envelope(key=key, reply_to="back" if key == "b" else ""))
    columns = StructType([SCHEMA[name] for name in ("reply_to", "body", "key")])
    reader = BatchReader(columns, _options(journal))
    (batch,) = reader.read(Rows(1, 179))
    told = [(row["key"], row["body"], row["reply_to"]) for row in batch.to_pylist()]
    wanted = [(key, key.encode(), "back" if key == "b" else None) for key in keys for _ in range(2)]
    assert told == wanted[1:179]


@pytest.mark.slow
def test_large_bodies_bound_a_batch_by_its_bytes(journal: Journal) -> None:
    for _ in range(5):
        journal.append([bytes(6 << 20)])
    reader = BatchReader(NARROW, _options(journal))
    assert [batch.num_rows for batch in reader.read(Rows(0, 5))] == [2, 2, 1]


def test_an_empty_journal_has_no_tasks_and_spark_may_invent_one(journal: Journal) -> None:
    reader = BatchReader(ALL, _options(journal))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_path_without_a_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkOptionError, match=rf"no journal at {tmp_path}/none"):
        BatchReader(ALL, _options(tmp_path / "none"))


def test_a_directory_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").touch()
    for make in (lambda o: BatchReader(ALL, o), lambda o: StreamReader(ALL, o)):
        with pytest.raises(
            SparkOptionError, match=rf"no journal at {tmp_path}: the directory has no segment"
        ):
            make(_options(tmp_path))


@for_each("count,rows", [(0, 5), (1, 5), (10, 3), (10, 10), (11, 10), (7, 1)])
def test_tasks_are_even_and_none_is_too_large(count: int, rows: int) -> None:
    pieces = ranges(100, 100 + count, rows)
    assert [offset for first, end in pieces for offset in range(first, end)] == list(range(100, 100 + count))
    sizes = [end - first for first, end in pieces]
    assert all(size <= rows for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count,tasks", [(99_999, 1), (125_000, 2), (999_999, 4), (5_000_000, 5)])
def test_what_is_worth_it_is_divided_among_several_processors(count: int, tasks: int) -> None:
    assert len(ranges(0, count, 1_000_000)) == tasks


# ------------------------------------------------------------------ from where to where


def test_offsets_bound_what_is_read(journal: Journal) -> None:
    journal.numbers(50)
    assert _read(journal, startingOffset=13, endingOffset=17) == [13, 14, 15, 16]
    assert _read(journal, startingOffset="latest") == []
    assert _read(journal, startingOffset=48, endingOffset=1000) == [48, 49]
    assert _read(journal, startingOffset=30, endingOffset=20) == []


def test_a_first_offset_that_retention_has_taken_is_a_loss_if_nothing_may_be_lost(journal: Journal) -> None:
    _with_a_hole(journal)
    told = r"startingOffset is 10, and offsets before 20 no longer exist.*to earliest, or failOnDataLoss"
    with pytest.raises(DataLost, match=told):
        _read(journal, startingOffset=10)
    with pytest.raises(DataLost, match=told):
        _stream(journal, startingOffset=10).initialOffset()
    assert _read(journal, startingOffset=10, failOnDataLoss="false") == list(range(20, 40))
    assert _stream(journal, startingOffset=10, failOnDataLoss="false").initialOffset() == {"offset": 20}
    assert _read(journal, startingOffset=20) == _read(journal) == list(range(20, 40))


def test_times_bound_what_is_read_to_the_row(journal: Journal) -> None:
    journal.numbers(50, batch=10)  # a millisecond apart
    when = datetime.fromtimestamp(EPOCH / 1e6, UTC) + timedelta(milliseconds=2)
    assert _read(journal, startingTimestamp=when.isoformat()) == list(range(20, 50))
    assert _read(journal, endingTimestamp=EPOCH + 1000) == list(range(10))
    assert _read(journal, startingTimestamp=EPOCH + 1, endingTimestamp=EPOCH + 2001) == list(range(10, 30))
    assert _read(journal, startingTimestamp=EPOCH + 10_000_000) == []


def test_a_moment_within_a_commit_is_found(journal: Journal) -> None:
    journal.numbers(20)
    assert [JournalReader(journal.path).row_at(EPOCH + late) for late in (-5, 0, 1, 1000, 1001)] == [
        0,
        0,
        10,
        10,
        20,
    ]


def test_a_moment_within_a_damaged_commit_stops_only_who_may_lose_nothing(journal: Journal) -> None:
    journal.numbers(30)
    data = journal.path / "00000000000000000000-0000.arrows"
    good = data.read_bytes()
    at = Segment(journal.path, SegmentName(0, 0)).entries()[1].position + 50
    data.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    within = {"startingTimestamp": EPOCH + 1000, "endingTimestamp": EPOCH + 2001}
    with pytest.raises(Damaged, match="offsets 10 to 19"):
        _read(journal, **within)
    assert _read(journal, failOnDataLoss="false", **within) == list(range(20, 30))
    assert _read(journal, failOnDataLoss="false", endingTimestamp=EPOCH + 1000) == list(range(10))
    assert _read(journal, startingTimestamp=EPOCH + 1001) == list(range(20, 30)), "which is behind it"


def test_what_retention_took_before_the_plan_is_not_missed(journal: Journal) -> None:
    journal.numbers(20)
    journal.roll()
    journal.numbers(20)
    journal.drop(0)
    assert _read(journal) == list(range(20, 40))


def test_what_retention_took_after_the_plan_is_named_or_left_out(journal: Journal) -> None:
    journal.numbers(20)
    journal.roll()
    journal.numbers(20)
    journal.drop(0)
    with pytest.raises(OutOfRange, match="offsets 5 to 19 are no longer there"):
        _offsets(BatchReader(ALL, _options(journal)), [Rows(5, 30)])
    lenient = BatchReader(ALL, _options(journal, failOnDataLoss="false"))
    assert _offsets(lenient, [Rows(5, 30)]) == list(range(20, 30))
    assert _offsets(lenient, [Rows(5, 15)]) == []


def _pushed(journal: Journal, *filters: Any, left: Sequence[Any] = ()) -> list[int]:
    """Read with these filters, of which Spark has to apply ``left``: the reader does not keep to them exactly."""
    reader = PushdownReader(ALL, _options(journal))
    assert list(reader.pushFilters(list(filters))) == list(left)
    return _offsets(reader, reader.partitions())


def test_filters_on_offset_and_ts_narrow_what_is_read(journal: Journal) -> None:
    journal.numbers(50)

    def at(milliseconds: int) -> datetime:
        return datetime.fromtimestamp(EPOCH / 1e6, UTC) + timedelta(milliseconds=milliseconds)

    offset, ts = ("offset",), ("ts",)
    assert _pushed(journal, GreaterThanOrEqual(offset, 10), LessThan(offset, 12)) == [10, 11]
    assert _pushed(journal, GreaterThan(offset, 47)) == [48, 49]
    assert _pushed(journal, LessThanOrEqual(offset, 1)) == [0, 1]
    assert _pushed(journal, EqualTo(offset, 7)) == [7]
    for each, found in (
        (EqualTo(ts, at(3)), range(30, 40)),
        (GreaterThan(ts, at(3)), range(40, 50)),
        (LessThanOrEqual(ts, at(0)), range(10)),
    ):
        assert _pushed(journal, each, left=[each]) == list(found)
    assert _pushed(journal, GreaterThan(offset, 30), LessThan(offset, 20)) == []


def test_that_a_column_is_not_null_spark_need_not_ask_where_it_never_is(journal: Journal) -> None:
    reader = PushdownReader(ALL, _options(journal))
    asked = [IsNotNull(("offset",)), IsNotNull(("key",)), IsNotNull(("headers",)), IsNotNull(("parts", "x"))]
    assert list(reader.pushFilters(list(asked))) == asked[2:]


def test_other_filters_narrow_nothing(journal: Journal) -> None:
    journal.numbers(20)
    others = [
        In(("offset",), (3, 4)),
        EqualTo(("reply_to",), "x"),
        EqualTo(("priority",), 1),
        GreaterThan(("key",), "x"),
        In(("key",), ("x", None)),
        Not(EqualTo(("headers",), "x")),
        IsNotNull(("headers",)),
    ]
    assert _pushed(journal, *others, left=others) == list(range(20))


KEYS = ("a", "a.b", "b", "", "größe")
EXCHANGES = ("", "feed", "feeds")


@pytest.mark.parametrize(
    "each,fits",
    [
        (EqualTo(("key",), "a"), lambda key, exchange: key == "a"),
        (EqualNullSafe(("exchange",), "feed"), lambda key, exchange: exchange == "feed"),
        (In(("key",), ("b", "none", "größe")), lambda key, exchange: key in ("b", "größe")),
        (In(("key",), ()), lambda key, exchange: False),
        (StringStartsWith(("key",), "a"), lambda key, exchange: key.startswith("a")),
        (StringEndsWith(("key",), "b"), lambda key, exchange: key.endswith("b")),
        (StringContains(("exchange",), "eed"), lambda key, exchange: "eed" in exchange),
        (StringContains(("key",), "ß"), lambda key, exchange: "ß" in key),
        (Not(EqualTo(("key",), "a")), lambda key, exchange: key != "a"),
        (Not(Not(EqualTo(("key",), ""))), lambda key, exchange: key == ""),
        (Not(In(("exchange",), ("", "feed"))), lambda key, exchange: exchange == "feeds"),
        (EqualTo(("engine",), "broker"), lambda key, exchange: True),
        (EqualTo(("route",), "broker"), lambda key, exchange: False),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_conditions_on_texts_of_envelopes_are_kept_to_here(
    tmp_path: Path, each: Filter, fits: Callable[[str, str], bool], together: bool
) -> None:
    told = [(key, exchange) for key in KEYS for exchange in EXCHANGES for _ in range(2)]
    with JournalWriter(tmp_path) as writer:
        rows = [
            (batch_of([b"x"], Envelope(key=key, exchange=exchange)), writer.stamp(), SOURCE)
            for key, exchange in told
        ]
        for commit in [rows] if together else [[row] for row in rows]:
            writer.append(commit)
    wanted = [offset for offset, (key, exchange) in enumerate(told) if fits(key, exchange)]
    columns = StructType([SCHEMA["offset"], SCHEMA["body"]])
    reader = PushdownReader(columns, _options(tmp_path))
    assert list(reader.pushFilters([each, LessThan(("offset",), 25)])) == []
    assert _offsets(reader, reader.partitions()) == [offset for offset in wanted if offset < 25]


def test_of_several_conditions_all_are_kept_to(journal: Journal) -> None:
    for key in ("a", "b", "ab"):
        journal.append([b"1", b"2"], Envelope(key=key))
    found = _pushed(journal, StringStartsWith(("key",), "a"), StringEndsWith(("key",), "b"))
    assert found == [4, 5]


def test_columns_may_be_named_without_their_types(journal: Journal) -> None:
    source = KernelDataSource({"path": str(journal), "columns": "key, offset"})
    assert source.schema() == StructType([SCHEMA["key"], SCHEMA["offset"]])
    assert KernelDataSource({"path": str(journal)}).schema() == SCHEMA
    assert source.reader(source.schema()).options.columns == "key, offset"
    with pytest.raises(SparkOptionError, match="option columns names 'topic'.* it has: offset, ts"):
        KernelDataSource({"path": str(journal), "columns": "key,topic"}).schema()


# ------------------------------------------------------------------ options


@for_each(
    "options,complaint",
    [
        ({}, "one of the options path .* and kernel"),
        ({"path": "/j", "kernel": "/k.sock"}, "one of the options path .* and kernel"),
        ({"path": "/j", "startingOfset": "1"}, "no option 'startingOfset'.*startingOffset"),
        ({"path": "/j", "rowsPerTask": "many"}, "rowsPerTask"),
        ({"path": "/j", "rowsPerTask": "0"}, "rowsPerTask is 0"),
        ({"path": "/j", "startingOffset": "first"}, "startingOffset"),
        ({"path": "/j", "startingOffset": "1", "startingTimestamp": "2026-01-01"}, "exclude each other"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(SparkOptionError, match=complaint):
        ReadOptions.parse(options)


@pytest.mark.parametrize("name", ["checkpointLocation", "queryname", "asyncProgressTrackingEnabled"])
def test_what_spark_itself_passes_is_no_unknown_option(name: str) -> None:
    assert ReadOptions.parse({"path": "/j", name: "x"}) == ReadOptions(path="/j")
    assert WriteOptions.parse({"path": "/j", name: "x"}) == WriteOptions(path="/j")


def test_names_of_options_may_be_written_in_any_case(journal: Journal) -> None:
    assert ReadOptions.parse({"PATH": "/j", "startingoffset": "5"}).starting_offset == 5


def test_paths_may_be_urls_of_files(journal: Journal) -> None:
    assert _options(Path(f"file:{journal}")).journal == journal.path


def test_rows_are_written_into_a_directory_only() -> None:
    with pytest.raises(SparkOptionError, match="not a s3 address"):
        local_path("s3://bucket/journal")


def test_nobody_keeps_a_position_in_an_archive() -> None:
    with pytest.raises(SparkOptionError, match="the option consumer"):
        ReadOptions(path="s3://bucket/journal", consumer="report")
    with pytest.raises(SparkOptionError, match="the option consumer"):
        ReadOptions(paths='["/j", "s3://bucket/journal"]', consumer="report")


def test_a_time_that_is_none_is_refused(journal: Journal) -> None:
    for moment in ("yesterday", "--5", "²"):
        with pytest.raises(SparkOptionError, match=f"startingTimestamp is '{moment}'"):
            _read(journal, startingTimestamp=moment)


# ------------------------------------------------------------------ streams


def _stream(journal: Journal, **options: object) -> StreamReader:
    return StreamReader(NARROW, _options(journal, **options))


def test_a_stream_reads_exactly_what_lies_between_two_offsets(journal: Journal) -> None:
    stream = _stream(journal, rowsPerTask=4)
    assert stream.initialOffset() == {"offset": 0}
    journal.numbers(25)
    end = stream.latestOffset({"offset": 0}, ReadAllAvailable())
    assert end == {"offset": 25}
    assert _offsets(stream, stream.partitions({"offset": 3}, end)) == list(range(3, 25))
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert stream.partitions(end, end) == []


def test_a_backlog_is_taken_in_pieces_by_default(journal: Journal) -> None:
    journal.numbers(25)
    assert _stream(journal).getDefaultReadLimit() == ReadMaxRows(2_000_000)
    assert _stream(journal, maxOffsetsPerTrigger=0).getDefaultReadLimit() == ReadAllAvailable()
    stream = _stream(journal, maxOffsetsPerTrigger=10)
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset({"offset": 0}, limit) == {"offset": 10}
    assert stream.latestOffset({"offset": 20}, limit) == {"offset": 25}


def test_a_query_shows_how_far_its_micro_batch_will_be_behind(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader.time, "time", lambda: EPOCH / 1e6 + 10)
    journal.numbers(50, batch=10)  # a millisecond apart
    stream = _stream(journal)
    stream.latestOffset({"offset": 0}, ReadMaxRows(25))
    assert stream.reportLatestOffset() == {"offset": 50, "unread": 25, "secondsBehind": 9.998}
    stream.latestOffset({"offset": 25}, ReadMaxRows(25))
    assert stream.reportLatestOffset() == {"offset": 50, "unread": 0, "secondsBehind": 0.0}
    journal.roll()
    journal.numbers(10)
    journal.drop(0)
    lenient = _stream(journal, failOnDataLoss="false")
    lenient.latestOffset({"offset": 0}, ReadMaxRows(4))
    assert lenient.reportLatestOffset() == {"offset": 60, "unread": 6, "secondsBehind": 9.995}


def test_available_now_ends_where_the_journal_ended_when_it_began(journal: Journal) -> None:
    journal.numbers(25)
    stream = _stream(journal)
    stream.prepareForTriggerAvailableNow()
    journal.numbers(25)
    assert stream.latestOffset({"offset": 0}, ReadMaxRows(20)) == {"offset": 20}
    assert stream.latestOffset({"offset": 20}, ReadMaxRows(20)) == {"offset": 25}
    assert stream.latestOffset({"offset": 25}, ReadMaxRows(20)) == {"offset": 25}


def test_a_stream_may_begin_at_the_end(journal: Journal) -> None:
    journal.numbers(25)
    assert _stream(journal, startingOffset="latest").initialOffset() == {"offset": 25}
    assert _stream(journal, startingTimestamp=EPOCH + 1000).initialOffset() == {"offset": 10}


def _with_a_hole(journal: Journal) -> None:
    journal.numbers(20)
    journal.roll()
    journal.numbers(20)
    journal.drop(0)


def test_a_stream_behind_retention_stops_and_says_what_is_lost_and_what_to_do(journal: Journal) -> None:
    _with_a_hole(journal)
    stream = _stream(journal)
    told = (
        r"offsets 5 to 19 have not been read.*from 20 set the option failOnDataLoss to false.*option consumer"
    )
    with pytest.raises(DataLost, match=told):
        stream.latestOffset({"offset": 5}, ReadAllAvailable())
    with pytest.raises(DataLost, match=told):
        stream.partitions({"offset": 5}, {"offset": 30})


def test_a_stream_that_may_lose_goes_on_behind_what_is_lost(journal: Journal) -> None:
    _with_a_hole(journal)
    stream = _stream(journal, failOnDataLoss="false")
    assert stream.latestOffset({"offset": 5}, ReadMaxRows(3)) == {"offset": 23}
    assert _offsets(stream, stream.partitions({"offset": 5}, {"offset": 23})) == [20, 21, 22]
    assert stream.partitions({"offset": 5}, {"offset": 15}) == [], "a batch that was planned and is all gone"


def test_a_checkpoint_of_another_journal_is_noticed(journal: Journal) -> None:
    journal.numbers(5)
    with pytest.raises(DataLost, match="ends at offset 5, and this query has read up to 9"):
        _stream(journal).latestOffset({"offset": 9}, ReadAllAvailable())


def _written(path: Path, rows: int) -> StreamReader:
    """A stream of a journal that a writer has written."""
    with JournalWriter(path) as writer:
        writer.append([(batch_of([b"x"] * rows), writer.stamp(), SOURCE)])
    return StreamReader(NARROW, _options(path))


@pytest.mark.parametrize("left", [False, True])
def test_a_journal_that_was_deleted_and_written_anew_is_noticed(tmp_path: Path, left: bool) -> None:
    """It has more rows than were read, so that the offset alone does not tell."""
    path = tmp_path / "journal"
    stream = _written(path, 5)
    first = stream.initialOffset()
    read = stream.latestOffset(first, ReadAllAvailable())
    assert _offsets(stream, stream.partitions(first, read)) == list(range(5))
    stream = _written(path, 3)  # the same journal, after a restart of its writer
    more = stream.latestOffset(read, ReadAllAvailable())
    assert _offsets(stream, stream.partitions(read, more)) == [5, 6, 7]
    if left:  # only its segments are deleted
        for file in path.glob("0*"):
            file.unlink()
    else:
        shutil.rmtree(path)
    stream = _written(path, 20)
    for start, end in ((read, more), ({"offset": 5}, more)):
        with pytest.raises(DataLost, match=r"up to offset [58]: that one was deleted and written anew"):
            stream.partitions(start, end)
    with pytest.raises(DataLost, match="written anew.*new checkpointLocation"):
        stream.latestOffset(read, ReadAllAvailable())


def test_a_checkpoint_without_an_identity_goes_on(tmp_path: Path) -> None:
    """It is of an earlier version; one with the same offset means that there is nothing new."""
    stream = _written(tmp_path / "journal", 5)
    assert stream.latestOffset({"offset": 5}, ReadAllAvailable()) == {"offset": 5}
    end = stream.latestOffset({"offset": 3}, ReadAllAvailable())
    assert _offsets(stream, stream.partitions({"offset": 3}, end)) == [3, 4]


def test_a_batch_that_was_planned_is_not_read_without_its_end(journal: Journal) -> None:
    """A loss of power has taken it: what gets these offsets now would never be read."""
    journal.numbers(10)
    with pytest.raises(DataLost, match="ends at offset 10, and this query was about to read up to 15"):
        _stream(journal, failOnDataLoss="false").partitions({"offset": 5}, {"offset": 15})
    journal.numbers(10)
    stream = _stream(journal)
    tasks = stream.partitions({"offset": 5}, {"offset": 15})
    assert _offsets(stream, tasks) == list(range(5, 15))


def test_a_stream_goes_on_where_the_journal_does_behind_rows_that_were_lost(journal: Journal) -> None:
    """A writer begins behind the furthest consumer; nobody has written there yet."""
    journal.numbers(5)
    journal.end = 9
    journal.roll()
    for options in ({}, {"startingOffset": "latest"}):
        stream = _stream(journal, **options)
        start = {"offset": 9} if not options else stream.initialOffset()
        assert stream.latestOffset(start, ReadAllAvailable()) == start == {"offset": 9}
        assert stream.partitions(start, start) == []
    journal.append([b"9"])
    end = stream.latestOffset(start, ReadAllAvailable())
    assert _offsets(stream, stream.partitions(start, end)) == [9]


def test_a_stream_with_a_name_tells_how_far_it_has_come(journal: Journal) -> None:
    journal.numbers(25)
    _stream(journal).commit({"offset": 10})
    assert positions(journal.path) == {}
    stream = _stream(journal, consumer="report")
    for done in (0, 10):  # asked for the next batch, all before it is done
        stream.latestOffset({"offset": done}, ReadMaxRows(10))
        assert positions(journal.path) == {"report": done}
    stream.commit({"offset": 20})
    assert positions(journal.path) == {"report": 20}
    stream.commit({"offset": 15})
    assert positions(journal.path) == {"report": 20}, "it never goes back"


def test_a_stream_has_no_end(journal: Journal) -> None:
    with pytest.raises(SparkOptionError, match="a stream has no end"):
        _stream(journal, endingOffset=5)


def test_the_declared_schema_has_every_column_of_a_feed() -> None:
    assert wanted_columns(ALL).names == ROWS.names


# ------------------------------------------------------------------ streams of several journals


def _several(folder: Path, **options: object) -> SeveralStreams:
    schema = StructType([*NARROW, WITH_JOURNAL["journal"]])
    return SeveralStreams(schema, ReadOptions.parse({"path": f"{folder}/shop*", **_texts_of(options)}))


def _texts_of(options: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def _ends(folder: Path, **ends: int) -> dict[str, Any]:
    return {"journals": {f"{folder}/shop-{name}": {"offset": end} for name, end in ends.items()}}


def _rows(stream: SeveralStreams, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
    return [(Path(row["journal"]).name, row["offset"]) for batch in batches for row in batch.to_pylist()]


def test_a_stream_follows_several_journals(shops: dict[str, Journal], tmp_path: Path) -> None:
    stream = _several(tmp_path, rowsPerTask=7)
    start = stream.initialOffset()
    assert start == _ends(tmp_path, a=0, b=0)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == _ends(tmp_path, a=20, b=5)
    assert _rows(stream, start, end) == EVERY
    assert stream.latestOffset(end, ReadAllAvailable()) is end
    assert stream.reportLatestOffset() == {**end, "unread": 0, "secondsBehind": 0.0}
    shops["b"].numbers(2)
    more = stream.latestOffset(end, ReadAllAvailable())
    assert _rows(stream, end, more) == [("shop-b", 5), ("shop-b", 6)]


def test_a_limit_is_for_all_journals_together(shops: dict[str, Journal], tmp_path: Path) -> None:
    stream = _several(tmp_path, maxOffsetsPerTrigger=10)
    offset, taken = stream.initialOffset(), 0
    batches = []
    while (following := stream.latestOffset(offset, stream.getDefaultReadLimit())) != offset:
        batches.append(len(_rows(stream, offset, following)))
        offset, taken = following, taken + batches[-1]
    assert taken == 25
    assert max(batches) <= 10


def test_a_journal_that_matches_later_is_read_whole(shops: dict[str, Journal], tmp_path: Path) -> None:
    """Also if the query began at the end; and a micro-batch that is repeated has the same rows."""
    stream = _several(tmp_path, startingOffset="latest")
    start = stream.initialOffset()
    assert start == _ends(tmp_path, a=20, b=5)
    Journal(tmp_path / "shop-c").numbers(3)
    first = stream.latestOffset(start, ReadAllAvailable())
    assert first == _ends(tmp_path, a=20, b=5, c=0)
    assert _rows(stream, start, first) == []
    second = stream.latestOffset(first, ReadAllAvailable())
    for again in (stream, _several(tmp_path, startingOffset="latest")):
        assert _rows(again, first, second) == [("shop-c", 0), ("shop-c", 1), ("shop-c", 2)]


def test_a_journal_that_is_gone_stops_the_stream(shops: dict[str, Journal], tmp_path: Path) -> None:
    stream = _several(tmp_path)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    shutil.rmtree(tmp_path / "shop-b")
    with pytest.raises(
        DataLost, match="shop-b: this query has read from it, and it is not among the journals"
    ):
        stream.latestOffset(end, ReadAllAvailable())
    shops["a"].numbers(1)
    lenient = _several(tmp_path, failOnDataLoss="false")
    following = lenient.latestOffset(end, ReadAllAvailable())
    assert _rows(lenient, end, following) == [("shop-a", 20)]


def test_a_checkpoint_of_one_journal_is_not_that_of_several(
    shops: dict[str, Journal], tmp_path: Path
) -> None:
    with pytest.raises(DataLost, match="the checkpoint of this query is that of a stream of one journal"):
        _several(tmp_path).latestOffset({"offset": 3}, ReadAllAvailable())


def test_available_now_ends_with_the_journals_that_there_were(
    shops: dict[str, Journal], tmp_path: Path
) -> None:
    stream = _several(tmp_path)
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    shops["a"].numbers(5)
    Journal(tmp_path / "shop-c").numbers(3)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == _ends(tmp_path, a=20, b=5)
    assert _rows(stream, start, end) == EVERY
    assert stream.latestOffset(end, ReadAllAvailable()) == end
