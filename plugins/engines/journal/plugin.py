"""Registers the journal: the kinds ``journal`` and ``journal-replay``, and the commands for journals."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.extras import Extra
from kernel.contracts.kinds import CommandKind, EngineKind, EngineSetup, Flow

if TYPE_CHECKING:
    from kernel import Plan

_KINDS = ("journal", "journal-replay")
_COMMANDS = {
    "rehearse": "Play a journal through a topology file in memory, and say who gets what.",
    "rewind": "Send a stretch of a journal to an engine of a running system.",
}
OPERATIONS = ("rewind", "rewind-end", "rewind-state")
"""See ``rewinds.py``.  Here, since that module imports pyarrow."""
PYARROW = Extra("journal", "a journal needs pyarrow", ("pyarrow",))


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Register the kinds ``journal`` and ``journal-replay``."""
    return [
        EngineKind(
            name="journal",
            summary="stores messages on disk, for replay and for Spark",
            options="plugins.engines.journal.options:JournalOptions",
            create=_create_journal,
            operations=OPERATIONS,
            flow=lambda options: Flow(gives=False, alone=False),
            assures=_assures,
        ),
        EngineKind(
            name="journal-replay",
            summary="replays a journal: at its original pace, faster, or as fast as possible",
            options="plugins.engines.journal.options:ReplayOptions",
            create=_create_replay,
            flow=lambda options: Flow(takes=False, alone=False),
            assures=_assures_replay,
        ),
    ]


def _assures(options: Any) -> Assurance:
    if options.fsync == "never":
        return Assurance(
            confirms="system", how='its commit is written and not synchronised (fsync = "never")'
        )
    return Assurance(confirms="disk", how="its commit is written and synchronised")


def _assures_replay(options: Any) -> Assurance:
    # Without a consumer nobody learns how far it has come.
    acknowledges = (
        "" if options.consumer is None else f"its consumer {options.consumer!r} moves on in the journal"
    )
    return Assurance(acknowledges=acknowledges, waits=True)


@hookimpl
def register_commands() -> Iterable[CommandKind]:
    """Register ``kernel journal``, ``kernel rehearse`` and ``kernel rewind``."""
    return [
        CommandKind(
            name="journal", summary="Show, replay, check, repair, compact and export journals.", load=_load
        ),
        *(
            CommandKind(name=name, summary=summary, load=partial(_load_here, name))
            for name, summary in _COMMANDS.items()
        ),
    ]


@hookimpl
def check_plan(plan: Plan) -> Iterable[str]:
    """Report once if the plan has a journal and pyarrow is missing."""
    used = [engine.name for engine in plan.engines if engine.kind in _KINDS]
    if used and not PYARROW.is_installed():
        return [f"engine {used[0]!r}: {PYARROW.complaint()}"]
    return []


def _create_journal(setup: EngineSetup) -> Engine:
    PYARROW.need()
    # Imported here: pyarrow takes long to import, and a kernel without a journal does not need it.
    from plugins.engines.journal.engine import JournalEngine

    return JournalEngine(setup.name, setup.options, setup.system)


def _create_replay(setup: EngineSetup) -> Engine:
    PYARROW.need()
    from plugins.engines.journal.replay import ReplayEngine

    return ReplayEngine(setup.name, setup.options, may_be_missing=_is_written_here(setup))


def _is_written_here(setup: EngineSetup) -> bool:
    """Whether an engine of the same plan writes the journal: at their first start it may come up later."""
    return setup.system is not None and any(
        engine.kind == "journal" and os.path.abspath(str(engine.options.get("path"))) == setup.options.path
        for engine in setup.system.planned_engines()
    )


def _load() -> Any:
    from plugins.engines.journal.commands.group import command

    return command


def _load_here(name: str) -> Any:
    """Load a command that is not one of ``kernel journal``."""
    from plugins.engines.journal.commands.group import load_command

    return load_command(name, _COMMANDS[name], name)
