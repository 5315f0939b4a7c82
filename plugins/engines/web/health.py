"""Health: whether the process is alive, and whether all of its engines run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kernel.contracts.engine import Host
from kernel.contracts.system import NO_TABLE, System
from plugins.engines.web.answer import Respond, json_answer

if TYPE_CHECKING:
    from kernel.topology.inspection import Inspection

SECONDS = 2.0
"""How long a thread may take to answer before the system counts as not ready."""


def live(respond: Respond) -> None:
    """Answer that this thread takes its turns."""
    respond(json_answer(200, {"status": "ok"}))


def ready(system: System, host: Host, respond: Respond) -> None:
    """Answer whether every engine runs, and every thread takes its turns."""
    reasons = [
        f"engine {engine.name} is {engine.state}"
        for engine in system.statistics().engines
        # A replay, for example, has done its work when it ends.
        if engine.state not in ("running", "ended")
    ]
    # ``statistics`` asks no thread. A thread that hangs shows only here, by not answering in time.
    system.inspect(NO_TABLE, host, partial(_answer, reasons, respond), SECONDS)


def _answer(reasons: list[str], respond: Respond, inspection: Inspection) -> None:
    reasons = [*reasons, *inspection.failed]
    if reasons:
        respond(json_answer(503, {"status": "failed", "reason": "; ".join(reasons)}))
    else:
        respond(json_answer(200, {"status": "ok"}))
