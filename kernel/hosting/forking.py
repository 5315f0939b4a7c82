"""Forking: what belongs to a process, and must not be used by a child that was forked from it.

A child has a copy of every object of its parent and shares its descriptors, but it has none of the other
threads.  What it sent into a pipe nobody would read, and what it waited for would never come.  To close
something in the child would close it for the parent, too: it would end connections, remove the files of Unix
sockets, and take descriptors out of the parent's epoll.

So whoever has such things has a method called in the child.  From then on its calls raise ``KernelClosed``,
and to close it changes nothing outside of the child.  A child may make a kernel of its own.

For that, no thread of the kernel may be in the middle of something when the process is forked.  A thread
that imports a module has the lock of that module, and in the child nobody would ever give it back: who
imports the module there would wait for ever.  (Seen in the controller of ipyparallel, which forks its queues
at its start.  The first connection of a process needs ``encodings.idna``, and about one child in a hundred
never connected.)  So a fork waits until each thread of the kernel has come to the end of what it does, and
holds it there.
"""

from __future__ import annotations

import os
import threading
import time
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


LONGEST_HOLD = 0.5
"""Seconds that a fork waits for the threads of the kernel at most.  One may be at work for longer, or need
something that the thread has which forks."""

_THREADS: WeakKeyDictionary[Any, Callable[[Any, Callable[[], Any]], bool]] = WeakKeyDictionary()
_pauses: dict[int, list[_Pause]] = {}
"""What the threads call that are held, by the number of the thread that forks."""


class _Pause:
    """What a thread calls between two pieces of work.  It takes as long as the fork."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.over = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.over.wait()


def hold_while_forking(thread: Owner, post: Callable[[Owner, Callable[[], Any]], bool]) -> None:
    """Have a fork wait until a thread has come to the end of what it does, and hold it there meanwhile.

    ``post(thread, pause)`` has the thread call ``pause``; it returns False if that thread does not run, or is
    the one that forks.
    """
    _THREADS[thread] = post


def _hold() -> None:
    pauses = _pauses[threading.get_ident()] = []
    # At once, as other threads may start a kernel meanwhile.
    for reference in _THREADS.keyrefs():
        thread = reference()
        if thread is not None:
            pause = _Pause()
            # Noted first: whatever happens here, the thread is let go.
            pauses.append(pause)
            if not _THREADS[thread](thread, pause):
                pauses.remove(pause)
    until = time.monotonic() + LONGEST_HOLD
    for pause in pauses:
        pause.begun.wait(max(0.0, until - time.monotonic()))


def _let_go() -> None:
    for pause in _pauses.pop(threading.get_ident(), ()):
        pause.over.set()


def _begin_child() -> None:
    # The threads are not here.  Others, which were about to fork as well, are not here either.
    _pauses.clear()
    _THREADS.clear()
    _call()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_begin_child)
