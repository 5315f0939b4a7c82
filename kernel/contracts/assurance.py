"""Assurance: what an acknowledgement of an engine means, as its kind states it (``EngineKind.assures``).

``kernel prove`` puts these statements together along the routes of a plan.  A kind that states nothing counts
as one that assures nothing.  docs/decisions/0037-what-an-acknowledgement-means.md has the reasons.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

Level: TypeAlias = Literal["nothing", "sent", "memory", "system", "disk", "peer"]
"""Where a message is for certain, the weakest first.

``nothing``: nowhere.  ``sent``: this machine's operating system has it, for a peer that does not confirm.
``memory``: in this process; a kill loses it.  ``system``: the operating system has it for the disk; a loss of
power loses it.  ``disk``: synchronised.  ``peer``: another system has confirmed it, whose own promise counts;
as good as ``disk``.
"""

LEVELS: tuple[Level, ...] = get_args(Level)
# What another system does before it confirms is not in the plan: its word has to be enough.
_SAME_AS: dict[Level, Level] = {"peer": "disk"}


def rank(level: Level) -> int:
    """Return a number by which levels are compared."""
    return LEVELS.index(_SAME_AS.get(level, level))


class Assurance(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine with certain options states.

    It has to hold for every message, or ``but`` says for which not.
    """

    acknowledges: str = ""
    """As a source: what it sends to whoever gave it a message, such as ``basic.ack``; empty: nothing."""
    waits: bool = False
    """As a source: whether that waits for all routes with ``confirm = true`` that take the message."""
    keeps: Level = "nothing"
    """As a source: where the message is in the engine itself by then; ``nothing``: it only passes it on."""
    confirms: Level = "nothing"
    """As a destination: where the message is when the engine confirms it to a route."""
    passes_on: bool = False
    """As a destination: whether it confirms what its own routes have confirmed, so that these
    are proved instead."""
    how: str = ""
    """What it does before: "its record is synchronised"."""
    but: str = ""
    """For which messages less holds."""
