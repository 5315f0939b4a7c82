"""Spark over a journal, beside Spark's own scan of the same rows as Parquet (snappy).

Messages have 100 B; all runs in one session.
"""

from __future__ import annotations

from benchmarks import spark_session
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side, Unavailable

COUNT = 3_000_000
TIMEOUT = 600.0
_CEILING = "one batch, again and again"
"""What Spark takes for rows that a source in Python does nothing for: see ``spark_ceiling.py``."""
_SMALL = "all columns, from commits of 1,000"
_STREAM_CEILING = "stream of one batch"
_SINK_CEILING = "stream of one batch, thrown away in Python"
_children: dict[int, Child] = {}
"""The session, by the number of its rows: it is started once a batch, and ends with it."""


def _ask(question: str, scale: float) -> Figures:
    count = int(COUNT * scale) // 1000 * 1000
    if count not in _children:
        child = Child(spark_session.serve, count)
        try:
            child.hear(seconds=TIMEOUT)
        except Exception as error:
            raise Unavailable(f"no Spark session: {error}") from error
        _children[count] = child
    _children[count].say(question)
    figures: Figures = _children[count].hear(seconds=TIMEOUT)
    return figures


def _side(name: str, question: str) -> Side:
    return Side(name, lambda scale: _ask(question, scale))


def _aim(text: str, **figures: float) -> Side:
    return Side(f"the aim: {text}", lambda scale: dict(figures))


def _seconds(name: str, what: str, bar: str, side: str, peer: str, *also: str) -> Row:
    return Row(
        name=f"spark_{name}",
        what=what,
        figure="seconds",
        unit="s",
        bar=bar,
        ours=side,
        peers=(peer,),
        also=also,
    )


def _rate(name: str, what: str, side: str, aim: str, *also: str) -> Row:
    return Row(
        name=f"spark_{name}",
        what=what,
        figure="rate",
        unit="msg/s",
        bar=">= 1.0",
        ours=side,
        peers=(f"the aim: {aim}",),
        also=also,
    )


def _latency(figure: str, aim: str) -> Row:
    return Row(
        name=f"spark_latency_{figure}",
        what=f"sent into a journal → row of a running micro-batch in another, {figure}",
        figure=figure,
        unit="s",
        bar="<= 1.0",
        ours="latency",
        peers=(f"the aim: {aim}",),
    )


def _remarks(measured: Measured) -> list[str]:
    spark, arrow = measured.median("group", "seconds"), measured.median("pyarrow, group", "seconds")
    least, parquet = measured.median(_CEILING, "seconds"), measured.median("parquet, all columns", "seconds")
    if not spark or not arrow or not least or not parquet:
        return []
    return [
        "A Python source that only hands over one batch of all columns again and again, read once, takes "
        f"{least:.2f} s for as many rows, {least / parquet:.2f} times as long as Parquet: "
        "but for noise, no source in Python is quicker.",
        f"The same group-by by `kernel journal`, with pyarrow and without Spark, takes {arrow:.2f} s where "
        f"Spark takes {spark:.2f} s: on one machine it is the better tool for a quick question.",
    ]


SCENARIO = Scenario(
    name="spark",
    sides=(
        _side("all columns", "kernel_all"),
        _side("parquet, all columns", "parquet_all"),
        _side(_CEILING, "one_batch_all"),
        _side(_SMALL, "small_commits_all"),
        _side("group", "kernel_group"),
        _side("parquet, group", "parquet_group"),
        _side("pyarrow, group", "pyarrow_group"),
        _side("range", "kernel_range"),
        _side("parquet, range", "parquet_range"),
        _side("stream", "stream_noop"),
        _side(_STREAM_CEILING, "one_batch_noop"),
        _side("stream of four columns", "stream_few"),
        _aim("3 M msg/s", rate=3e6),
        _side("stream into a journal", "stream_kernel"),
        _side(_SINK_CEILING, "one_batch_discarded"),
        _aim("1 M msg/s", rate=1e6),
        _side("latency", "latency"),
        _aim("0.1 s", p50=0.1),
        _aim("0.2 s", p99=0.2),
    ),
    rows=(
        _seconds(
            "batch_all",
            "batch read, all columns",
            "<= 1.2",
            "all columns",
            "parquet, all columns",
            _CEILING,
            _SMALL,
        ),
        _seconds(
            "batch_group",
            "group by key, two columns read",
            "<= 2.5",
            "group",
            "parquet, group",
            "pyarrow, group",
        ),
        _seconds("batch_range", "100,000 rows by offset", "<= 1.0", "range", "parquet, range"),
        _rate("stream", "stream, all sixteen columns", "stream", "3 M msg/s", _STREAM_CEILING),
        _rate("stream_few", "stream of offset, ts, key and body", "stream of four columns", "3 M msg/s"),
        _rate(
            "stream_journal",
            "stream of key and body into another journal, exactly once",
            "stream into a journal",
            "1 M msg/s",
            _SINK_CEILING,
        ),
        _latency("p50", "0.1 s"),
        _latency("p99", "0.2 s"),
    ),
    remarks=_remarks,
)
