"""What can be known of a planned job before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kernel import PluginRegistry
from kernel.contracts.errors import KernelError
from plugins.apis.spark.contract import JOBS, JobKind
from plugins.apis.spark.options import ReadOptions
from plugins.apis.spark.pipeline import options_of, pairs
from plugins.apis.spark.schedule import texts_of
from plugins.apis.spark.schedule_options import JobOptions
from plugins.apis.spark.versions import need_pyspark


def complaints_of(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each mistake."""
    try:
        options = msgspec.convert(dict(given), JobOptions)
    except msgspec.ValidationError:
        return  # the check of options says so
    try:
        need_pyspark("an engine of kind job")
        kind: JobKind = PluginRegistry.load().kind(JOBS.name, options.job)
        if kind.streams:
            yield f"the job {options.job} is a stream, which runs for ever: kernel pipeline run {options.job}"
        options_of(kind, pairs(tuple(texts_of(options.settings))))
        # The journal may be one that this kernel begins.
        ReadOptions.parse({"path": options.journal, **pairs(tuple(texts_of(options.read)))})
    except KernelError as error:
        yield str(error)
