"""Our jobs over feeds whose answers are known."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.apis.spark.jobs import anomalies, dead_letters, sequences, sessions, top, traffic
from plugins.apis.spark.jobs import options as of
from plugins.apis.spark.jobs.feed import Span, bucket_width, buckets, span
from plugins.apis.spark.jobs.library import create_views
from plugins.apis.spark.jobs.windows import windows
from plugins.apis.spark.report.findings import HeatMap, Lines, Report, Table
from plugins.apis.spark.report.page import page
from plugins.protocols.journal_format.envelopes import Source
from tests.plugins.apis.spark.journals import EPOCH, Journal

pytestmark = pytest.mark.slow

SECOND = 1_000_000


def _feed(spark: Any, journal: Journal) -> Any:
    return spark.read.format("kernel").load(str(journal))


def _part(report: Report, title: str) -> Any:
    return next(part for part in report.parts if part.title == title)


def _figures(report: Report) -> dict[str, Any]:
    return {figure.label: figure.value for figure in report.figures}


# ------------------------------------------------------------------ traffic


@pytest.fixture
def two_seconds(journal: Journal) -> Journal:
    """Four messages of key a in the first second, one of key b in the second one; a's were sent 20 ms before, b's 100 ms."""
    for number, (key, ts, delay, body) in enumerate(
        [
            ("a", 0, 20, b"12345"),
            ("a", 0, 20, b"12345"),
            ("a", 500, 20, b"1"),
            ("a", 999, 20, b""),
            ("b", 1500, 100, b"xx"),
        ]
    ):
        moment = EPOCH // 1000 + ts
        headers = {"timestamp_in_ms": moment - delay, "n": number}
        source = Source("broker", "to-b" if key == "b" else "to-a")
        envelope = Envelope(key=key, properties={"headers": headers})
        journal.append([body], envelope, ts=moment * 1000, source=source)
    return journal


def test_traffic_counts_bytes_rates_and_latencies(spark: Any, two_seconds: Journal) -> None:
    rows = {row["key"]: row for row in traffic.per_route_and_key(_feed(spark, two_seconds)).collect()}
    a, b = rows["a"], rows["b"]
    assert (a["route"], a["messages"], a["bytes"], a["mean size"]) == ("to-a", 4, 11, 2.75)
    assert a["per second"] == pytest.approx(3 / 0.999)
    assert (a["p50"], a["p99"], a["most"]) == pytest.approx((0.02, 0.02, 0.02))
    assert (b["messages"], b["bytes"], b["per second"]) == (1, 2, None)
    assert b["p99"] == pytest.approx(0.1)


def test_the_traffic_report_agrees_with_itself(spark: Any, two_seconds: Journal) -> None:
    feed = _feed(spark, two_seconds)
    report = traffic.report(feed, of.TrafficOptions(number=NUMBER))
    figures = _figures(report)
    assert (figures["messages"], figures["bytes"]) == (5, 13)
    assert figures["took"] == pytest.approx(1.5)
    assert (figures["missing"], figures["duplicates"], figures["reordered"]) == (0, 0, 0)
    throughput = _part(report, "Throughput")
    width = (throughput.times[1] - throughput.times[0]).total_seconds()
    sums = {name: round(sum(values) * width) for name, values in throughput.series.items()}
    assert sums == {"broker · to-a": 4, "broker · to-b": 1}
    latency = _part(report, "Latency")
    by_step = {name: sum(row) for name, row in zip(latency.rows, latency.values, strict=True) if sum(row)}
    assert by_step == {"17.8 ms and more": 4, "100 ms and more": 1}
    matrix = _part(report, "The matrix")
    assert (matrix.rows, matrix.columns, matrix.values) == (["broker"], ["to-a", "to-b"], [[4, 1]])
    assert [row[2] for row in _part(report, "Routes and keys").rows] == ["a", "b"]
    where = _part(report, "What goes where")
    assert (where.rows, where.columns) == (["broker · to-a", "broker · to-b"], ["a", "b"])
    assert where.values == [[4, 0], [0, 1]]


def test_a_message_that_was_tried_again_later_does_not_spoil_the_latency(
    spark: Any, two_seconds: Journal
) -> None:
    headers = {"timestamp_in_ms": EPOCH // 1000, "x-death": [{"queue": "q", "count": 1}], "n": 9}
    for sent in (headers, {"x-death": []}):
        later = EPOCH + 45 * SECOND
        envelope = Envelope(key="a", properties={"headers": sent})
        two_seconds.append([b""], envelope, ts=later, source=Source("broker", "to-a"))
    feed = _feed(spark, two_seconds)
    figures = _figures(traffic.report(feed, of.TrafficOptions()))
    assert (figures["came back from dead letters"], figures["after, median"]) == (2, 45)
    assert figures["latency, most"] == pytest.approx(0.1)
    narrow = feed.select("ts", "engine", "route", "key", "sent", "body")
    most = {row["key"]: row["most"] for row in traffic.per_route_and_key(narrow).collect()}
    assert most == pytest.approx({"a": 45, "b": 0.1}), "without headers nothing says that it came back"
    figures = _figures(traffic.report(feed.drop("headers"), of.TrafficOptions()))
    assert figures["latency, most"] == pytest.approx(45)


@pytest.mark.parametrize(
    "job,options",
    [
        (traffic, of.TrafficOptions()),
        (sessions, of.SessionOptions()),
        (dead_letters, of.DeadLetterOptions()),
        (top, of.TopOptions()),
        (anomalies, of.AnomalyOptions()),
    ],
)
def test_of_an_empty_feed_every_report_says_so(spark: Any, journal: Journal, job: Any, options: Any) -> None:
    report = job.report(_feed(spark, journal), options)
    assert report.parts == ()
    assert report.note


def test_buckets_cover_the_whole_span_and_are_round() -> None:
    first = datetime.fromtimestamp(EPOCH / 1e6, UTC)
    whole = Span(10, 10, first, datetime.fromtimestamp(EPOCH / 1e6 + 95, UTC))
    assert bucket_width(whole) == 1
    starts = buckets(whole, 10)
    assert starts[0] <= EPOCH < starts[0] + 10 * SECOND
    assert starts[-1] <= EPOCH + 95 * SECOND < starts[-1] + 10 * SECOND


# ------------------------------------------------------------------ sequences

NUMBER = "get_json_object(headers, '$.n')"
PUBLISHER = "get_json_object(headers, '$.p')"


def test_gaps_duplicates_and_disorder_are_counted_by_publisher(spark: Any, journal: Journal) -> None:
    for number in (0, 2, 6, 4, 4, 14, 16):  # counts by two: 8, 10, 12 are missing, 4 came after 6 and twice
        journal.append([b""], Envelope(properties={"headers": {"n": number, "p": "x"}}))
    for number in (5, 7, 9):
        journal.append([b""], Envelope(properties={"headers": {"n": number, "p": "y"}}))
    feed = _feed(spark, journal)
    found = sequences.summary(feed, NUMBER, PUBLISHER, 2).orderBy("publisher").collect()
    assert [tuple(row) for row in found] == [("x", 7, 0, 16, 3, 1, 1), ("y", 3, 5, 9, 0, 0, 0)]
    assert [tuple(row) for row in sequences.gaps(feed, NUMBER, PUBLISHER, 2).collect()] == [
        ("x", 8, 12, 3, 5)
    ]


def test_what_is_no_number_is_not_counted(spark: Any, journal: Journal) -> None:
    for number in (1, "two", 2, "", 4):
        journal.append([b""], Envelope(properties={"headers": {"n": number}}))
    ((_, *figures),) = sequences.summary(_feed(spark, journal), NUMBER).collect()
    assert figures == [3, 1, 4, 1, 0, 0]


def test_numbers_may_be_as_far_apart_as_there_are_any(spark: Any, journal: Journal) -> None:
    most, step = 2**63 - 1, 10_000_000
    for publisher, numbers in {
        "whole": (-most - 1, most),
        "near": (most, most - 3, most - 2),
        "wide": (-most - 1, -most - 1 + step, most),
    }.items():
        for number in numbers:
            journal.append([b""], Envelope(properties={"headers": {"n": str(number), "p": publisher}}))
    feed = _feed(spark, journal)
    found = {row["publisher"]: row["missing"] for row in sequences.summary(feed, NUMBER, PUBLISHER).collect()}
    assert found == {"whole": 2**64 - 2, "near": 1, "wide": 2**64 - 3}
    assert sorted(tuple(row) for row in sequences.gaps(feed, NUMBER, PUBLISHER).collect()) == [
        ("near", most - 1, most - 1, 1, 2),
        ("whole", -most, most - 1, 2**64 - 2, 1),
        ("wide", -most, -most - 2 + step, step - 1, 6),
        ("wide", -most + step, most - 1, 2**64 - 2 - step, 7),
    ]
    wide = feed.where(f"{PUBLISHER} = 'wide'")
    report = sequences.findings(wide, NUMBER, PUBLISHER, step)
    missing = (2**64 - 1) // step - 2
    assert _figures(report)["missing"] == missing
    assert _part(report, "Gaps").rows == [("wide", -most - 1 + 2 * step, most - step, missing, 7)]
    assert type(_part(report, "Sequences").rows[0][4]) is int
    page(report)


def test_sql_finds_the_jobs_as_views(spark: Any, two_seconds: Journal) -> None:
    views = create_views(_feed(spark, two_seconds), number=NUMBER)
    assert len(views) == 8
    assert [spark.table(view).count() for view in views] == [5, 2, 2, 2, 0, 0, 1, 0]
    assert spark.sql("select key, bytes from feed_traffic where messages > 1").collect() == [("a", 11)]


# ------------------------------------------------------------------ sessions


def test_a_pause_ends_a_session(spark: Any, journal: Journal) -> None:
    for key, second in [("a", 0), ("b", 1), ("a", 20), ("a", 40), ("b", 100), ("a", 200)]:
        journal.append([b"xy"], Envelope(key=key), ts=EPOCH + second * SECOND)
    found = sessions.sessions(_feed(spark, journal), pause=30).orderBy("who", "first").collect()
    assert [
        (row["who"], row["messages"], row["seconds"], row["bytes"], row["first offset"]) for row in found
    ] == [
        ("a", 3, 40.0, 6, 0),
        ("a", 1, 0.0, 2, 5),
        ("b", 1, 0.0, 2, 1),
        ("b", 1, 0.0, 2, 4),
    ]
    report = sessions.report(_feed(spark, journal), of.SessionOptions())
    assert _figures(report)["sessions"] == 4
    at_a_time = _part(report, "Sessions at a time")
    counts = dict(
        zip(
            ((when.timestamp() * 1e6 - EPOCH) // SECOND for when in at_a_time.times),
            at_a_time.series["sessions"],
            strict=True,
        )
    )
    assert max(counts.values()) == 2
    assert sum(value == 0 for value in counts.values()) > 0


# ------------------------------------------------------------------ dead letters


def _death(queue: str, reason: str, count: int) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "count": count, "exchange": "x", "routing-keys": ["k"]}


def test_dead_letters_are_told_by_cause_and_poison_is_found(spark: Any, journal: Journal) -> None:
    journal.append([b"alive"])
    for body, deaths in [
        (b"1", [_death("work", "rejected", 1)]),
        (b"2", [_death("work", "expired", 1)]),
        (b"3", [_death("work", "rejected", 3), _death("retry", "expired", 2)]),
    ]:
        journal.append([body], Envelope(properties={"headers": {"x-death": deaths}}))
    report = dead_letters.report(_feed(spark, journal), of.DeadLetterOptions(poison=3))
    figures = _figures(report)
    assert (figures["dead letters"], figures["of all messages"], figures["poison messages"]) == (3, 0.75, 1)
    assert [row[:4] for row in _part(report, "Where and why").rows] == [
        ("work", "rejected", 2, 1),
        ("work", "expired", 1, 1),
    ]
    assert _part(report, "Died 3 times or more").rows == [(3, "k", "work", "rejected", 5)]


def test_the_report_on_dead_letters_looks_for_them_once(spark: Any, journal: Journal) -> None:
    journal.append([b"1"], Envelope(properties={"headers": {"x-death": [_death("work", "rejected", 1)]}}))
    feed = _feed(spark, journal)
    read = spark.sparkContext.accumulator(0)

    def counted(batches: Any) -> Any:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    dead_letters.report(feed.mapInArrow(counted, feed.schema), of.DeadLetterOptions())
    assert read.value == 2, "once for the span, once for the letters"


# ------------------------------------------------------------------ top, anomalies, windows


def test_what_a_client_has_made_up_for_deaths_spoils_no_report(spark: Any, journal: Journal) -> None:
    whole = {"queue": "q", "reason": "expired", "count": 2, "exchange": "", "routing-keys": ["k"]}
    odd = {"queue": "odd", "reason": "expired", "count": 2**62, "routing-keys": []}
    for deaths in ([whole], [odd, odd], "text", 5, [], [5], [None], {"queue": "alone"}):
        journal.append([b""], Envelope(properties={"headers": {"x-death": deaths}}))
    found = {
        row["queue"]: (row["key"], row["times"])
        for row in dead_letters.dead_letters(_feed(spark, journal)).collect()
    }
    assert found["q"] == ("k", 2)
    assert found["odd"] == (None, 2**62)
    assert dead_letters.report(_feed(spark, journal), of.DeadLetterOptions()).figures


def test_top_has_those_without_a_value_and_those_that_weigh_nothing(spark: Any, journal: Journal) -> None:
    for body in (b'{"c": "a", "w": -1}', b'{"w": 1}', b'{"w": 2}'):
        journal.append([body])
    feed = _feed(spark, journal)
    country, weight = (f"get_json_object(cast(body as string), '$.{name}')" for name in "cw")
    counted = _part(top.report(feed, of.TopOptions(by=country)), "When they came")
    assert [(name, sum(row)) for name, row in zip(counted.rows, counted.values, strict=True)] == [
        ("None", 2),
        ("a", 1),
    ]
    weighed = top.report(feed, of.TopOptions(by=country, weight=f"cast({weight} as int)"))
    assert [row[:2] for row in _part(weighed, "The most").rows] == [(None, 3), ("a", -1)]
    page(weighed)
    assert _part(top.report(feed, of.TopOptions(weight="0")), "The most").rows == [("", 0.0, 3, 35, None)]


def test_top_is_by_weight(spark: Any, journal: Journal) -> None:
    for key, body in [("a.x", b"1"), ("a.y", b"1"), ("b.x", b"12345"), ("c", b"")]:
        journal.append([body], Envelope(key=key))
    feed = _feed(spark, journal)
    by_count = top.top(feed, "split_part(key, '.', 1)", 2).collect()
    assert [tuple(row) for row in by_count] == [("a", 2.0, 2, 2, 0.5), ("b", 1.0, 1, 5, 0.25)]
    by_bytes = top.top(feed, "split_part(key, '.', 1)", 1, "octet_length(body)").collect()
    assert [row["value"] for row in by_bytes] == ["b"]
    report = top.report(feed, of.TopOptions(count=2))
    assert isinstance(report.parts[0], HeatMap)
    assert len(report.parts[1].rows) == 2


def test_what_is_odd_is_flagged_and_what_is_usual_is_not(spark: Any, journal: Journal) -> None:
    for second in range(60):
        count = {20: 500, 40: 0, 50: 1}.get(second, 10 + second % 3)
        if count:
            journal.append([b"x"] * count, ts=EPOCH + second * SECOND)
    feed = _feed(spark, journal)
    whole = span(feed)
    assert whole is not None
    found = anomalies.flags(feed, whole, 1.0).orderBy("bucket").collect()
    assert [((row["bucket"] - EPOCH) // SECOND, row["what"], row["value"]) for row in found] == [
        (20, "burst", 500.0),
        (40, "silence", 0.0),
        (50, "drought", 1.0),
    ]
    report = anomalies.report(feed, of.AnomalyOptions(width=1.0))
    marked = report.parts[0]
    assert isinstance(marked, Lines)
    assert len(marked.marks) == 3
    assert isinstance(report.parts[1], Table)


def test_a_steady_feed_has_nothing_odd(spark: Any, journal: Journal) -> None:
    """It begins and ends within a bucket; another route has a message now and then, and once many."""
    for tenth in range(209, 603):
        journal.append([b"x"] * 3, ts=EPOCH + tenth * SECOND // 10)
        if count := {250: 1, 333: 2, 470: 30, 500: 1}.get(tenth):
            journal.append(
                [b"now and then"] * count, ts=EPOCH + tenth * SECOND // 10, source=Source("broker", "rare")
            )
    feed = _feed(spark, journal)
    whole = span(feed)
    assert whole is not None
    found = anomalies.flags(feed, whole, 1.0).collect()
    assert [((row["bucket"] - EPOCH) // SECOND, row["route"], row["what"]) for row in found] == [
        (47, "rare", "burst")
    ]


def test_slowness_is_flagged(spark: Any, journal: Journal) -> None:
    for second in range(40):
        ts = EPOCH + second * SECOND
        delay = 2000 if second == 30 else 10 + second % 2
        headers = {"timestamp_in_ms": ts // 1000 - delay}
        journal.append([b"x"] * 5, Envelope(properties={"headers": headers}), ts=ts)
    feed = _feed(spark, journal)
    whole = span(feed)
    assert whole is not None
    found = anomalies.flags(feed, whole, 1.0).collect()
    assert [(row["bucket"] - EPOCH) // SECOND for row in found if row["what"] == "slow"] == [30]


def test_windows_are_messages_with_counts(spark: Any, journal: Journal) -> None:
    for second, key in [(0, "a"), (1, "a"), (9, "b"), (10, "a")]:
        journal.append([b"xyz"], Envelope(key=key), ts=EPOCH + second * SECOND)
    rows = windows(_feed(spark, journal), of.WindowOptions(width=10)).collect()
    told = sorted(
        (
            row["key"],
            *(
                json.loads(bytes(row["body"]))[name]
                for name in ("messages", "bytes", "first_offset", "last_offset")
            ),
        )
        for row in rows
    )
    assert told == [("window.a", 1, 3, 3, 3), ("window.a", 2, 6, 0, 1), ("window.b", 1, 3, 2, 2)]
    bodies = [json.loads(bytes(row["body"])) for row in rows]
    assert {body["end"] - body["start"] for body in bodies} == {10 * SECOND}
