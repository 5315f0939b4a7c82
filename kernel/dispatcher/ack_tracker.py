"""Ack tracker: up to which position have all destinations confirmed what one port sent?

Positions
---------
From the moment a port has a confirming route, the messages that it sends are numbered from 1 on. The number
of a message is its *position*. A position also stands for "everything up to here": ``confirmed = 7`` says
that messages 1 to 7 are safe. The reading side numbers what it takes in the same way, with numbers of its
own (``Port.take``, ``Port.confirm_through``). Each pipe in between counts for itself: ``written``,
``taken`` and ``confirmed`` are positions in that pipe.

One message may go to several pipes, or to none. So the positions of a port and of its pipes differ, and
something has to translate. That is the tracker: it has one ``Entry`` for each batch that was sent. An entry
knows the port's position behind its batch, and for each pipe that got the batch the position that this pipe
has to reach.

Why cumulative
--------------
A cumulative count can be told late, told twice or skipped without harm: the next one contains it. The
reader writes ``pipe.confirmed``, the writer reads it, and no lock or queue of acknowledgements is needed.
Protocols use the same form (TCP, AMQP's ``multiple``, the CONFIRM frame between kernels). The price is that
one slow destination delays the confirmation of everything behind it.

Invariants
----------
1. Entries are in the order of their positions; ``confirmed`` is the position of the last one removed. It
   never falls.
2. An entry is removed only from the front, and only when no batch of it is pending in a route and every pipe
   in ``needs`` has confirmed as much as is noted there. So ``confirmed`` never includes a message that a
   destination may still lose.
3. ``needs`` never names a pipe whose reader has left: ``release`` takes it out.
4. A batch that waits in a route (``PendingBatches``) is counted in ``pending`` of exactly one entry.

Handing over
------------
When a destination leaves, its pipe is drained: what it took and did not confirm, and what it never took.
Those batches go to others, or wait for a successor.  Nobody knows any more which drained batch belongs to
which entry, since a pipe may have confirmed a batch in part.  ``release`` therefore merges all entries that
the pipe left open, and those behind the first of them, into one.  The drained batches are pending in the
merged entry.  The source learns of all of them together: later than possible, never too early.  An entry that
was merged into another forwards to it (``current``), because batches that wait in a route still refer to the
old one.

Everything here belongs to the thread of the sending port, but for ``pipe.confirmed``, which the reading
thread writes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel.pipes.pipe import Pipe


class Entry:
    """What has to happen before the source may count its messages up to ``position`` as confirmed."""

    __slots__ = ("_merged_into", "needs", "pending", "position")

    def __init__(self, position: int) -> None:
        self.position: int = position
        self.pending: int = 0
        """Batches of this entry that wait in a route for a pipe that can take them."""
        self.needs: dict[Pipe, int] = {}
        """The position that each pipe has to confirm."""
        self._merged_into: Entry | None = None

    def merge(self, later: Entry) -> None:
        """Wait for what a later entry waits for, too."""
        later._merged_into = self
        self.position = later.position
        # The batches that wait in routes still refer to the later entry; ``current`` leads them here.
        self.pending += later.pending
        for pipe, position in later.needs.items():
            self.needs[pipe] = max(position, self.needs.get(pipe, 0))

    def current(self) -> Entry:
        """Return the entry that stands for this one now."""
        entry = self
        while entry._merged_into is not None:
            entry = entry._merged_into
        return entry

    def done(self) -> bool:
        """Whether every pipe has confirmed."""
        # The reader writes ``confirmed`` in its own thread. It only grows, so an old value delays the answer
        # and never makes it wrong. The reader posts after each change, so somebody looks again.
        return not self.pending and all(pipe.confirmed >= position for pipe, position in self.needs.items())


class AckTracker:
    """The entries of one source port.  One thread."""

    __slots__ = ("_entries", "confirmed", "sent")

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.sent: int = 0
        """The position of the last message sent."""
        self.confirmed: int = 0
        """The position up to which every destination has confirmed."""

    def add(self, count: int) -> Entry:
        """Begin the entry of the next ``count`` messages."""
        self.sent += count
        entry = Entry(self.sent)
        self._entries.append(entry)
        return entry

    def entry_of(self, pipe: Pipe, position: int) -> Entry | None:
        """Return the entry of a message by its position in a pipe that has not confirmed it."""
        # Entries are in order, and so are their numbers for one pipe: the first that reaches the position has
        # the message. The search is linear, but refusals are rare.
        return next((entry for entry in self._entries if entry.needs.get(pipe, 0) >= position), None)

    def advance(self) -> bool:
        """Remove the entries that are done from the front; return whether ``confirmed`` has moved."""
        before = self.confirmed
        entries = self._entries
        # Only from the front: an entry that is done waits for those before it, since ``confirmed`` is
        # cumulative.
        while entries and entries[0].done():
            self.confirmed = entries.popleft().position
        return self.confirmed != before

    def release(self, pipe: Pipe) -> Entry | None:
        """Expect no more confirmations of a pipe whose reader has left.

        Return the entry for what the pipe left unconfirmed ("Handing over" above); None if it left nothing.
        """
        kept: deque[Entry] = deque()
        merged: Entry | None = None
        for entry in self._entries:
            # Taken out of every entry, also of those that the pipe has confirmed: its count will never change
            # again.
            is_open = entry.needs.pop(pipe, 0) > pipe.confirmed
            if is_open and merged is None:
                merged = entry
                kept.append(entry)
            # Behind an open entry all are merged, whether or not the pipe got their batches. ``confirmed``
            # could not pass the open one in any case.
            elif merged is not None:
                merged.merge(entry)
            else:
                kept.append(entry)
        self._entries = kept
        return merged
