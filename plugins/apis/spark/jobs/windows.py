"""A streaming job: counts messages in windows of time, and sends each count as a message."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from plugins.apis.spark.jobs.feed import sized
from plugins.apis.spark.jobs.options import WindowOptions


def windows(feed: DataFrame, options: WindowOptions) -> DataFrame:
    """Return a message for each window and value: ``exchange``, ``key``, ``content_type``, a JSON ``body``.

    The body has start and end (µs since 1970), value, messages, bytes, and the first and last offset of the
    messages that were counted.  A window is sent once, when it can no longer change.
    """
    # Spark lets Python sinks append only.  So a window is written when the watermark has passed its end: the
    # latest time that was seen, less ``late``.
    micros = f"{int(options.width * 1e6)} microseconds"
    slide = f"{int((options.slide or options.width) * 1e6)} microseconds"
    value = F.expr(options.by).cast("string")
    counted = (
        sized(feed)
        .withColumn("value", value)
        .withWatermark("ts", f"{int(options.late * 1e6)} microseconds")
        .groupBy(F.window("ts", micros, slide).alias("span"), "value")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
        )
    )
    body = F.struct(
        F.unix_micros("span.start").alias("start"),
        F.unix_micros("span.end").alias("end"),
        "value",
        "messages",
        "bytes",
        "first_offset",
        "last_offset",
    )
    return counted.select(
        F.lit(options.exchange).alias("exchange"),
        F.concat_ws(".", F.lit(options.prefix), "value").alias("key"),
        F.lit("application/json").alias("content_type"),
        F.encode(F.to_json(body), "UTF-8").alias("body"),
    )
