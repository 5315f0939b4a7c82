"""Forking: what belongs to a process, and must not be used by a child that was forked from it.

A child has a copy of every object of its parent and shares its descriptors, but it has none of the other
threads.  What it sent into a pipe nobody would read, and what it waited for would never come.  To close
something in the child would close it for the parent, too: it would end connections, remove the files of Unix
sockets, and take descriptors out of the parent's epoll.

So whoever has such things has a method called in the child.  From then on its calls raise ``KernelClosed``,
and to close it changes nothing outside of the child.  A child may make a kernel of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex, TypeVar
from weakref import WeakKeyDictionary

FORKED = (
    "this process was forked from the one that has the kernel, and has none of its threads: make a kernel of its "
    "own here, or start the process with multiprocessing's method 'spawn'"
)
"""Why a call is refused."""

Owner = TypeVar("Owner")


class OfThisProcess:
    """A base for what has threads, locks or descriptors.  It can be neither copied nor pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse what ``copy``, ``pickle`` and ``multiprocessing`` want."""
        raise TypeError(
            f"this {type(self).__name__} has threads and sockets of its process, and can be neither copied nor "
            "passed to another process: make a kernel, or connect, there"
        )


_CALLS: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def call_in_children(owner: Owner, forked: Callable[[Owner], None]) -> None:
    """Have ``forked(owner)`` called in each child that is forked while the owner exists.

    It is called before the fork returns there, also in a child that only starts another program.  It must
    neither wait nor take a lock: a thread of the parent may have held it when the child was forked.
    """
    _CALLS[owner] = forked


def _call() -> None:
    for owner, forked in list(_CALLS.items()):
        forked(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_call)
