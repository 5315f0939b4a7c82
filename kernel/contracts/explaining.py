"""Explaining: the rows in which ``kernel explain`` says who would get a message, and who would not and why.

A row has these keys; rows behind it are in ``next``, so that an explanation is a tree:

    what    the sort of thing: ``route``, ``engine``, ``exchange``, ``queue``, ``consumer``, ``subscription``
    name    its name
    gets    whether the message gets there
    why     why, or why not
    notes   what else an operator should know: a list of sentences
    next    the rows of those behind it

An engine with the operation ``explain`` (``EngineKind.operations``) takes a mapping with some of the keys
``exchange``, ``key``, ``topic``, ``headers``, ``vhost`` and ``user``, and returns
``{"rows": [...], "messages": [{"exchange": ..., "key": ...}]}``: what it explains, and under which exchange
and key it would offer the message to the routes of the topology.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


def row(what: str, name: str, *, gets: bool, why: str) -> Row:
    """Return a row without notes and without rows behind it."""
    return {"what": what, "name": name, "gets": gets, "why": why, "notes": [], "next": []}
