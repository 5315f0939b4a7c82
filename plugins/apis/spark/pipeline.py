"""``kernel pipeline``: jobs over a journal, run by Spark.

Spark takes seconds to start, and its errors are pages long.  So everything that can be wrong without it is
checked first: names of jobs, options, folders, and whether pyspark is installed.  Modules that import Spark
are imported inside functions, after the check that it is there.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kernel import PluginRegistry
from plugins.apis.spark.contract import JOBS, JobKind
from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.versions import need_pyspark

if TYPE_CHECKING:
    from plugins.apis.spark.history import History
    from plugins.apis.spark.report.findings import Report

_FILE = click.Path(path_type=Path)


@click.group("pipeline", help="Run jobs over a journal with Spark: reports and streams.")
def command() -> None:
    """Do nothing: the subcommands do the work."""


@command.command("jobs")
def jobs() -> None:
    """List the jobs that are installed (`kernel plugins JOB` shows the options of one)."""
    for name, kind in sorted(PluginRegistry.load().kinds(JOBS).items()):
        click.echo(f"{name:16} {'stream' if kind.streams else 'report'}  {kind.summary}")


@command.command("prepare")
def prepare() -> None:
    """Store the classes that Spark's JVM loads in an archive: later sessions here start in half the time."""
    need_pyspark("kernel pipeline")
    from plugins.apis.spark.class_data import make_archive
    from plugins.apis.spark.java import java_home

    click.echo(make_archive(java_home()))


@command.command("sql")
@click.argument("query")
@click.option(
    "--journal", required=True, type=_FILE, help="The journal's directory, or a pattern of several."
)
@click.option(
    "--read", "reads", multiple=True, metavar="NAME=VALUE", help="An option of reading: startingOffset=100."
)
@click.option("--rows", default=1000, show_default=True, help="How many rows are printed at the most.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's: who does the work.")
def sql(query: str, journal: Path, reads: tuple[str, ...], rows: int, master: str) -> None:
    """Print the result of QUERY as CSV.

    Its views are feed, feed_traffic, feed_sessions and others (jobs/library.py).
    """
    need_pyspark("kernel pipeline")
    options = _reading(journal, reads)
    from plugins.apis.spark.jobs.library import create_views

    with _session("sql", master) as spark:
        create_views(spark.read.format("kernel").options(**options).load())
        found = spark.sql(query)
        table = [found.columns, *found.limit(rows).collect()]
    csv.writer(sys.stdout).writerows(table)


@command.command("run")
@click.argument("job")
@click.option(
    "--journal", required=True, type=_FILE, help="The journal's directory, or a pattern of several."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option of the job.")
@click.option(
    "--read", "reads", multiple=True, metavar="NAME=VALUE", help="An option of reading: startingOffset=100."
)
@click.option("--out", type=_FILE, help="Of a report: the folder for index.html and the tables.")
@click.option(
    "--history",
    type=_FILE,
    help="Of a report: go on where the last run ended, and keep the tables of all runs as Parquet in this folder.",
)
@click.option(
    "--alerts",
    help="Of a report: send what it emphasizes as messages, into a journal's directory or to a running kernel.",
)
@click.option("--to", help="Of a stream: another journal's directory, or the address of a running kernel.")
@click.option("--checkpoint", type=_FILE, help="Of a stream: where it keeps how far it has come.")
@click.option("--once", is_flag=True, help="Of a stream: end when all that is there has been read.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's: who does the work.")
def run(job: str, **given: Any) -> None:
    """Run JOB over a journal: a report is written to --out; a stream runs until Ctrl-C and sends to --to."""
    kind: JobKind = PluginRegistry.load().kind(JOBS.name, job)
    options = options_of(kind, pairs(given["settings"]))
    needed = ("to", "checkpoint") if kind.streams else ("out",)
    for name in needed:
        if given[name] is None:
            raise click.UsageError(f"the job {job} needs --{name}")
    if kind.streams and (given["history"] or given["alerts"]):
        raise click.UsageError(f"--history and --alerts are for reports, and the job {job} is a stream")
    need_pyspark("kernel pipeline")
    # Only now, since the module of a job imports Spark.
    function = kind.create(options)
    reads = _reading(given["journal"], given["reads"])
    # Before Spark starts: a folder that cannot be created is better reported now than after the job.
    if not kind.streams:
        given["out"].mkdir(parents=True, exist_ok=True)
    history = _history(given["history"], job, reads)
    if history is not None and history.first == history.end:
        click.echo(f"{given['journal']} has nothing new since offset {history.end}")
        return
    with _session(job, given["master"], f"the job {job}: ") as spark:
        if kind.streams:
            _stream(spark, function, given, reads)
        else:
            _report(spark, function, {**given, "job": job}, reads, history)


@contextmanager
def _session(name: str, master: str, who: str = "") -> Iterator[Any]:
    """Start Spark, and stop it at the end; its errors become one line, which begins with ``who``."""
    from plugins.apis.spark.complaints import one_line_errors
    from plugins.apis.spark.running import stopped_after
    from plugins.apis.spark.spark_session import session

    with stopped_after(session(f"kernel pipeline {name}", master=master)) as spark, one_line_errors(who):
        yield spark


def _reading(journal: Path, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the options for reading.  They are checked here, before Spark takes seconds to start."""
    options = {"path": str(journal), **pairs(texts)}
    _ = ReadOptions.parse(options).journals  # raises if there is none
    return options


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Return ``NAME=VALUE`` texts as a dictionary."""
    split = [text.partition("=") for text in texts]
    for name, sign, _ in split:
        if not sign:
            raise SparkOptionError(f"{name!r} is not NAME=VALUE, as --set and --read need it")
    return {name: value for name, _, value in split}


def options_of(kind: JobKind, texts: Mapping[str, str]) -> Any:
    """Return the options of a job from texts; ``SparkOptionError`` says which one is wrong."""
    known = {field.name: field.type for field in msgspec.structs.fields(kind.options_class())}
    try:
        values = {name: _parsed(text, known.get(name, str)) for name, text in texts.items()}
        return msgspec.convert(values, kind.options_class(), strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise SparkOptionError(
            f"the job {kind.name}: {error}; `kernel plugins {kind.name}` lists its options"
        ) from error


def _parsed(text: str, wanted: Any) -> Any:
    """Return the text; for an option that is neither text nor a number, the value of its JSON."""
    # Numbers stay texts: ``msgspec.convert`` makes them of texts, with an error that names the option.
    return text if wanted in (str, int, float, bool) else json.loads(text)


def _history(folder: Path | None, job: str, reads: Mapping[str, str]) -> History | None:
    if folder is None:
        return None
    from plugins.apis.spark.history import History

    return History(folder, job, reads)


def _report(
    spark: Any,
    job: Callable[[Any], Any],
    given: Mapping[str, Any],
    reads: Mapping[str, str],
    history: History | None,
) -> None:
    from plugins.apis.spark.report.files import write_report

    if history is not None:
        reads = history.begin()
    feed = spark.read.format("kernel").options(**reads).load()
    report = job(feed)
    index = write_report(report, given["out"], subtitle=str(given["journal"]))
    if history is not None:
        history.add(report)
    if given["alerts"]:
        _send_alerts(spark, given["job"], report, given["alerts"], history)
    # Last: a run that has not come so far is repeated.
    if history is not None:
        history.finish()
    click.echo(index)


def _send_alerts(spark: Any, job: str, report: Report, to: str, history: History | None) -> None:
    from plugins.apis.spark.history import alerts_of

    alerts = alerts_of(job, report, history)
    if not alerts:
        return
    rows = spark.createDataFrame(alerts, "key string, content_type string, body string")
    writer = rows.coalesce(1).write.format("kernel").mode("append").option(*_target(to))
    if history is not None:
        # A run that is repeated sends them once.
        writer = writer.option("token", history.token)
        if _target(to)[0] == "address":
            writer = writer.option("staging", str(history.staging))
    writer.save()


def _target(to: str) -> tuple[str, str]:
    """Return the option that says where messages go."""
    return ("address" if "://" in to else "path", to)


def _stream(
    spark: Any, job: Callable[[Any], Any], given: Mapping[str, Any], reads: Mapping[str, str]
) -> None:
    from plugins.apis.spark.running import run_until_stopped

    feed = spark.readStream.format("kernel").options(**reads).load()
    writer = job(feed).writeStream.format("kernel").option(*_target(given["to"]))
    writer = writer.option("checkpointLocation", str(given["checkpoint"]))
    run_until_stopped((writer.trigger(availableNow=True) if given["once"] else writer).start())
