"""Asks a running kernel, at its control socket, for the directory of its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel import ask, find_running
from kernel.contracts.errors import KernelError
from plugins.apis.spark.errors import SparkOptionError

THE_ONLY_ONE = "running"


def journal_of(control: str, engine: str = "") -> Path:
    """Return the directory of a running kernel's journal.

    ``control`` is the path of its control socket, or ``running`` for the only running kernel of this user.
    ``engine`` is the name of the journal's engine, needed if there are several.  Raises ``SparkOptionError``
    if no kernel answers, or if it is not clear which journal is meant.
    """
    try:
        path = find_running() if control == THE_ONLY_ONE else control
        engines = ask(path, "status")["status"]["engines"]
    except KernelError as error:
        raise SparkOptionError(f"the option kernel is {control!r}: {error}") from error
    # A journal's engine has its directory among its counters; engines of other kinds have no such counter.
    journals = {row["name"]: _directory(row) for row in engines if _directory(row)}
    if engine:
        journals = {name: found for name, found in journals.items() if name == engine}
    if len(journals) == 1:
        (found,) = journals.values()
        return Path(found)
    if journals:
        raise SparkOptionError(
            f"the kernel at {path} has several journals: select one with the option engine "
            f"({', '.join(sorted(journals))})"
        )
    named = f"no journal {engine!r}" if engine else "no journal"
    there = ", ".join(sorted(row["name"] for row in engines)) or "none"
    raise SparkOptionError(
        f"the kernel at {path} has {named}; its engines: {there}. To journal messages, add an engine of kind "
        "journal to its topology, and a route to it"
    )


def _directory(row: dict[str, Any]) -> str:
    return str(row["counters"].get("journal", ""))
