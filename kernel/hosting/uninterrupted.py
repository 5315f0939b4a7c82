"""Uninterrupted: handlers of signals do not run while an application's call changes what others look at.

Python runs the handler of a signal in the main thread, between two steps of whatever is done there.  It may
raise: Ctrl-C raises ``KeyboardInterrupt``, and a notebook or an interactive shell goes on afterwards with the
same objects.  In the middle of a call that would leave a message taken and not returned, or a pipe written to
whose reader is never woken.  So an application's calls that take more than a few steps take them in
``with UNINTERRUPTED``.  A handler whose signal comes meanwhile runs at the end of the block.  A call that
sleeps lets it run there (``sleeping``), as the call may end there with a timeout, too.

How
    The handlers are replaced by one that only notes the signal, and put back at the end.  That takes 2.0 us
    in the main thread, and 0.3 in others, where no handler ever runs.

    The shortest paths (``fast_sender``, a message of a batch that was taken before) do without.  There every
    two steps that belong together have no place between them where CPython looks for signals, which it does
    behind a call of something written in C, at the beginning of a function, and in a loop.

The design is in docs/decisions/0050-signals.md.
"""

from __future__ import annotations

# The functions of the same names in ``signal`` make an Enum of each number, which takes 20 times as long.
import _signal  # type: ignore[import-not-found]  # typeshed has it only as part of ``signal``
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any

_NUMBERS: tuple[int, ...] = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGUSR1") if hasattr(_signal, name)
)
"""Signals whose handlers are known to raise: Ctrl-C, the end of a service, time limits (Celery has SIGUSR1).
To ask for the handler of one takes 35 ns."""

_getsignal: Callable[[int], Any] = _signal.getsignal
_set: Callable[[int, Any], Any] = _signal.signal


class Uninterrupted:
    """A ``with`` block; one within another is part of it.  There is one object, for the whole process."""

    __slots__ = ("_came", "_held", "_main", "_note", "depth")

    def __init__(self) -> None:
        self._main: int | None = threading.main_thread().ident
        self.depth: int = 0
        """In how many blocks the main thread is."""
        self._held: list[tuple[int, Any]] = []
        """The signals whose handlers were replaced, and these."""
        self._came: list[tuple[int, Any]] = []
        """Those of which a signal came meanwhile."""
        # One object: a method that is looked up is a new one each time.
        self._note = self._take_note

    def __enter__(self) -> None:
        if get_ident() != self._main:
            return
        if self.depth:
            self.depth += 1
        else:
            self._hold(1)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if get_ident() != self._main:
            return
        if self.depth > 1:
            self.depth -= 1
        else:
            self._let_go()

    def _hold(self, depth: int) -> None:
        held, note = self._held, self._note
        try:
            # First: a handler that runs before it is replaced may use the same objects, in blocks of its own.
            self.depth = depth
            for number in _NUMBERS:
                handler = _getsignal(number)
                # asyncio's own does nothing, and its loop is told of the signal in another way.
                if callable(handler) and getattr(handler, "__name__", "") != "_sighandler_noop":
                    held.append((number, handler))
                    _set(number, note)
        except ValueError:
            # An interpreter that is not the first of its process: no handler ever runs in it.
            self._main = None
            held.clear()
        except BaseException:
            # What a handler has raised that was not replaced yet.
            self._let_go()
            raise

    def _take_note(self, number: int, _: FrameType | None) -> None:
        found = next(each for each in self._held if each[0] == number)
        if found not in self._came:
            self._came.append(found)

    def _let_go(self) -> None:
        held, came = self._held, self._came
        try:
            # If a handler that was put back raises, it is put back a second time, below.
            while held:
                number, handler = held[-1]
                _set(number, handler)
                del held[-1]
            self.depth = 0
            while came:
                number, handler = came[0]
                del came[0]
                handler(number, sys._getframe())
        except BaseException:
            if self.depth or came:
                self._let_go()
            raise

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        """Let handlers run and raise for a while, in the middle of ``with UNINTERRUPTED`` or elsewhere."""
        depth = self.depth
        if not depth or get_ident() != self._main:
            yield
            return
        self._let_go()
        try:
            yield
        finally:
            # The blocks around this are left in as many steps as they were entered in.
            self._hold(depth)

    def forked(self) -> None:
        """This process is a child that was forked.  Its only thread is the main one."""
        self._main = get_ident()
        self._came.clear()
        self._let_go()


UNINTERRUPTED: Uninterrupted = Uninterrupted()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=UNINTERRUPTED.forked)
