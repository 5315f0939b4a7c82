"""Spark as a plugin: the command ``kernel pipeline``, its built-in jobs, and the engine ``job``.

The engine runs a job at intervals.

Every kernel loads this module, so it must not import Spark, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import CommandKind, EngineKind, EngineSetup, Flow, KindGroup
from plugins.apis.spark.contract import JOBS, JobKind

if TYPE_CHECKING:
    from kernel import Plan

_KIND = "job"
_OPTIONS = "plugins.apis.spark.jobs.options"
_REPORTS = (
    (
        "traffic",
        "counts, bytes, rates and latency per route and key; gaps, duplicates, reordering",
        f"{_OPTIONS}:TrafficOptions",
    ),
    ("sessions", "messages of one sender without a long pause between them", f"{_OPTIONS}:SessionOptions"),
    (
        "dead_letters",
        "messages that were rejected, expired or dropped, where and why; poison messages",
        f"{_OPTIONS}:DeadLetterOptions",
    ),
    (
        "top",
        "the most frequent or largest values of an expression, and when they came",
        f"{_OPTIONS}:TopOptions",
    ),
    (
        "quality",
        "whether bodies (JSON, Avro, Protobuf) have the fields of a schema and meet conditions",
        f"{_OPTIONS}:QualityOptions",
    ),
    ("anomalies", "bursts, droughts, silence and slowness", f"{_OPTIONS}:AnomalyOptions"),
)


@hookimpl
def register_kind_groups() -> Iterable[KindGroup[Any]]:
    """Let other plugins register jobs."""
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
def register_engines() -> Iterable[EngineKind]:
    """Register the kind ``job``."""
    return [
        EngineKind(
            name=_KIND,
            summary="runs a report of `kernel pipeline` over a journal at intervals",
            options="plugins.apis.spark.schedule_options:JobOptions",
            create=_create_schedule,
            flow=lambda options: Flow(takes=False, gives=False),
        )
    ]


@hookimpl
def check_plan(plan: Plan) -> Iterable[str]:
    """Report jobs that cannot be run, before the first run says so."""
    planned = [engine for engine in plan.engines if engine.kind == _KIND]
    if not planned:
        return []
    from plugins.apis.spark.schedule_check import complaints_of

    return [f"engine {each.name!r}: {text}" for each in planned for text in complaints_of(each.options)]


def _create_schedule(setup: EngineSetup) -> Engine:
    from plugins.apis.spark.schedule import Schedule

    return Schedule(setup.name, setup.options)


@hookimpl
def register_jobs() -> Iterable[JobKind]:
    """Register the built-in jobs; each is a module of ``jobs``."""
    reports = [
        JobKind(
            name=module.replace("_", "-"), summary=summary, options=options, create=_creator(module, "report")
        )
        for module, summary, options in _REPORTS
    ]
    windows = JobKind(
        name="windows",
        summary="counts messages in windows of time, and sends each count as a message",
        options=f"{_OPTIONS}:WindowOptions",
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
