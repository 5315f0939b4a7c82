"""Reading with Spark itself: what plain objects cannot show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.journal.compaction import compact
from plugins.engines.journal.options import KeepOptions
from plugins.engines.journal.retention import delete, expired
from plugins.engines.journal.writer import JournalWriter, WriterSettings
from plugins.protocols.journal_format.reader import JournalReader
from plugins.protocols.journal_format.schema import NEVER_NULL
from tests.plugins.apis.spark.journals import EPOCH, SOURCE, Journal

pytestmark = pytest.mark.slow


def _offsets(frame: Any) -> list[int]:
    return [row.offset for row in frame.select("offset").orderBy("offset").collect()]


def test_a_journal_is_a_table(spark: Any, journal: Journal) -> None:
    journal.append([b"one", b"two"], Envelope(key="a.b", exchange="feed", properties={"headers": {"n": 1}}))
    journal.numbers(98)
    feed = spark.read.format("kernel").load(str(journal))
    first = feed.orderBy("offset").first()
    assert (first.offset, first.engine, first.route, first.exchange) == (0, "broker", "feed", "feed")
    assert (first.key, first.headers, bytes(first.body)) == ("a.b", '{"n":1}', b"one")
    assert int(first.ts.timestamp() * 1e6) == EPOCH
    assert feed.groupBy("key").count().orderBy("key").collect() == [("a.b", 2), ("n", 98)]


def test_what_may_be_null_is_null_where_it_is_and_the_rest_is_said_never_to_be(
    spark: Any, journal: Journal
) -> None:
    journal.append([b"bare", b""])
    journal.append([b"full"], Envelope(key="k", reply_to="r", expiration=5, properties={"headers": {"n": 1}}))
    feed = spark.read.format("kernel").load(str(journal))
    assert {field.name for field in feed.schema if not field.nullable} == NEVER_NULL
    bare, empty, full = feed.orderBy("offset").collect()
    for name in NEVER_NULL:
        assert bare[name] is not None
    assert (bare.key, bare.priority, bare.persistent, bytes(empty.body)) == ("", 0, False, b"")
    assert (bare.reply_to, bare.expiration, bare.headers, bare.parts) == (None, None, None, None)
    assert (full.reply_to, full.expiration, full.headers, full.properties) == ("r", 5, '{"n":1}', None)
    assert feed.where("headers is null and key is not null").count() == 2


def test_the_parts_of_a_message_are_a_list_of_their_sizes(
    spark: Any, journal: Journal, tmp_path: Path
) -> None:
    with JournalWriter(tmp_path / "multipart") as writer:
        writer.append([(batch_of([(b"a", b"bcd"), (b"",)], multipart=True), writer.stamp(), SOURCE)])
    rows = spark.read.format("kernel").load(str(tmp_path / "multipart")).orderBy("offset").collect()
    assert [(row.parts, bytes(row.body)) for row in rows] == [([1, 3], b"abcd"), ([0], b"")]


def test_sql_reads_a_journal(spark: Any, journal: Journal) -> None:
    journal.numbers(20)
    spark.sql(f"create or replace temporary view feed using kernel options (path '{journal}', rowsPerTask 5)")
    assert spark.sql("select count(*), sum(cast(string(body) as int)) from feed").first() == (20, 190)


def test_a_table_that_has_lost_its_options_says_how_to_give_them(spark: Any, journal: Journal) -> None:
    journal.numbers(20)
    spark.sql(f"create table lasting using kernel options (path '{journal}')")
    try:
        with pytest.raises(Exception, match=r"SELECT \.\.\. FROM name WITH \(path"):
            spark.sql("select count(*) from lasting").first()
        assert spark.sql(f"select count(*) from lasting with (path '{journal}')").first() == (20,)
    finally:
        spark.sql("drop table lasting")
    assert spark.read.format("kernel").load(str(journal)).count() == 20


def test_only_columns_that_are_asked_for(spark: Any, journal: Journal) -> None:
    journal.numbers(20)
    read = spark.read.format("kernel")
    for feed in (read.schema("key string, offset bigint"), read.option("columns", "key, offset")):
        assert feed.load(str(journal)).columns == ["key", "offset"]
        assert _offsets(feed.load(str(journal))) == list(range(20))


def test_several_journals_are_one_table(spark: Any, journal: Journal, tmp_path: Path) -> None:
    other = Journal(tmp_path / "other")
    journal.numbers(20)
    other.numbers(5)
    wanted = {str(tmp_path / "journal"): 20, str(tmp_path / "other"): 5}
    read = spark.read.format("kernel")
    for feed in (read.load(f"{tmp_path}/[jo]*"), read.load(sorted(wanted))):
        assert dict(feed.groupBy("journal").count().collect()) == wanted
        assert _offsets(feed.where("journal like '%other' and key = 'n'")) == list(range(5))


def test_headers_are_a_map_of_texts_where_one_is_wanted(spark: Any, journal: Journal) -> None:
    """As the page on Spark says."""
    headers = {"text": "t", "number": 7, "binary": b"\x00", "table": {"a": [1]}, "nothing": None}
    journal.append([b"x", b"y"], Envelope(properties={"headers": headers}))
    journal.append([b"z"])
    feed = spark.read.format("kernel").load(str(journal))
    (first, _, last) = feed.selectExpr("from_json(headers, 'map<string,string>') as h").collect()
    assert first.h == {
        "text": "t",
        "number": "7",
        "binary": '{"$bytes":"AA=="}',
        "table": '{"a":[1]}',
        "nothing": None,
    }
    assert last.h is None
    assert feed.selectExpr("count_if(get_json_object(headers, '$.number') = 7)").first()[0] == 2


def test_properties_are_a_map_of_texts_where_one_is_wanted(spark: Any, journal: Journal) -> None:
    """As the page on Spark says."""
    journal.append([b"x"], Envelope(properties={"priority": 5, "app_id": "a", "headers": {"h": 1}}))
    journal.append([b"z"])
    feed = spark.read.format("kernel").load(str(journal))
    first, last = feed.selectExpr("from_json(properties, 'map<string,string>') as p").collect()
    assert first.p == {"priority": "5", "app_id": "a"}
    assert last.p is None


def test_filters_reach_the_reader_and_stay_true(spark: Any, journal: Journal) -> None:
    journal.numbers(100, batch=10)
    feed = spark.read.format("kernel").option("rowsPerTask", 10).load(str(journal))
    assert feed.rdd.getNumPartitions() == 10
    narrow = feed.where("offset >= 41 and offset < 52 and key = 'n'")
    assert narrow.rdd.getNumPartitions() == 2
    assert _offsets(narrow) == list(range(41, 52))
    early = feed.where(f"ts < timestamp_micros({EPOCH + 1500})")
    assert _offsets(early) == list(range(20))
    assert _offsets(feed.where("offset in (3, 99)")) == [3, 99]
    journal.append([b"other"], Envelope(key="o"))
    keys = feed.where("key like 'o%' or offset = 100").where("key != 'n' and exchange = ''")
    assert _offsets(keys) == [100]
    plan = feed.where("key like 'o%' and key != 'n'").select("key")._jdf.queryExecution().executedPlan()
    assert not re.search(r"\bFilter\b", plan.toString()), (
        "what the reader keeps to, Spark does not apply again"
    )


def test_an_empty_journal_is_an_empty_table(spark: Any, journal: Journal) -> None:
    assert spark.read.format("kernel").load(str(journal)).count() == 0


def test_a_wrong_option_stops_the_query_with_its_name(spark: Any, journal: Journal) -> None:
    with pytest.raises(Exception, match="(?i)no option 'startingOfset'"):
        spark.read.format("kernel").option("startingOfset", 3).load(str(journal)).count()


# ------------------------------------------------------------------ streams


def _drain(feed: Any, folder: Path) -> list[Any]:
    """Run a stream over what is there; return all rows that it has ever put out."""
    out = folder / "out"
    query = (
        feed.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark = feed.sparkSession
    return list(spark.read.parquet(str(out)).orderBy("offset").collect())


def test_a_stream_goes_on_where_its_checkpoint_is(spark: Any, journal: Journal, tmp_path: Path) -> None:
    journal.numbers(30)
    feed = spark.readStream.format("kernel").option("maxOffsetsPerTrigger", 7).load(str(journal))
    assert [row.offset for row in _drain(feed, tmp_path)] == list(range(30))
    journal.roll()
    journal.numbers(30)
    rows = _drain(feed, tmp_path)
    assert [row.offset for row in rows] == list(range(60))
    assert [bytes(row.body) for row in rows] == [b"%d" % number for number in range(60)]


def test_a_stream_of_several_journals_goes_on_where_its_checkpoint_is(
    spark: Any, journal: Journal, tmp_path: Path
) -> None:
    """A journal that comes later is read from its first row on."""
    other = Journal(tmp_path / "journal-2")
    journal.numbers(30)
    other.numbers(4)
    feed = spark.readStream.format("kernel").option("maxOffsetsPerTrigger", 9).load(f"{tmp_path}/journal*")
    assert len(_drain(feed, tmp_path)) == 34
    Journal(tmp_path / "journal-3").numbers(5)
    other.numbers(4)
    wanted = {"journal": 30, "journal-2": 8, "journal-3": 5}
    rows = _drain(feed, tmp_path)
    assert {(Path(row.journal).name, row.offset) for row in rows} == {
        (name, offset) for name, count in wanted.items() for offset in range(count)
    }
    assert len(rows) == 43


def test_a_stream_behind_retention_stops_with_the_range_that_is_lost(
    spark: Any, journal: Journal, tmp_path: Path
) -> None:
    journal.numbers(30)
    feed = spark.readStream.format("kernel").load(str(journal))
    _drain(feed, tmp_path)
    journal.numbers(10)
    journal.roll()
    journal.numbers(10)
    journal.drop(0)
    with pytest.raises(Exception, match="offsets 30 to 39 have not been read"):
        _drain(feed, tmp_path)
    lenient = spark.readStream.format("kernel").option("failOnDataLoss", "false").load(str(journal))
    assert [row.offset for row in _drain(lenient, tmp_path)] == [*range(30), *range(40, 50)]


def test_a_journal_may_be_rolled_compacted_and_shortened_under_a_running_query(
    spark: Any, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    with JournalWriter(source, WriterSettings(roll_bytes=20_000)) as writer:
        query = (
            spark.readStream.format("kernel")
            .option("consumer", "copy")
            .load(str(source))
            .select("offset", "body")
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            for turn in range(8):
                for _ in range(25):
                    first = writer.next_offset
                    run = batch_of([b"%d" % number for number in range(first, first + 40)])
                    writer.append([(run, writer.stamp(), SOURCE)])
                if turn % 2:
                    assert compact(source)
                else:
                    read = expired(source, KeepOptions(unread_only=True), writer.stamp())
                    delete(source, read)
                query.processAllAvailable()
        finally:
            query.stop()
        assert JournalReader(source).bounds().earliest > 0, "retention has taken what was read"
        rows = spark.read.parquet(str(out)).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(8 * 25 * 40))
    assert all(row.body == b"%d" % row.offset for row in rows)


def test_a_query_may_ask_for_other_columns_after_a_restart(
    spark: Any, journal: Journal, tmp_path: Path
) -> None:
    def read(*columns: str, options: str) -> list[Any]:
        feed = spark.readStream.format("kernel").schema(options).load(str(journal))
        query = (
            feed.select(*columns)
            .writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = spark.read.schema("offset bigint, key string").json(str(tmp_path / "out"))
        return [tuple(row) for row in found.orderBy("offset").collect()]

    journal.numbers(2)
    assert read("offset", options="offset bigint") == [(0, None), (1, None)]
    journal.numbers(2)
    wider = read("offset", "key", options="key string, offset bigint, body binary")
    assert wider == [(0, None), (1, None), (2, "n"), (3, "n")]
