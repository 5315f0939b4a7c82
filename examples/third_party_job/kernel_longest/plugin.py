"""Announces the job.  Loaded with every kernel, and so without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kernel import hookimpl
from plugins.apis.spark.contract import JobKind


class LongestOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many."""

    count: int = 10
    """How many messages are shown."""


@hookimpl
def register_jobs() -> Iterable[JobKind]:
    """Offer the job ``longest``."""
    return [JobKind(name="longest", summary="the longest messages", options=LongestOptions, create=_create)]


def _create(options: LongestOptions) -> Callable[[Any], Any]:
    from kernel_longest.job import report

    return lambda feed: report(feed, options)
