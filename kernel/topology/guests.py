"""Guests: threads that run in the application's own trio run, inside ``async with kernel``.

A guest is a task of the caller of ``async with``.  So it needs that caller: ``kernel run`` and ``with`` have
none, and a running kernel cannot get one more, nor wait for one to end, since it would wait for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernel.contracts.errors import PlanError
from kernel.contracts.kinds import ThreadKind
from kernel.plugins import PluginRegistry
from kernel.topology.plan import ThreadPlan


def is_guest(thread: ThreadPlan, registry: PluginRegistry) -> bool:
    """Return whether a planned thread is a guest."""
    kind: ThreadKind = registry.kind("thread_kinds", thread.kind)
    return kind.guest


def refuse_guests(threads: Iterable[ThreadPlan], registry: PluginRegistry, file: str = "") -> None:
    """Raise ``PlanError`` if one of the threads is a guest: its engines would never run here."""
    complaints = [
        f"{_place(file, thread)}thread {thread.name!r} is of kind {thread.kind!r}: it runs in the application's "
        "own trio run, from the start of 'async with kernel' to its end; use kind 'poll' here"
        for thread in threads
        if is_guest(thread, registry)
    ]
    if complaints:
        raise PlanError(complaints)


def _place(file: str, thread: ThreadPlan) -> str:
    return f"{file}:{thread.line}: " if file and thread.line else ""
