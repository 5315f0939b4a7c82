"""Relay: takes what an application publishes from one pipe, and routes it to the peers.

An application that chooses the peers of each message itself has a batch of one message in the pipe of each of
them.  Here it only appends the message to one pipe, and the relay, in the thread of the engine, chooses for
all that has come since its last look.  Messages for the same peers stay one batch, which is encoded once.

The relay never waits for a peer, since the pipes behind it drop what they have no room for.  So its own pipe
is short, unless the thread has too much to do.  What the application could not put into it is counted here,
for each peer that would have got it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kernel.contracts.engine import Host, Port
from kernel.contracts.router import Outlet

BATCH_BYTES = 64 * 1024
"""About how many bytes are routed at a time: a larger batch is encoded for each peer anew."""

BATCHES_A_TURN = 16
"""How many times it may take before the peers, and other engines, have their turn.

With a hundred peers a turn of one batch costs twice as much a delivery: each of them writes little then."""

Tell = Callable[[str, str, Outlet], Any]
"""Is told that a peer has subscribed or unsubscribed: verb, pattern, and the pipe to the peer."""


class Relay:
    """The owner of a port that is a group of its own: one route leads to it, and one from it."""

    def __init__(self, host: Host, name: str, tell: Tell, most: int) -> None:
        """``tell`` is called in this thread.

        ``most``: how many messages a peer may be given before it has had a turn to write them.
        """
        self.name = name
        self._host = host
        self._tell = tell
        self._most = most
        self._left = most
        """How many may be routed before the peers must have had a turn."""
        self._goes_on = False
        """Whether it was posted that it goes on, behind the turns of the peers."""
        # The mean size of the bodies of the last batch; a guess before the first one.
        self._body_size = 128
        self._port: Port = host.port(name, self, {"apart": True})

    def pending(self) -> bool:
        """Whether something waits to be routed.  Any thread."""
        return self._port.has_input()

    def on_output(self) -> None:
        """Route what has come."""
        port = self._port
        if self._goes_on:
            return
        for _ in range(BATCHES_A_TURN):
            taken = port.take(min(self._left, BATCH_BYTES // self._body_size or 1))
            if not taken.batches:
                return
            # False is no answer of pipes that drop.
            port.send(taken.batches)
            size = 0
            for batch in taken.batches:
                size += batch.size
            self._body_size = size // taken.count + 1
            self._left -= taken.count
            if self._left <= 0:
                break
        # Behind the posts of the pipes that were written to: the peers write before they are given more, so
        # that a burst that their sockets take is not dropped.
        if self._left <= 0 or port.has_input():
            self._goes_on = True
            self._host.soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._left = self._most
        self.on_output()

    def on_writable(self) -> None:
        """Do nothing: it does not wait."""

    def on_confirmed(self, position: int) -> None:
        """Do nothing: nothing is confirmed."""

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """Tell the application, whose messages from now on go by this subscription."""
        self._tell(verb, pattern, outlet)

    def drop(self, lost: Mapping[Any, int], then: Callable[[], Any]) -> None:
        """Count messages that had no room in the pipe to here, by the pipes to peers.  Any thread.

        ``then`` is called in this thread afterwards.
        """
        self._host.post(partial(self._count, lost, then))

    def _count(self, lost: Mapping[Any, int], then: Callable[[], Any]) -> None:
        for pipe, count in lost.items():
            # In the thread that writes to the pipe, whose counter this is.
            pipe.dropped += count
        then()
