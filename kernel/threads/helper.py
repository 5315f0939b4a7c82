"""Helper: what an application's thread needs while it takes turns of a poll thread (``shared_turns.py``).

Signals.  Python calls handlers in the main thread, between any two instructions, and a handler may raise: an engine
would be left half-way through a message.  So while the main thread helps, its handlers are replaced by one that
notes the signal and wakes it.  When it has left, the application's handlers are called, where they may raise.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from kernel.threads.trio_inside import in_a_run

_CALLS = 250
"""Nested calls that engines may need.  With fewer left, a thread does not help."""

# Without the conversions to enums, which cost more than the calls.
_c_signal: Any = importlib.import_module("_signal")
_getsignal, _set = _c_signal.getsignal, _c_signal.signal

_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals()))


class _Signals:
    """The handlers of the main thread, which are replaced while it helps."""

    def __init__(self) -> None:
        self.main: int | None = threading.main_thread().ident
        self.noted: list[int] = []
        self._active = False
        self._wake: Callable[[], None] = _nothing
        self._seen: list[Any] = []
        self._handlers: dict[int, Any] = {}
        """Those to replace."""
        self._note = self._note_signal

    def postpone(self, wake: Callable[[], None]) -> bool:
        """Replace the handlers; False if they are."""
        if self._active:
            return False
        self._wake = wake
        seen = [*map(_getsignal, _NUMBERS)]
        if seen != self._seen:
            self._look_again(seen)
        self._active = True
        try:
            for number in self._handlers:
                _set(number, self._note)
        except BaseException:
            # A handler that was not replaced yet has raised.
            self._put_back()
            raise
        return True

    def deliver(self) -> None:
        """Put the handlers back, and call those of the signals that came."""
        self._put_back()
        while self.noted:
            number = self.noted.pop(0)
            self._handlers[number](number, sys._getframe())

    def _put_back(self) -> None:
        # First: a handler that is put back may raise, so that the next one is not.  Then ``_note_signal`` does it.
        self._active = False
        for number, handler in self._handlers.items():
            _set(number, handler)

    def _look_again(self, seen: list[Any]) -> None:
        handlers = {}
        for number, handler in zip(_NUMBERS, seen, strict=True):
            # One that could not be put back is ours.
            original = self._handlers.get(number) if handler is self._note else handler
            if callable(original):
                handlers[number] = original
        self._seen, self._handlers = seen, handlers

    def _note_signal(self, number: int, frame: Any) -> None:
        if self._active:
            self.noted.append(number)
            self._wake()
        elif number in self._handlers:
            _set(number, self._handlers[number])
            self._handlers[number](number, frame)

    def after_fork(self) -> None:
        """The thread that forked is the main thread of the child, and does not help."""
        self.main = threading.main_thread().ident
        if self._active:
            self.noted.clear()
            self._put_back()


def _nothing() -> None:
    """Do nothing."""


_signals = _Signals()
os.register_at_fork(after_in_child=_signals.after_fork)


class HelperStay:
    """One stay of a helper."""

    __slots__ = ("_main",)

    def begin(self, wake: Callable[[], None]) -> bool:
        """Prepare this thread; False if it cannot help."""
        if in_a_run():
            return False
        try:
            # Raises if the stack is not that deep, which is the rule.
            sys._getframe(max(sys.getrecursionlimit() - _CALLS, 0))
        except ValueError:
            self._main = get_ident() == _signals.main
            return not self._main or _signals.postpone(wake)
        return False

    def over(self) -> bool:
        """Whether a signal has come."""
        return self._main and bool(_signals.noted)

    def end(self) -> None:
        """Let handlers of signals run again."""
        if self._main:
            _signals.deliver()
