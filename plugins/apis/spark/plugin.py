"""Spark as a plugin: the command ``kernel pipeline``, and our own jobs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import CommandKind, KindGroup
from plugins.apis.spark.contract import JOBS, JobKind
from plugins.apis.spark.jobs import options as of

_REPORTS = (
    ("traffic", "how much, of what, how fast, how late; gaps, duplicates, disorder", of.TrafficOptions),
    ("sessions", "what belongs together because its sender did not pause for long", of.SessionOptions),
    (
        "dead_letters",
        "what was refused, expired or pushed out, and what comes back again",
        of.DeadLetterOptions,
    ),
    ("top", "what there is most of, and when it came", of.TopOptions),
    (
        "quality",
        "do bodies (JSON, Avro, Protobuf) keep to a schema, and to what else is said of them",
        of.QualityOptions,
    ),
    ("anomalies", "bursts, droughts, silence and slowness", of.AnomalyOptions),
)


@hookimpl
def register_kind_groups() -> Iterable[KindGroup[Any]]:
    """Let other plugins bring jobs."""
    return [JOBS]


@hookimpl
def register_commands() -> Iterable[CommandKind]:
    """Offer ``kernel pipeline``."""
    return [
        CommandKind(
            name="pipeline", summary="Run jobs over a journal with Spark: reports and streams.", load=_command
        )
    ]


@hookimpl
def register_jobs() -> Iterable[JobKind]:
    """Offer our jobs; each is a module of ``jobs``."""
    reports = [
        JobKind(
            name=module.replace("_", "-"), summary=summary, options=options, create=_creator(module, "report")
        )
        for module, summary, options in _REPORTS
    ]
    windows = JobKind(
        name="windows",
        summary="counts a window and sends them on while the feed goes on",
        options=of.WindowOptions,
        create=_creator("windows", "windows"),
        streams=True,
    )
    return [*reports, windows]


def _creator(module: str, function: str) -> Callable[[Any], Callable[[Any], Any]]:
    """Return the ``create`` of a job: a function of a module, which is loaded when it is called."""

    def create(options: Any) -> Callable[[Any], Any]:
        job = getattr(import_module(f"plugins.apis.spark.jobs.{module}"), function)
        return lambda feed: job(feed, options)

    return create


def _command() -> Any:
    from plugins.apis.spark.pipeline import command

    return command
