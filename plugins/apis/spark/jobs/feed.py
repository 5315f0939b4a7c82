"""What all jobs share: more columns for the feed, and the buckets of time for the charts.

When a message was sent, or which number it has, only its publisher knows: it may be in a header or in the
body.  So such values are SQL expressions over the feed's columns, which the user gives.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

BUCKETS = 120
"""About the largest number of points of a chart over time."""
_WIDTHS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400)
"""Round widths of a bucket, in seconds."""


class Span(msgspec.Struct, frozen=True):
    """The size of a feed, and its first and last time."""

    messages: int
    bytes: int
    first: datetime
    last: datetime

    @property
    def seconds(self) -> float:
        """From the first message to the last; never 0."""
        return max((self.last - self.first).total_seconds(), 1e-6)


def sized(feed: DataFrame) -> DataFrame:
    """Add ``size``, the bytes of the body, if it is not there."""
    if "size" in feed.columns:
        return feed
    return feed.withColumn("size", F.coalesce(F.octet_length("body"), F.lit(0)).cast("long"))


def timed(feed: DataFrame, sent: str) -> DataFrame:
    """Add ``latency``, the seconds from ``sent`` until the message was stored, if it is not there.

    ``sent`` is a SQL expression for a timestamp.  The latency of a message that came back from a dead-letter
    exchange is null: one that was tried again after an hour would spoil every percentile.
    """
    if "latency" in feed.columns:
        return feed
    return feed.withColumn("latency", F.when(~came_back(feed), seconds_since(sent)))


def seconds_since(sent: str) -> Column:
    """Return the seconds from ``sent``, a SQL expression for a timestamp, until the message was stored."""
    return (F.unix_micros("ts") - F.unix_micros(F.expr(sent))) / 1e6


def came_back(feed: DataFrame) -> Column:
    """Return whether a message came back from a dead-letter exchange: AMQP brokers note it in ``x-death``."""
    if "headers" not in feed.columns:
        return F.lit(False)
    return F.coalesce(F.col("headers").contains('"x-death":'), F.lit(False))


def span(feed: DataFrame) -> Span | None:
    """Return the size of a feed; None if it is empty."""
    row: Any = (
        sized(feed)
        .agg(F.count("*"), F.sum("size"), *(f(F.unix_micros("ts")) for f in (F.min, F.max)))
        .first()
    )
    if not row[0]:
        return None
    return Span(row[0], row[1], _moment(row[2]), _moment(row[3]))


def bucket_width(span: Span) -> float:
    """Return the seconds of a bucket, a round number, so that there are about ``BUCKETS`` at the most."""
    return next((width for width in _WIDTHS if span.seconds / width < BUCKETS), span.seconds / BUCKETS)


def bucket(width: float) -> Column:
    """Return the start of a message's bucket, in microseconds since 1970."""
    # ``pmod``: of a time before 1970 ``%`` would be negative.
    micros = F.lit(int(width * 1e6))
    return F.unix_micros("ts") - F.pmod(F.unix_micros("ts"), micros)


def buckets(span: Span, width: float) -> list[int]:
    """Return the starts of all buckets from the first message to the last, also of those that are empty."""
    # As ``bucket`` rounds down: a chart finds its values by the starts of their buckets.
    micros = int(width * 1e6)
    first, last = (round(when.timestamp() * 1e6) for when in (span.first, span.last))
    return list(range(first - first % micros, last + 1, micros))


def moments(starts: list[int]) -> list[datetime]:
    """Return buckets as times."""
    return [_moment(start) for start in starts]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows, times in UTC."""
    # Spark returns times without a zone, as this machine's local time.
    return [tuple(map(_plain, row)) for row in frame.collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(value) if isinstance(value, Row) else value


def _moment(micros: int) -> datetime:
    # Not ``fromtimestamp``: a float does not have all microseconds.
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
