"""Lingering: finds out, while a kernel closes, when all of it has written what was queued.

A message is in a pipe, or an engine has it and says so (``pending``), or it is in the hands of a call that
has taken it from a pipe and has not passed it on yet.  Nobody can look at the last, so a look from another
thread may find nothing anywhere.  But the call moves a counter of the pipe from which it takes, and of the
one to which it writes.  Each thread notes these counters after its turn, when no call of its engines is under
way.  If the pipes are empty, no engine has anything, and then every counter is as its thread has noted it, no
thread has touched a message since; so there is none left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kernel.contracts.thread import EngineThread, Shown
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.pipe import Pipe


def _none(_: int) -> Mapping[Any, int]:
    return {}


Pipes: TypeAlias = list[tuple[int, int, RouteSpec, Pipe]]


class Lingering:
    """The end of one kernel.  Any thread may call ``is_over``."""

    def __init__(
        self,
        pipes: Callable[[], Pipes],
        threads: Callable[[], list[EngineThread]],
        others: Callable[[int], Mapping[Any, int]] = _none,
    ) -> None:
        """``pipes`` returns all pipes with the numbers of their threads.

        The numbers are those of the writing and the reading thread.  ``threads`` returns all threads.

        ``others(number)``: what else a thread has that messages pass, such as link ends, with how many it has
        moved there.
        """
        self._pipes = pipes
        self._threads = threads
        self._others = others
        # For each thread what it has moved so far. Each entry is replaced as a whole, by its thread.
        self._noted: dict[int, dict[Any, int]] = {}

    def is_over(self, number: int) -> bool:
        """Return whether nothing is left to write.

        The thread of this number calls it after each of its turns.
        """
        threads = self._threads()
        pipes = self._pipes()
        self._noted[number] = {**_moved_by(number, pipes), **self._others(number)}
        # Only pipes to engines count.  Those to applications are not read any more: their APIs are closed.
        homes = {thread.number for thread in threads}
        if any(reader in homes and pipe.more() for _, reader, _, pipe in pipes):
            return False
        # What engines took from their pipes, and have not handed to their sockets or disks yet.
        if any(thread.pending() for thread in threads):
            return False
        # Last: whatever has moved during the looks above is seen here.
        pipes = self._pipes()
        late = [thread for thread in threads if not self._rests(thread, pipes)]
        for thread in late:
            # A guest may have moved something in a task of its own, outside its turns. It is asked for rows
            # of no table, and looks itself in the turn in which it answers.
            thread.inspect("", _forget)
        return not late

    def _rests(self, thread: EngineThread, pipes: Pipes) -> bool:
        """Return whether it has moved no message since it noted what it has moved."""
        noted = self._noted.get(thread.number)
        if noted is None:
            # It has not come to the end of a turn since the kernel began to close, if it runs at all.
            return thread.join(0)
        moved = {**_moved_by(thread.number, pipes), **self._others(thread.number)}
        return all(noted.get(passed, 0) == count for passed, count in moved.items())

    def moved(self) -> int:
        """Return how many messages all threads had moved when they noted it."""
        return sum(sum(noted.values()) for noted in list(self._noted.values()))


def _moved_by(number: int, pipes: Pipes) -> dict[Pipe, int]:
    """Return how many messages a thread has written to each of its pipes, or taken from it, or both."""
    return {
        pipe: (pipe.written if writer == number else 0) + (pipe.taken if reader == number else 0)
        for writer, reader, _, pipe in pipes
        if number in (writer, reader)
    }


def _forget(_: Shown) -> None:
    """Drop the answer: the question itself gives the thread a turn."""
