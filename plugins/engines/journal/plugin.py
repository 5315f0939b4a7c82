"""The journal as a plugin: two engines and a command."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.errors import PluginError
from kernel.contracts.kinds import CommandKind, EngineKind, EngineSetup

if TYPE_CHECKING:
    from kernel import Plan

_KINDS = ("journal", "journal-replay")
_WITHOUT_PYARROW = "a journal needs pyarrow: pip install messaging-kernel[journal]"


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kinds ``journal`` and ``journal-replay``."""
    from plugins.engines.journal.options import JournalOptions, ReplayOptions

    return [
        EngineKind(
            name="journal",
            summary="keeps a feed on disk, for replay and for Spark",
            options=JournalOptions,
            create=_create_journal,
        ),
        EngineKind(
            name="journal-replay",
            summary="plays a journal back: as it was, faster, or as fast as it goes",
            options=ReplayOptions,
            create=_create_replay,
        ),
    ]


@hookimpl
def register_commands() -> Iterable[CommandKind]:
    """Offer ``kernel journal``."""
    return [
        CommandKind(name="journal", summary="Look at journals, replay, check, mend, export them.", load=_load)
    ]


@hookimpl
def check_plan(plan: Plan) -> Iterable[str]:
    """Complain once if pyarrow is missing."""
    used = [engine.name for engine in plan.engines if engine.kind in _KINDS]
    if used and not has_pyarrow():
        return [f"engine {used[0]!r}: {_WITHOUT_PYARROW}"]
    return []


def need_pyarrow() -> None:
    """Raise ``PluginError``, which says what to install, if pyarrow is missing."""
    if not has_pyarrow():
        raise PluginError(_WITHOUT_PYARROW)


def has_pyarrow() -> bool:
    """Return whether the extra ``journal`` is installed, as far as pyarrow shows it."""
    return importlib.util.find_spec("pyarrow") is not None


def _create_journal(setup: EngineSetup) -> Engine:
    need_pyarrow()
    from plugins.engines.journal.engine import JournalEngine

    return JournalEngine(setup.name, setup.options)


def _create_replay(setup: EngineSetup) -> Engine:
    need_pyarrow()
    from plugins.engines.journal.replay import ReplayEngine

    return ReplayEngine(setup.name, setup.options)


def _load() -> Any:
    from plugins.engines.journal.commands.group import command

    return command
