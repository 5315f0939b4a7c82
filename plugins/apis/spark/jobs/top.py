"""Top N: the values of an expression with the most messages, bytes or other weight."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import bucket, bucket_width, buckets, moments, rows_of, sized, span
from plugins.apis.spark.jobs.options import TopOptions
from plugins.apis.spark.report.findings import Figure, HeatMap, Report, Table
from plugins.apis.spark.report.quantities import moment


def top(feed: DataFrame, by: str = "key", count: int = 20, weight: str = "1") -> DataFrame:
    """Return the ``count`` values of ``by`` with the most weight: value, weight, messages, bytes, share.

    The share is of the weight of all values.
    """
    weighed = sized(feed).select(
        F.expr(by).cast("string").alias("value"), F.expr(weight).cast("double").alias("w"), "size"
    )
    return (
        weighed.groupBy("value")
        .agg(F.sum("w").alias("weight"), F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        # The sum may be 0 (bytes of empty bodies, for example): then there is no share, and no error.
        .withColumn("share", F.expr("try_divide(weight, sum(weight) over ())"))
        .orderBy(F.desc("weight"), "value")
        .limit(count)
    )


def report(feed: DataFrame, options: TopOptions) -> Report:
    """Return the report: the table, and a heat map of each value over time."""
    whole = span(feed)
    if whole is None:
        return Report(title="Top", figures=(), parts=(), note="The feed is empty.")
    rows = rows_of(top(feed, options.by, options.count, options.weight))
    width = bucket_width(whole)
    values = [row[0] for row in rows]
    # SQL's IN does not find null, which may be one of the values.
    known = F.col("value").isin(values) | (F.col("value").isNull() & F.lit(None in values))
    named = feed.withColumn("value", F.expr(options.by).cast("string")).where(known)
    counted = named.groupBy("value", bucket(width).alias("bucket")).agg(
        F.sum(F.expr(options.weight)).alias("weight")
    )
    cells = {(value, start): weight for value, start, weight in rows_of(counted)}
    starts = buckets(whole, width)
    return Report(
        title=f"Top {len(rows)} of {options.by}",
        figures=(
            Figure(label="of all weight", value=sum(row[4] or 0 for row in rows), unit="share"),
            Figure(label="most", value=str(values[0])),
        ),
        parts=(
            HeatMap(
                title="When they came",
                columns=[moment(when, whole.last - whole.first) for when in moments(starts)],
                rows=[str(value) for value in values],
                # A weight may be null or negative, and a heat map draws neither.
                values=[
                    [max(float(cells.get((value, start)) or 0), 0) for start in starts] for value in values
                ],
                unit="",
            ),
            Table(
                name="top",
                title="The most",
                columns=("value", "weight", "messages", "bytes", "share"),
                rows=rows,
                units={"messages": "messages", "bytes": "bytes", "share": "share"},
            ),
        ),
    )
