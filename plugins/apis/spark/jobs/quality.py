"""Data quality: do bodies have the fields of a declared schema, and do they meet conditions?

A check is a SQL condition over the fields of the schema.  As with a table's CHECK, a condition that is null
counts as met.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from plugins.apis.spark.jobs.bodies import decoded
from plugins.apis.spark.jobs.feed import Span, bucket, bucket_width, buckets, moments, rows_of, span
from plugins.apis.spark.jobs.options import QualityOptions
from plugins.apis.spark.report.findings import Figure, Lines, Report, Table

UNREADABLE = "unreadable"
_FEED, _TEXT, _CORRUPT, _READ = "__feed", "__text", "__corrupt", "__read"
"""Columns beside the fields of the schema, whose names are the user's: a field may be called ``offset``."""


def violations(feed: DataFrame, options: QualityOptions) -> DataFrame:
    """Return a row for each check that a message breaks: offset, ts, key, check, text.

    A message that cannot be read, or has a field of another type, has one row, with the check ``unreadable``.
    """
    schema = cast("StructType", StructType.fromDDL(options.schema))
    told = decoded(feed, options.format, options.schema_file, options.message)
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    value = F.from_json("text", StructType(schema.fields).add(_CORRUPT, "string"), how)
    # Of an empty text ``from_json`` makes null, and does not call it corrupt.
    read = F.col("value").isNotNull()
    # The text of the other formats was made by ``bodies.py``, and is one value of JSON.
    if options.format == "json":
        read &= _is_one_value("text")
    whole = told.withColumn("value", value).select(
        F.struct("offset", "ts", "key").alias(_FEED),
        F.col("text").alias(_TEXT),
        read.alias(_READ),
        "value.*",
    )
    unreadable = ~F.col(_READ) | F.col(_CORRUPT).isNotNull()
    broken = [
        _broken(f"{field.name} is missing", F.col(_quoted(field.name)).isNull())
        for field in schema
        if not field.nullable
    ]
    # The negation of null is null, which ``when`` takes for false: the check is met.
    broken += [_broken(name, ~F.expr(condition)) for name, condition in options.checks.items()]
    none = F.array().cast("array<string>")
    names = F.when(unreadable, F.array(F.lit(UNREADABLE))).otherwise(
        F.filter(F.array(*broken), F.isnotnull) if broken else none
    )
    return whole.select(f"{_FEED}.*", F.explode(names).alias("check"), F.col(_TEXT).alias("text"))


def report(feed: DataFrame, options: QualityOptions) -> Report:
    """Return the report on a feed's bodies."""
    whole = span(feed)
    if whole is None:
        return Report(title="Data quality", figures=(), parts=(), note="The feed is empty.")
    # Kept, because four queries use it, and reading all bodies as JSON is the expensive part.
    found = violations(feed, options).persist()
    try:
        bad = found.select("offset").distinct().count()
        return Report(
            title="Data quality",
            figures=(
                Figure(label="messages", value=whole.messages, unit="messages"),
                Figure(label="good", value=1 - bad / whole.messages, unit="share"),
                Figure(label="bad", value=bad, unit="messages", bad=bad > 0),
            ),
            parts=(_over_time(found, whole), _checks(found, whole), _samples(found, options.samples)),
        )
    finally:
        found.unpersist()


def _checks(found: DataFrame, whole: Span) -> Table:
    counted = found.groupBy("check").agg(
        F.count("*").alias("messages"), F.min("offset").alias("first offset")
    )
    rows = rows_of(counted.orderBy(F.desc("messages"), "check"))
    return Table(
        name="checks",
        title="What is broken",
        columns=(*counted.columns, "share"),
        rows=[(*row, row[1] / whole.messages) for row in rows],
        units={"messages": "messages", "share": "share"},
    )


def _samples(found: DataFrame, count: int) -> Table:
    start = F.substr("text", F.lit(1), F.lit(200))
    samples = found.select("offset", "ts", "key", "check", start.alias("body")).orderBy("offset", "check")
    return Table(
        name="samples",
        title="For example",
        columns=samples.columns,
        rows=rows_of(samples.limit(count)),
        units={},
    )


def _is_one_value(text: str) -> Column:
    """Return the condition that a text is one value of JSON, with nothing after it.

    Spark stops reading at the end of a value.  Without this condition a body that was cut wrongly, or two
    bodies in one, would count as good.
    """
    # The text is put into an array and into an object, and both have to be read with what comes after the
    # text.  In the array the text could be followed by a comma or a bracket, in the object by a comma and a
    # name.  In both it can be followed only by white space.
    listed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "array<string>")
    within = F.from_json(F.concat(F.lit('{"text":'), text, F.lit(',"end":1}')), "`end` int")
    return F.coalesce((F.size(listed) == 1) & within["end"].isNotNull(), F.lit(False))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _broken(name: str, condition: Column) -> Column:
    return F.when(condition, F.lit(name))


def _over_time(found: DataFrame, whole: Span) -> Lines:
    width = bucket_width(whole)
    starts = buckets(whole, width)
    counts: dict[str, dict[int, int]] = {}
    for start, check, messages in rows_of(found.groupBy(bucket(width), "check").agg(F.count("*"))):
        counts.setdefault(check, {})[start] = messages
    return Lines(
        title="Broken checks over time",
        times=moments(starts),
        series={name: [there.get(start, 0) / width for start in starts] for name, there in counts.items()},
        unit="messages/s",
    )
