"""Pipe fan: the pipes of a fan-out, for a writer that appends each small message to all of them.

It does for several pipes what ``Pipe`` does for one (``credit``, ``append_bare``, ``signal``), so a sender
need not know which of the two it has.  Without it each message is a batch, passes the route and its router,
and is written to one pipe after the other: with ten readers 660 ns a delivery, and 190 in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks


class PipeFan:
    """Pipes with the same water marks, written by one thread."""

    __slots__ = ("_appends", "_left", "_pipes", "marks", "signalled", "unders")

    def __init__(self, pipes: Sequence[Pipe]) -> None:
        self._pipes: Sequence[Pipe] = tuple(pipes)
        self._appends = tuple([pipe.append_bare() for pipe in pipes])
        self._left: Iterator[Callable[[Any], None]] | None = None
        """Who has not got the message that is being appended; None: no message is, all were signalled."""
        self.marks: WaterMarks = pipes[0].marks
        self.signalled: bool = False
        """Always: so ``signal`` is called after each message, and looks at each pipe."""
        self.unders: bool = True
        """Always: the pipes are told at the beginning, and not with each message."""
        for pipe in pipes:
            pipe.unders = True

    def append_bare(self) -> Callable[[Any], None]:
        """Return the function that appends to each pipe what ``Pipe.append_bare`` appends to one."""
        appends = self._appends

        def append_to_all(item: Any) -> None:
            left = iter(appends)
            self._left = left
            for append in left:
                append(item)

        return append_to_all

    def signal(self) -> None:
        """Tell the reading threads that there is something, unless they know."""
        for pipe in self._pipes:
            if not pipe.signalled:
                pipe.signal()
        self._left = None

    def interrupted(self, item: Any) -> None:
        """A handler of a signal has raised while ``item`` was appended, or its readers were told."""
        left = self._left
        if left is None:
            # Before the first step.
            self.give_back(1)
            return
        for append in left:
            append(item)
        for pipe in self._pipes:
            pipe.signal()
        self._left = None

    def credit(self) -> int:
        """Return how many messages may be appended to each pipe before asking again.

        0: one of them is full, or suspended, and ``on_writable`` will be called for it.
        """
        for pipe in self._pipes:
            # It is not waited for, and drops what it cannot take: so it has to see each message.
            if pipe.suspended:
                return 0
        granted: list[tuple[Pipe, int]] = []
        for pipe in self._pipes:
            room = pipe.credit()
            if not room:
                for before, its_room in granted:
                    before.give_back(its_room)
                return 0
            granted.append((pipe, room))
        least = min([room for _, room in granted])
        for pipe, room in granted:
            pipe.give_back(room - least)
        return least

    def give_back(self, grant: int) -> None:
        """Return the unused part of a credit."""
        for pipe in self._pipes:
            pipe.give_back(grant)

    def full(self) -> bool:
        """Whether one of them is full."""
        return any(pipe.full() for pipe in self._pipes)

    def depth(self) -> int:
        """Return how many messages wait in the fullest one."""
        return max([pipe.depth() for pipe in self._pipes])
