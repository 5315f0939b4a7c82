"""Explaining: the rows in which ``kernel explain`` says who would get a message, and who would not and why.

A row has these keys; rows behind it are in ``next``, so that an explanation is a tree:

    what    the sort of thing: ``route``, ``engine``, or a word of the engine's own, such as ``queue``
    name    its name
    gets    whether the message gets there
    why     why, or why not
    notes   what else an operator should know: a list of sentences
    next    the rows of those behind it

An engine with the operation ``explain`` (``EngineKind.operations``) takes a mapping.  It has ``key`` and
``headers``, and with which options of its kind's own it was asked (``EngineKind.asked``).  For a message that
comes on a route it has ``exchange``, ``key`` and ``headers`` of the message, and ``routed``, which is true.

The engine returns ``{"rows": [...], "messages": [{"exchange": ..., "key": ...}]}``: what it explains, and
under which exchange and key it would offer the message to the routes of the topology.  The exchange may be
left out.  A mistake in what it was asked is a ``KernelError``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


def row(what: str, name: str, *, gets: bool, why: str) -> Row:
    """Return a row without notes and without rows behind it."""
    return {"what": what, "name": name, "gets": gets, "why": why, "notes": [], "next": []}
