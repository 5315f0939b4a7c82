"""The contract for plugins that add jobs to ``kernel pipeline``.

A job returns the classes of ``plugins/apis/spark/report/findings.py``, which other plugins may use.  This
module imports nothing expensive, so that a plugin module may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kernel import hookspec
from kernel.contracts.kinds import Kind, KindGroup


class JobKind(Kind, frozen=True, kw_only=True):
    """A job of ``kernel pipeline``: a query on the messages of a journal."""

    create: Callable[[Any], Callable[[Any], Any]]
    """``create(options)`` returns a function that is called with the feed, a Spark DataFrame.

    The function returns a ``plugins.apis.spark.report.findings.Report``; with ``streams`` it returns a
    DataFrame of the messages to send."""
    streams: bool = False
    """Whether the job runs continuously on new messages, and sends its results as messages."""


@hookspec
def register_jobs() -> Iterable[JobKind]:  # type: ignore[empty-body]
    """Return jobs of ``kernel pipeline``.  Called once in the main thread, at loading; must be cheap."""


JOBS = KindGroup(hook=register_jobs, kind=JobKind, noun="job", title="Jobs of `kernel pipeline`")
