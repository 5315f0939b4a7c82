"""Anomalies: bursts, droughts, silence and slowness, found by the median and not by the mean.

Time is divided into buckets.  A bucket is flagged when its value is further from the median of its route than
``limit`` times the median distance (scaled to a standard deviation).  With a mean a large anomaly would raise
the limit and hide others; a median does not change because of a few extreme values.  The first and the last
bucket of a feed are not whole, so that few messages in them are no drought.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import (
    Span,
    bucket,
    bucket_width,
    buckets,
    moments,
    rows_of,
    sized,
    span,
    timed,
)
from plugins.apis.spark.jobs.options import AnomalyOptions
from plugins.apis.spark.report.findings import Figure, Lines, Report, Table
from plugins.apis.spark.report.quantities import spell

_SIGMA = 1.4826
"""A normal distribution's standard deviation in median absolute deviations."""


def flags(feed: DataFrame, whole: Span, width: float, *, limit: float = 5.0, sent: str = "sent") -> DataFrame:
    """Return the flagged buckets: ``bucket`` (µs), engine, route, ``what``, its value, its route's median.

    ``what`` is ``burst``, ``drought`` (fewer than usual), ``silence`` (none at all) or ``slow`` (the 99th
    percentile of latency).
    """
    # A bucket without messages has no row in the feed.  So all buckets of all routes are made first, and the
    # counts are joined to them: otherwise silence would not be found, and the median would be too high.
    starts = F.explode(F.sequence(*(F.lit(edge) for edge in _edges(whole, width)))).alias("bucket")
    routes = feed.select("engine", "route").distinct()
    measured = (
        timed(sized(feed), sent)
        .groupBy(bucket(width).alias("bucket"), "engine", "route")
        .agg(F.count("*").alias("messages"), F.percentile_approx("latency", 0.99, 1000).alias("latency"))
    )
    full = (
        routes.select("*", starts)
        .alias("full")
        .join(measured.alias("m"), _same_bucket(), "left")
        .select(
            "full.bucket",
            "full.engine",
            "full.route",
            F.coalesce("messages", F.lit(0)).alias("messages"),
            "latency",
        )
    )
    rates = (
        _deviating(full, "messages", limit, 1.0)
        .withColumn(
            "what",
            F.when(F.col("messages") == 0, "silence")
            .when(F.col("messages") > F.col("median"), "burst")
            .otherwise("drought"),
        )
        # Too many messages are too many also in a part of a bucket.
        .where(_is_whole(whole, width) | (F.col("what") == "burst"))
    )
    slow = (
        _deviating(full, "latency", limit, 0.001).where("latency > median").withColumn("what", F.lit("slow"))
    )
    columns = ("bucket", "engine", "route", "what")
    return rates.select(
        *columns, (F.col("messages") / width).alias("value"), (F.col("median") / width).alias("median")
    ).union(slow.select(*columns, F.col("latency").alias("value"), "median"))


def report(feed: DataFrame, options: AnomalyOptions) -> Report:
    """Return the report: throughput with the anomalies marked, and a table of them."""
    whole = span(feed)
    if whole is None:
        return Report(title="Anomalies", figures=(), parts=(), note="The feed is empty.")
    width = options.width or bucket_width(whole)
    found = flags(feed, whole, width, limit=options.limit, sent=options.sent).orderBy("bucket", "what")
    rows = [(moments([start])[0], *rest) for start, *rest in rows_of(found)]
    counts = {kind: sum(row[3] == kind for row in rows) for kind in ("burst", "drought", "silence", "slow")}
    return Report(
        title="Anomalies",
        figures=[
            Figure(label=kind, value=count, unit="messages", bad=count > 0) for kind, count in counts.items()
        ],
        parts=(
            _marked(feed, whole, width, rows, options.limit),
            Table(
                name="anomalies",
                title="One by one",
                columns=("from", "engine", "route", "what", "value", "median"),
                rows=rows,
                units={},
                note="Values are messages per second, and seconds for slowness.",
            ),
        ),
    )


def _marked(feed: DataFrame, whole: Span, width: float, rows: list[tuple[Any, ...]], limit: float) -> Lines:
    starts = buckets(whole, width)
    counted = dict(rows_of(feed.groupBy(bucket(width)).agg(F.count("*"))))
    return Lines(
        title="Throughput, and what is odd",
        times=moments(starts),
        series={"all": [counted.get(start, 0) / width for start in starts]},
        unit="messages/s",
        marks=[(row[0], f"{row[1]} {row[2] or ''}: {row[3]}, {_value(row[3], row[4])}") for row in rows],
        note=f"Each point is {spell(width, 'seconds')}. Values that are more than {limit:g} standard "
        "deviations away from the median of their route are marked.",
    )


def _deviating(frame: DataFrame, column: str, limit: float, least_of_nothing: float) -> DataFrame:
    """Return the rows of ``frame`` whose ``column`` is far from its route's ``median``, which is added."""
    route = Window.partitionBy("engine", "route")
    known = frame.where(F.col(column).isNotNull()).withColumn("median", F.median(column).over(route))
    distance = F.abs(F.col(column) - F.col("median"))
    spread = known.withColumn("spread", F.median(distance).over(route) * _SIGMA)
    # A route whose values are nearly always the same has a distance near 0, and every small change would be
    # flagged.  So the distance counts as a tenth of the median at least.  A route that is silent most of the
    # time has a median of 0; there ``least_of_nothing`` takes the place of the tenth.
    tenth = F.when(F.col("median") == 0, least_of_nothing).otherwise(F.col("median") * 0.1)
    least = F.greatest(F.col("spread"), tenth)
    return spread.where((distance > least * limit) & (distance > 0))


def _same_bucket() -> list[Column]:
    return [F.col(f"full.{name}").eqNullSafe(F.col(f"m.{name}")) for name in ("bucket", "engine", "route")]


def _is_whole(whole: Span, width: float) -> Column:
    """Return the condition that the feed covers a bucket from its beginning to its end."""
    first, last = (round(when.timestamp() * 1e6) for when in (whole.first, whole.last))
    return (F.col("bucket") >= first) & (F.col("bucket") + int(width * 1e6) <= last)


def _edges(whole: Span, width: float) -> tuple[int, int, int]:
    starts = buckets(whole, width)
    return starts[0], starts[-1], int(width * 1e6)


def _value(what: str, value: float) -> str:
    return spell(value, "seconds" if what == "slow" else "messages/s")
