"""Fair queue: reads many pipes in turn, at a cost that does not depend on how many are idle.

The pipes are in one array.  The active ones, which have something, are at its beginning.  A pipe that becomes
active or inactive is swapped with the one at the border: O(1).  (Fair queueing is RFC 970; the array is
libzmq's.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel.contracts.message import Batch
from kernel.pipes.pipe import Pipe


class FairQueue:
    """The incoming pipes of one port.  One thread."""

    __slots__ = ("_at", "_next", "_pipes", "active", "on_ended")

    def __init__(self) -> None:
        self.on_ended: Callable[[Pipe], Any] | None = None
        """Called with a pipe that has ended and was read to its end."""
        self._pipes: list[Pipe] = []
        self._at: dict[Pipe, int] = {}
        self.active: int = 0
        """The number of pipes that have something."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._pipes)

    def only(self) -> Pipe | None:
        """Return the only pipe; None: there is none, or another one."""
        return self._pipes[0] if len(self._pipes) == 1 else None

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """All pipes, active or not."""
        return tuple(self._pipes)

    def attach(self, pipe: Pipe) -> None:
        """Add a pipe, inactive."""
        self._at[pipe] = len(self._pipes)
        self._pipes.append(pipe)

    def detach(self, pipe: Pipe) -> None:
        """Remove a pipe; does nothing if it is not here."""
        if pipe not in self._at:
            return
        self._deactivate(pipe)
        # The last one takes its place, so that no other pipe has to move. Inactive pipes are in no order.
        self._swap(self._at[pipe], len(self._pipes) - 1)
        self._pipes.pop()
        del self._at[pipe]

    def activate(self, pipe: Pipe) -> bool:
        """Mark a pipe as active, unless it has ended with nothing in it.

        False if it is not (or no longer) here.
        """
        # The post of a writer may come before the pipe is attached here, and after it was detached.
        at = self._at.get(pipe)
        if at is None:
            return False
        # The order of the looks is that of ``take``.  Whoever does not take, because its peer is away, would
        # keep a pipe that has nothing and will have nothing, and would linger for it.
        if pipe.ended and not pipe.more():
            self._forget_ended(pipe)
        elif at >= self.active:
            # The active pipes are ``_pipes[:active]``. The pipe changes places with the one at the border,
            # which it is itself if it is the only one.
            if at != self.active:
                self._swap(at, self.active)
            self.active += 1
        return True

    def take(self, most: int) -> tuple[Pipe, list[Batch], int] | None:
        """Take from the next active pipe, at most about ``most`` divided by the number of active pipes.

        Returns the pipe, the batches and their number of messages; None if all pipes are idle.
        """
        while self.active:
            if self._next >= self.active:
                # The active part may have become shorter since the last call.
                self._next = 0
            pipe = self._pipes[self._next]
            before = pipe.taken
            # A call reads one pipe. It takes that pipe's share only, so that a whole round through the active
            # pipes gives about ``most`` messages.
            batches = pipe.take(max(most // self.active, 1))
            # Looked at before ``more``. The writer appends, and then sets ``ended``: so if it is set here,
            # all that was written is in the pipe, and ``more`` tells whether any of it is left.
            ended = pipe.ended
            if pipe.more():
                self._next += 1
            else:
                # As ``_deactivate`` does, for a pipe whose place is known. ``_next`` stays: another active
                # pipe, if there is one, is at this index now.
                self.active -= 1
                if self._next != self.active:
                    self._swap(self._next, self.active)
                if ended:
                    self._forget_ended(pipe)
            # A pipe may have been posted for items that an earlier call took already. Then try the next one.
            if batches:
                return pipe, batches, pipe.taken - before
        return None

    def _forget_ended(self, pipe: Pipe) -> None:
        self.detach(pipe)
        if self.on_ended is not None:
            self.on_ended(pipe)

    def _deactivate(self, pipe: Pipe) -> None:
        at = self._at[pipe]
        if at < self.active:
            self.active -= 1
            if at != self.active:
                self._swap(at, self.active)

    def _swap(self, one: int, other: int) -> None:
        pipes, at = self._pipes, self._at
        pipes[one], pipes[other] = pipes[other], pipes[one]
        at[pipes[one]] = one
        at[pipes[other]] = other
