"""The traffic report: counts, bytes, rates and latency, by route, by key and over time.

The functions from DataFrames to DataFrames work on any feed.  The report calls them with a narrow one
(``_narrow``): few columns without bodies, in which the user's expressions have been computed.  ``sized`` and
``timed`` leave columns alone that are there already.
"""

from __future__ import annotations

from collections import defaultdict

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from plugins.apis.spark.jobs import sequences
from plugins.apis.spark.jobs.feed import (
    Span,
    bucket,
    bucket_width,
    buckets,
    came_back,
    moments,
    rows_of,
    seconds_since,
    sized,
    span,
    timed,
)
from plugins.apis.spark.jobs.options import TrafficOptions
from plugins.apis.spark.report.drawing import SERIES_COLOURS
from plugins.apis.spark.report.findings import Figure, HeatMap, Lines, Part, Report, Table, Unit
from plugins.apis.spark.report.quantities import moment, spell

_UNITS: dict[str, Unit] = {
    "messages": "messages",
    "bytes": "bytes",
    "mean size": "bytes",
    "per second": "messages/s",
    "p50": "seconds",
    "p99": "seconds",
    "most": "seconds",
}
_ROUTES_DRAWN, _KEYS_DRAWN = 30, 24
_STEPS_A_DECADE = 4
"""Rows of the latency heat map."""


def per_route_and_key(feed: DataFrame, sent: str = "sent", by: str = "key") -> DataFrame:
    """Return a row for each engine, route and key: counts, bytes, rate, percentiles of latency (seconds).

    ``by`` is a SQL expression that takes the place of the key.
    """
    seconds = (F.max(F.unix_micros("ts")) - F.min(F.unix_micros("ts"))) / 1e6
    p50, p99 = _percentiles()
    return (
        timed(sized(feed), sent)
        .groupBy("engine", "route", F.expr(by).alias("key"))
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.avg("size").alias("mean size"),
            F.min("ts").alias("first"),
            F.max("ts").alias("last"),
            # n messages have n - 1 intervals between them.
            F.when(seconds > 0, (F.count("*") - 1) / seconds).alias("per second"),
            p50.alias("p50"),
            p99.alias("p99"),
            F.max("latency").alias("most"),
        )
    )


def over_time(feed: DataFrame, width: float) -> DataFrame:
    """Return a row for each bucket of ``width`` seconds and each route: ``bucket`` (µs), messages, bytes."""
    return (
        sized(feed)
        .groupBy(bucket(width).alias("bucket"), "engine", "route")
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )


def matrix(feed: DataFrame) -> DataFrame:
    """Return a row for each engine and route: messages, bytes."""
    return (
        sized(feed)
        .groupBy("engine", "route")
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )


def latencies(feed: DataFrame, width: float, sent: str = "sent") -> DataFrame:
    """Return a row for each bucket and step of latency: the number of messages.

    ``step`` n is ``10 ** (n / 4)`` µs and more.
    """
    # 1 µs at least: clocks of two machines may make a latency 0 or negative, which has no logarithm.
    step = F.floor(F.log10(F.greatest(F.col("latency") * 1e6, F.lit(1.0))) * _STEPS_A_DECADE).alias("step")
    return (
        timed(feed, sent)
        .where("latency is not null")
        .groupBy(bucket(width).alias("bucket"), step)
        .agg(F.count("*").alias("messages"))
    )


def report(feed: DataFrame, options: TrafficOptions) -> Report:
    """Return the report on a feed."""
    # Several queries use the feed.  It is read from the journal once, and Spark keeps the few columns that
    # they need, without the bodies.
    narrow = _narrow(feed, options).persist()
    try:
        whole = span(narrow)
        if whole is None:
            return Report(title="Traffic", figures=(), parts=(), note="The feed is empty.")
        return _report(narrow, whole, options)
    finally:
        narrow.unpersist()


def _narrow(feed: DataFrame, options: TrafficOptions) -> DataFrame:
    told = {"key": F.expr(options.by)}
    if options.number:
        told |= {"number": F.expr(options.number), "publisher": F.expr(options.publisher)}
    told["returned"] = F.when(came_back(feed), F.coalesce(seconds_since(options.sent), F.lit(float("nan"))))
    whole = timed(sized(feed), options.sent).withColumns(told)
    return whole.select("offset", "ts", "engine", "route", "size", "latency", *told)


def _report(feed: DataFrame, whole: Span, options: TrafficOptions) -> Report:
    width = bucket_width(whole)
    figures = [
        Figure(label="messages", value=whole.messages, unit="messages"),
        Figure(label="bytes", value=whole.bytes, unit="bytes"),
        Figure(label="took", value=whole.seconds, unit="seconds"),
        Figure(label="mean rate", value=whole.messages / whole.seconds, unit="messages/s"),
    ]
    parts: list[Part] = [_throughput(feed, whole, width)]
    figures += _returned_figures(feed)
    heat = _latency_map(feed, whole, width)
    if heat is not None:
        figures += _latency_figures(feed)
        parts.append(heat)
    if options.number:
        more = sequences.findings(feed, "number", "publisher", options.step)
        figures += more.figures
        parts += more.parts
    table = _keys_table(feed, options)
    parts += [_matrix_map(feed), _keys_map(table), table]
    return Report(title="Traffic", figures=figures, parts=parts)


def _percentiles() -> tuple[Column, Column]:
    # 1000: the rank of what is returned is exact to a thousandth of all values.  An exact percentile would
    # sort them.
    return F.percentile_approx("latency", 0.5, 1000), F.percentile_approx("latency", 0.99, 1000)


def _latency_figures(feed: DataFrame) -> list[Figure]:
    ((p50, p99, most),) = rows_of(feed.agg(*_percentiles(), F.max("latency")))
    return [
        Figure(label="latency, median", value=p50, unit="seconds"),
        Figure(label="latency, p99", value=p99, unit="seconds"),
        Figure(label="latency, most", value=most, unit="seconds"),
    ]


def _returned_figures(feed: DataFrame) -> list[Figure]:
    """Say how many messages came back from a dead-letter exchange; their latency counts nowhere else."""
    known = F.nanvl("returned", F.lit(None))
    ((count, median),) = rows_of(feed.agg(F.count("returned"), F.percentile_approx(known, 0.5, 1000)))
    if not count:
        return []
    returned = Figure(label="came back from dead letters", value=count, unit="messages")
    if median is None:
        return [returned]
    return [returned, Figure(label="after, median", value=median, unit="seconds")]


def _throughput(feed: DataFrame, whole: Span, width: float) -> Lines:
    starts = buckets(whole, width)
    counted: dict[str, dict[int, int]] = defaultdict(dict)
    for start, engine, route, messages, _ in rows_of(over_time(feed, width)):
        counted[f"{engine} · {route}" if route else str(engine)][start] = messages
    busiest = sorted(counted, key=lambda name: -sum(counted[name].values()))[:SERIES_COLOURS]
    return Lines(
        title="Throughput",
        times=moments(starts),
        series={name: [counted[name].get(start, 0) / width for start in starts] for name in busiest},
        unit="messages/s",
        note=f"Each point is {spell(width, 'seconds')}.",
    )


def _latency_map(feed: DataFrame, whole: Span, width: float) -> HeatMap | None:
    found = {(start, step): messages for start, step, messages in rows_of(latencies(feed, width))}
    if not found:
        return None
    starts = buckets(whole, width)
    # From high to low, as rows of a heat map are from top to bottom.
    steps = range(max(step for _, step in found), min(step for _, step in found) - 1, -1)
    duration = whole.last - whole.first
    return HeatMap(
        title="Latency",
        columns=[moment(when, duration) for when in moments(starts)],
        rows=[f"{spell(10 ** (step / _STEPS_A_DECADE) / 1e6, 'seconds')} and more" for step in steps],
        values=[[found.get((start, step), 0) for start in starts] for step in steps],
        unit="messages",
        note="The time from sending a message to storing it, without messages that came back from a "
        "dead-letter exchange. Each row is 1.8 times the row below it.",
    )


def _matrix_map(feed: DataFrame) -> HeatMap:
    cells = {(engine or "?", route or "-"): messages for engine, route, messages, _ in rows_of(matrix(feed))}
    engines, routes = (sorted({cell[side] for cell in cells}) for side in (0, 1))
    return HeatMap(
        title="The matrix",
        columns=routes,
        rows=engines,
        values=[[cells.get((engine, route), 0) for route in routes] for engine in engines],
        unit="messages",
        note="Messages by engine (rows) and route (columns).",
    )


def _keys_map(table: Table) -> HeatMap:
    """The busiest of a table's routes and keys."""
    cells: dict[tuple[str, str], int] = defaultdict(int)
    for engine, route, key, messages, *_ in table.rows:
        cells[f"{engine} · {route}" if route else str(engine), str(key)] += messages
    routes = list(dict.fromkeys(route for route, _ in cells))[:_ROUTES_DRAWN]
    keys = list(dict.fromkeys(key for _, key in cells))[:_KEYS_DRAWN]
    return HeatMap(
        title="What goes where",
        columns=keys,
        rows=routes,
        values=[[cells.get((route, key), 0) for key in keys] for route in routes],
        unit="messages",
        note="The busiest routes (rows) and keys (columns).",
    )


def _keys_table(feed: DataFrame, options: TrafficOptions) -> Table:
    # The defaults are right: in this feed ``key`` and ``latency`` are what the options say (``_narrow``).
    frame = per_route_and_key(feed).orderBy(F.desc("messages"), "engine", "route", "key").limit(options.keys)
    return Table(
        name="keys",
        title="Routes and keys",
        columns=frame.columns,
        rows=rows_of(frame),
        units=_UNITS,
        note="The busiest first.",
    )
