"""The job: makes a report of a feed."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from plugins.apis.spark.report.findings import Figure, Report, Table


def report(feed: Any, options: Any) -> Report:
    """Return the report: the longest messages, where they are and how long."""
    sized = feed.select("offset", "key", F.octet_length("body").alias("bytes"))
    rows = [tuple(row) for row in sized.orderBy(F.desc("bytes"), "offset").limit(options.count).collect()]
    return Report(
        title="The longest messages",
        figures=[Figure(label="longest", value=rows[0][2] if rows else 0, unit="bytes")],
        parts=[
            Table(
                name="longest", title="One by one", columns=sized.columns, rows=rows, units={"bytes": "bytes"}
            )
        ],
    )
