"""Gaps, duplicates and reordering in numbers that publishers count up.

The numbers come from messages, and a publisher (or anybody) may send any ``bigint``.  Two of them may be
further apart than a ``bigint`` holds, and Spark's SQL raises when a sum overflows.  So differences are
computed as decimals or with ``try_`` functions: one strange number must not end the report.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import rows_of
from plugins.apis.spark.report.findings import Figure, Report, Table

GAPS_SHOWN = 500
_WIDE = "decimal(20,0)"
"""The SQL type for counts of missing numbers, which may exceed a ``bigint``."""


def numbered(feed: DataFrame, number: str, publisher: str = "engine") -> DataFrame:
    """Return ``offset``, ``publisher`` and ``number`` of all messages that have a number."""
    # ``try_cast``: a value that is no number becomes null, and the message is left out.
    columns = feed.select(
        "offset", F.expr(publisher).alias("publisher"), F.expr(number).try_cast("long").alias("number")
    )
    return columns.where("number is not null")


def summary(feed: DataFrame, number: str, publisher: str = "engine", step: int = 1) -> DataFrame:
    """Return a row for each publisher: messages, first, last, missing, duplicates, reordered.

    A message is ``reordered`` if a later number of its publisher stands before it in the journal, unless it
    is a duplicate.
    """
    # ``offset`` is the order of arrival.  A number was overtaken if a higher one came before it.  It is a
    # duplicate if the same one came before it.
    by_publisher = Window.partitionBy("publisher")
    before = by_publisher.orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    times = Window.partitionBy("publisher", "number").orderBy("offset")
    marked = (
        numbered(feed, number, publisher)
        .withColumn("most_before", F.max("number").over(before))
        .withColumn("time", F.row_number().over(times))
    )
    first_time = F.col("time") == 1
    return (
        marked.groupBy("publisher")
        .agg(
            F.count("*").alias("messages"),
            F.min("number").alias("first"),
            F.max("number").alias("last"),
            F.count_if(first_time).alias("distinct"),
            F.count_if(~first_time).alias("duplicates"),
            F.count_if(first_time & (F.col("most_before") > F.col("number"))).alias("reordered"),
        )
        .withColumn("missing", F.expr(f"cast({_steps('first', 'last', step)} + 1 - distinct as {_WIDE})"))
        .select("publisher", "messages", "first", "last", "missing", "duplicates", "reordered")
    )


def gaps(feed: DataFrame, number: str, publisher: str = "engine", step: int = 1) -> DataFrame:
    """Return a row for each range of missing numbers: publisher, first, last, missing, ``before offset``.

    ``before offset`` is the offset of the message with the next number that exists.
    """
    # The numbers that exist in ascending order: a gap is where two neighbours are more than a step apart.
    in_order = Window.partitionBy("publisher").orderBy("number")
    distinct = (
        numbered(feed, number, publisher).groupBy("publisher", "number").agg(F.min("offset").alias("offset"))
    )
    return (
        distinct.withColumn("before", F.lag("number").over(in_order))
        # Null: the difference is more than a ``bigint`` holds, and so more than a step.
        .where(F.expr(f"before is not null and coalesce(try_subtract(number, before) > {int(step)}, true)"))
        .select(
            "publisher",
            F.try_add("before", F.lit(step).cast("long")).alias("first"),
            F.try_subtract("number", F.lit(step).cast("long")).alias("last"),
            F.expr(f"cast({_steps('before', 'number', step)} - 1 as {_WIDE})").alias("missing"),
            F.col("offset").alias("before offset"),
        )
    )


def _steps(low: str, high: str, step: int) -> str:
    """Return the SQL for the number of whole steps between two numbers.

    They may be further apart than the highest ``bigint``.
    """
    # The remainder is subtracted first: ``div`` returns a ``bigint``, and ``/`` alone a fraction.
    apart = f"(cast({high} as {_WIDE}) - {low})"
    return f"({apart} - {apart} % {int(step)}) / {int(step)}"


def _whole(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows, decimals as integers."""
    rows = rows_of(frame)
    return [tuple(int(value) if isinstance(value, Decimal) else value for value in row) for row in rows]


def findings(feed: DataFrame, number: str, publisher: str, step: int) -> Report:
    """Return figures and tables for a report."""
    found = summary(feed, number, publisher, step).orderBy("publisher")
    rows = _whole(found)
    holes = (
        gaps(feed, number, publisher, step).orderBy(F.desc("missing"), "publisher", "first").limit(GAPS_SHOWN)
    )
    places = {name: found.columns.index(name) for name in ("missing", "duplicates", "reordered")}
    totals = {name: sum(row[place] for row in rows) for name, place in places.items()}
    parts = [
        Table(
            name="sequences",
            title="Sequences",
            columns=found.columns,
            rows=rows,
            units={"messages": "messages"},
        ),
    ]
    if totals["missing"]:
        parts.append(
            Table(
                name="gaps",
                title="Gaps",
                columns=holes.columns,
                rows=_whole(holes),
                units={},
                note="The widest first.",
            )
        )
    figures = [
        Figure(label=name, value=total, unit="messages", bad=total > 0 and name != "reordered")
        for name, total in totals.items()
    ]
    return Report(title="Sequences", figures=figures, parts=parts)
