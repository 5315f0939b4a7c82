"""Dead-letter analysis: messages that were rejected, expired or dropped, where and why, and poison messages.

It reads the header ``x-death`` that AMQP brokers write (https://www.rabbitmq.com/docs/dlx), so that it works
on every feed through which dead letters pass.  The header is an array, the latest death first, with one entry
for each queue and reason and a count in each.  A client can write it too, so nothing in it is sure to be
there, or to have a sensible value.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import Span, bucket, bucket_width, buckets, moments, rows_of, span
from plugins.apis.spark.jobs.options import DeadLetterOptions
from plugins.apis.spark.report.findings import Figure, Lines, Report, Table

_DEATHS = (
    "array<struct<queue string, reason string, count bigint, exchange string, `routing-keys` array<string>>>"
)


def dead_letters(feed: DataFrame) -> DataFrame:
    """Return a row for each dead letter: offset, ts, key, the latest death, the number of deaths, a hash.

    The latest death has three columns: queue, reason and exchange.
    """
    deaths = F.from_json(F.get_json_object("headers", "$.x-death"), _DEATHS)
    return (
        # A search for text is much quicker than JSON, and leaves few rows for it.
        feed.where("headers like '%x-death%'")
        .withColumn("deaths", deaths)
        .where(F.size("deaths") > 0)
        .select(
            "offset",
            "ts",
            # Spark's SQL raises by default (ANSI mode), and one strange message would end the whole report.
            # Here and below ``try_`` functions return null instead.
            F.try_element_at(F.col("deaths")[0]["routing-keys"], F.lit(1)).alias("key"),
            F.col("deaths")[0]["queue"].alias("queue"),
            F.col("deaths")[0]["reason"].alias("reason"),
            F.col("deaths")[0]["exchange"].alias("exchange"),
            # A death without a count is one.  A count that would make the sum overflow is left out.
            F.aggregate(
                "deaths",
                F.lit(0).cast("long"),
                lambda total, death: F.coalesce(
                    F.try_add(total, F.coalesce(death["count"], F.lit(1))), total
                ),
            ).alias("times"),
            F.xxhash64("body").alias("body_hash"),
        )
    )


def causes(letters: DataFrame) -> DataFrame:
    """Return a row for each queue and reason: messages, keys, first, last."""
    return letters.groupBy("queue", "reason").agg(
        F.count("*").alias("messages"),
        F.count_distinct("key").alias("keys"),
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
    )


def poison(letters: DataFrame, times: int = 3) -> DataFrame:
    """Return the poison messages: how often each died, where last, and its latest offset.

    A message that died and was sent again is a new row of the feed.  All its rows have equal bodies.  From
    ``times`` deaths on a message is poison.
    """
    return (
        letters.groupBy("body_hash")
        .agg(
            F.max("times").alias("times"),
            F.max_by("queue", "offset").alias("queue"),
            F.max_by("reason", "offset").alias("reason"),
            F.max_by("key", "offset").alias("key"),
            F.max("offset").alias("offset"),
        )
        .where(F.col("times") >= times)
        .select("offset", "key", "queue", "reason", "times")
    )


def report(feed: DataFrame, options: DeadLetterOptions) -> Report:
    """Return the report on a feed's dead letters."""
    whole = span(feed)
    # Kept for three queries: the letters are few, and to find them takes a look at all headers of the feed.
    letters = dead_letters(feed).persist()
    try:
        by_cause = rows_of(causes(letters).orderBy(F.desc("messages"), "queue", "reason"))
        if whole is None or not by_cause:
            return Report(title="Dead letters", figures=(), parts=(), note="There are none.")
        return _report(letters, whole, by_cause, options)
    finally:
        letters.unpersist()


def _report(
    letters: DataFrame, whole: Span, by_cause: list[tuple[Any, ...]], options: DeadLetterOptions
) -> Report:
    total = sum(row[2] for row in by_cause)
    again = poison(letters, options.poison).orderBy(F.desc("times"), "offset").limit(options.shown)
    repeated = rows_of(again)
    return Report(
        title="Dead letters",
        figures=(
            Figure(label="dead letters", value=total, unit="messages", bad=True),
            Figure(label="of all messages", value=total / whole.messages, unit="share"),
            Figure(label="poison messages", value=len(repeated), unit="messages", bad=bool(repeated)),
        ),
        parts=(
            _over_time(letters, whole),
            Table(
                name="causes",
                title="Where and why",
                columns=("queue", "reason", "messages", "keys", "first", "last"),
                rows=by_cause,
                units={"messages": "messages", "keys": "messages"},
            ),
            Table(
                name="poison",
                title=f"Died {options.poison} times or more",
                columns=again.columns,
                rows=repeated,
                units={"times": "messages"},
            ),
        ),
    )


def _over_time(letters: DataFrame, whole: Span) -> Lines:
    width = bucket_width(whole)
    starts = buckets(whole, width)
    counts: dict[str, dict[int, int]] = {}
    counted = letters.groupBy(bucket(width), "reason").agg(F.count("*"))
    for start, reason, messages in rows_of(counted):
        counts.setdefault(str(reason), {})[start] = messages
    return Lines(
        title="When they died",
        times=moments(starts),
        series={name: [found.get(start, 0) / width for start in starts] for name, found in counts.items()},
        unit="messages/s",
    )
