"""Session reconstruction: a session is a series of messages of one sender without a long pause."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import Span, bucket_width, buckets, moments, rows_of, sized, span
from plugins.apis.spark.jobs.options import SessionOptions
from plugins.apis.spark.report.findings import Figure, Lines, Report, Table, Unit

_UNITS: dict[str, Unit] = {"messages": "messages", "bytes": "bytes", "seconds": "seconds"}


def sessions(feed: DataFrame, who: str = "key", pause: float = 30.0) -> DataFrame:
    """Return a row for each session: who, first, last, seconds, messages, bytes, first and last offset."""
    named = sized(feed).withColumn("who", F.expr(who).cast("string")).where("who is not null")
    # Microseconds, which are whole numbers also where a pause is a part of a second.
    gap = F.session_window("ts", f"{int(pause * 1e6)} microseconds")
    return (
        named.groupBy("who", gap)
        .agg(
            F.min("ts").alias("first"),
            F.max("ts").alias("last"),
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("offset").alias("first offset"),
            F.max("offset").alias("last offset"),
        )
        .withColumn("seconds", (F.unix_micros("last") - F.unix_micros("first")) / 1e6)
        .select("who", "first", "last", "seconds", "messages", "bytes", "first offset", "last offset")
    )


def report(feed: DataFrame, options: SessionOptions) -> Report:
    """Return the report on a feed's sessions."""
    whole = span(feed)
    if whole is None:
        return Report(title="Sessions", figures=(), parts=(), note="The feed is empty.")
    # Kept: three queries use it, and to find the sessions Spark has to sort the feed by sender.
    found = sessions(feed, options.who, options.pause).persist()
    try:
        return Report(
            title="Sessions",
            figures=_figures(found),
            parts=(_at_a_time(found, whole), _longest(found, options.shown)),
        )
    finally:
        found.unpersist()


def _figures(found: DataFrame) -> list[Figure]:
    median = F.percentile_approx("seconds", 0.5)
    ((count, senders, usual, most),) = rows_of(
        found.agg(F.count("*"), F.count_distinct("who"), median, F.max("messages"))
    )
    return [
        Figure(label="sessions", value=count, unit="messages"),
        Figure(label="senders", value=senders, unit="messages"),
        Figure(label="median length", value=usual, unit="seconds"),
        Figure(label="most messages", value=most, unit="messages"),
    ]


def _at_a_time(found: DataFrame, whole: Span) -> Lines:
    width = bucket_width(whole)
    starts = buckets(whole, width)
    times = rows_of(found.select(F.unix_micros("first"), F.unix_micros("last")))
    return Lines(
        title="Sessions at a time",
        times=moments(starts),
        series={"sessions": _open_at(times, starts, int(width * 1e6))},
        unit="messages",
    )


def _longest(found: DataFrame, shown: int) -> Table:
    table = found.orderBy(F.desc("seconds"), "who", "first").limit(shown)
    return Table(
        name="sessions", title="The longest", columns=table.columns, rows=rows_of(table), units=_UNITS
    )


def _open_at(times: Sequence[tuple[int, int]], starts: Sequence[int], width: int) -> list[float | None]:
    """Count the sessions open in each bucket: begun before its end, less those that were over before it."""
    # Two sorted lists and a binary search for each bucket, and not each session in each bucket: there may be
    # many thousands of sessions.
    begun = sorted(first for first, _ in times)
    over = sorted(last for _, last in times)
    return [bisect_left(begun, start + width) - bisect_left(over, start) for start in starts]
