"""What other plugins bring to ``kernel pipeline``: jobs.

What a job returns is in ``plugins/apis/spark/report/findings.py``, which others may use as well.  Importing this module
imports nothing heavy, so that a plugin module may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kernel import hookspec
from kernel.contracts.kinds import Kind, KindGroup


class JobKind(Kind, frozen=True, kw_only=True):
    """A job of ``kernel pipeline``: what is asked of a kept feed."""

    create: Callable[[Any], Callable[[Any], Any]]
    """``create(options)`` returns what is called with the feed, a Spark DataFrame, and returns a report
    (``plugins.apis.spark.report.findings.Report``), or of a job that ``streams`` a DataFrame of messages to be sent."""
    streams: bool = False
    """It goes on while the feed does, and sends what it finds out."""


@hookspec
def register_jobs() -> Iterable[JobKind]:  # type: ignore[empty-body]
    """Return jobs of ``kernel pipeline``.  Once, while plugins are loaded; main thread; nothing heavy."""


JOBS = KindGroup(hook=register_jobs, kind=JobKind, noun="job", title="Jobs of `kernel pipeline`")
