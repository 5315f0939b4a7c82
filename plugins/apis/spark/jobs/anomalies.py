"""Anomaly flags: bursts, droughts, silence and slowness, by the median and not by the mean.

A bucket is flagged when it is further from the median of its route than ``limit`` times the median distance
(scaled as a standard deviation is): what is odd does not raise the bar for what else is odd, as it would with
a mean.  The buckets in which the feed begins and ends are not whole: nothing is missing there.
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
    """Return the odd buckets: ``bucket`` (µs), engine, route, ``what``, its value, and the median of its route.

    ``what`` is ``burst``, ``drought`` (fewer than usual), ``silence`` (none at all) or ``slow`` (the 99th percentile of latency).
    """
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
    """Return the report: throughput with its odd moments marked, and the list of them."""
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
                note="Values in messages a second, of slowness in seconds.",
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
        note=f"Each point is {spell(width, 'seconds')}; marked is what is further than {limit:g} standard deviations "
        "from its route's median.",
    )


def _deviating(frame: DataFrame, column: str, limit: float, least_of_nothing: float) -> DataFrame:
    """Return the rows of ``frame`` whose ``column`` is far from its route's ``median``, which is added."""
    route = Window.partitionBy("engine", "route")
    known = frame.where(F.col(column).isNotNull()).withColumn("median", F.median(column).over(route))
    distance = F.abs(F.col(column) - F.col("median"))
    spread = known.withColumn("spread", F.median(distance).over(route) * _SIGMA)
    # Of a route that is always the same, or nearly, a tenth of the median is the least that counts.
    tenth = F.when(F.col("median") == 0, least_of_nothing).otherwise(F.col("median") * 0.1)
    least = F.greatest(F.col("spread"), tenth)
    return spread.where((distance > least * limit) & (distance > 0))


def _same_bucket() -> list[Column]:
    return [F.col(f"full.{name}").eqNullSafe(F.col(f"m.{name}")) for name in ("bucket", "engine", "route")]


def _is_whole(whole: Span, width: float) -> Column:
    """Whether the feed was there from a bucket's beginning to its end."""
    first, last = (round(when.timestamp() * 1e6) for when in (whole.first, whole.last))
    return (F.col("bucket") >= first) & (F.col("bucket") + int(width * 1e6) <= last)


def _edges(whole: Span, width: float) -> tuple[int, int, int]:
    starts = buckets(whole, width)
    return starts[0], starts[-1], int(width * 1e6)


def _value(what: str, value: float) -> str:
    return spell(value, "seconds" if what == "slow" else "messages/s")
