"""The options of an engine that runs a job again and again."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class JobOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A report of `kernel pipeline` that is run at intervals, each time in a process of its own."""

    job: str
    """The job: `kernel pipeline jobs` lists them.  It has to make a report."""
    journal: str
    """The journal's directory."""
    out: str
    """The folder for the page of the last run, and its tables."""
    every: Annotated[float, msgspec.Meta(gt=0)]
    """Seconds from the beginning of one run to the beginning of the next.  A run that takes longer delays the
    next one.  The first run begins with the engine."""
    history: str = ""
    """The folder for the tables of all runs: each run is about what came since the one before.  Empty: each
    is about the whole journal."""
    alerts: str = ""
    """Where what a report emphasizes is sent as messages: a journal's directory, or the address of a
    listener, also of this kernel."""
    settings: dict[str, Any] = {}
    """Options of the job, as `--set` has them."""
    read: dict[str, Any] = {}
    """Options of reading, as `--read` has them."""
    master: str = "local[*]"
    """Spark's: who does the work."""
