"""In-process host: one end of a connection between two engines of one kernel.

Batches pass without bytes or copies.  Two pipes of their own take the place of the socket, one in each
direction.  Each has a writer and a reader, as every pipe: the ends may be in two threads, and the callbacks
of a pipe are posted to the thread that they are for.  What a protocol would do with control frames, the pipes
do themselves: they carry confirmations and subscriptions in the opposite direction (``Pipe.confirm``,
``Pipe.ask_writer``, ``Pipe.ask_effect``).

Two numberings meet, as in a stream host.  A pair of pipes lives as long as one connection and counts its
messages from 1; the port of a dialler lives on, and its positions go on.  ``_base_in`` and ``_base_out``
convert.  A protocol that leaves messages out makes the two drift apart: those that are not for the other end
are confirmed with what was before them (``_left_out``, ``_sifted``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from kernel.contracts.engine import Host, Port, Taken
from kernel.contracts.message import Batch
from kernel.contracts.router import Outlet
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks

# The most messages of one ``take``.
_AT_ONCE = 4096
_MARKS = WaterMarks(high=4 * _AT_ONCE)


class InprocEnd:
    """One end of a connection: moves batches between its port and the pipes to and from the other end."""

    messages_in: int
    messages_out: int
    sifts: bool = False
    """Whether ``outgoing_of`` may leave messages out.  What it keeps for later is not left out."""

    def __init__(self, host: Host, peer: str) -> None:
        self.peer = peer
        self.port: Port | None = None
        self.messages_in = self.messages_out = 0
        self._host = host
        self._incoming: Pipe | None = None
        self._outgoing: Pipe | None = None
        self._going = True
        self._waiting_for_room = False
        self._patterns = PeerPatterns()
        # Added to the port's position of what it sent, it gives the count of the incoming pipe.
        self._base_in = 0
        # Added to the count of the outgoing pipe, it gives the port's position.  None: nobody waits.
        self._base_out: int | None = None
        # Of an end that sifts: the count of the outgoing pipe after each ``take``, and the port's position.
        self._sifted: deque[tuple[int, int]] = deque()
        # Messages that came and were left out: the port's position behind which, and how many.
        self._left_out: deque[tuple[int, int]] = deque()

    def plug(self, incoming: Pipe, outgoing: Pipe, port: Port) -> None:
        """Begin a connection.  Called in the thread of this end.  ``subscribe_at_peer`` has to follow."""
        self.port, self._incoming, self._outgoing = port, incoming, outgoing
        self._base_in = -port.sent()
        self._base_out = None
        self._sifted.clear()
        self._left_out.clear()
        # The pipes post these to the host, which calls them in the thread of this end.
        incoming.on_ready = self._on_incoming
        outgoing.on_writable = self._on_room
        outgoing.on_confirmed = self._on_peer_confirmed
        self._patterns.begin(port)
        outgoing.on_asked = partial(self._patterns.ask, port)
        outgoing.on_effect = partial(self._on_peer_asks, outgoing)
        self._waiting_for_room = False
        # What the last connection left unconfirmed goes out before anything newer.
        self._write(port.take_again())
        self._on_incoming()
        self.on_output()

    def subscribe_at_peer(self) -> None:
        """Ask the other end for what the readers of this end want.

        A new connection begins without subscriptions, and the port has kept what its readers want.  Called
        after the other end was told of the connection: what is asked of a pipe whose writer has not plugged
        it in is lost.
        """
        if self.port is not None and self._incoming is not None:
            for pattern in self.port.asked:
                self._incoming.ask_writer("subscribe", pattern)
            # What an earlier connection has not answered, behind the patterns that it is about.
            for hops in self.port.unsynced():
                self.on_sync(hops)

    def unplug(self) -> None:
        """End the connection.  The other end takes what is in the pipe and then sees the end."""
        if self.port is not None:
            self.port.forget_when_subscribed()
        if self._outgoing is not None:
            self._outgoing.end()
        self._incoming = self._outgoing = None

    def on_output(self) -> None:
        """Pass what is in the port's pipes on to the other end."""
        while self.port is not None and self._outgoing is not None and not self._waiting_for_room:
            taken = self.port.take(_AT_ONCE)
            if not taken.batches:
                return
            self._write(taken)

    def _write(self, taken: Taken) -> None:
        outgoing = self._outgoing
        assert outgoing is not None
        self.messages_out += taken.count
        batches = self.outgoing_of(taken.batches)
        # Before writing: the other end runs in another thread and may confirm at once.
        if taken.position is not None and self.sifts:
            self._sifted.append((outgoing.written + sum(map(len, batches)), taken.position))
        elif taken.position is not None:
            self._base_out = taken.position - taken.count - outgoing.written
        self.pass_on(batches)
        if self._sifted:
            # If nothing was left of it, nobody will confirm anything for it.
            self._on_peer_confirmed()

    def pass_on(self, batches: Iterable[Batch]) -> None:
        """Write batches to the other end."""
        outgoing = self._outgoing
        for batch in batches if outgoing is not None else ():
            # A full pipe takes the batch all the same.  The rest of ``taken`` must go out too: it has left
            # the port.
            self._waiting_for_room |= not outgoing.write(batch)  # type: ignore[union-attr]  # tested above

    def outgoing_of(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return what the other end gets of these batches.

        For protocols that change messages on their way.
        """
        return batches

    def incoming_of(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return what the port gets of these batches."""
        return batches

    def ask_peer(self, verb: str, pattern: str) -> None:
        """Subscribe at the other end, or unsubscribe."""
        if self._incoming is not None:
            self._incoming.ask_writer(verb, pattern)

    def ask_port(self, verb: str, pattern: str) -> None:
        """Apply a subscription of the other end to the port."""
        if self.port is not None:
            self._patterns.ask(self.port, verb, pattern)

    def _on_room(self) -> None:
        self._waiting_for_room = False
        self.on_output()

    def _on_incoming(self) -> None:
        incoming, port = self._incoming, self.port
        while incoming is not None and port is not None and self._going and incoming.more():
            batches = incoming.take(_AT_ONCE)
            count = sum(map(len, batches))
            self.messages_in += count
            kept = self.incoming_of(batches)
            self._going = port.send(kept)
            # No route confirms, so to have put the messages into the pipes is all that can be done.
            if not port.confirms:
                incoming.confirm(count)
                self._base_in = incoming.confirmed - port.sent()
            elif kept is not batches:
                self._leave_out(incoming, port, count - sum(map(len, kept)))
        # Only when the pipe is empty: what the other end wrote before it went is still delivered.
        if incoming is not None and incoming.ended and not incoming.more():
            self.on_end()

    def _leave_out(self, incoming: Pipe, port: Port, count: int) -> None:
        """Have messages confirmed that the port does not get, as soon as all before them are."""
        if count > 0:
            self._left_out.append((port.sent(), count))
            # All before them may be confirmed already, and nothing may come after them that would be.
            self.on_confirmed(port.confirmed())

    def on_end(self) -> None:
        """The other end has gone.  The engine replaces this method."""

    def on_writable(self) -> None:
        """Read again: the pipes behind the port have room."""
        self._going = True
        self._on_incoming()

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """Subscribe at the other end with the first reader of a pattern, and unsubscribe with the last."""
        if self.port is not None and self._incoming is not None:
            count = self.port.asked.get(pattern, 0)
            if (verb, count) in (("subscribe", 1), ("unsubscribe", 0)):
                self._incoming.ask_writer(verb, pattern)

    def on_sync(self, hops: int) -> None:
        """Ask the other end whether what was subscribed to there is in effect."""
        # Without a connection the question waits for the next one, and ``subscribe_at_peer`` asks it.
        if self._incoming is not None:
            self._incoming.ask_effect(hops - 1, partial(self._on_synced, self._incoming, hops))

    def _on_peer_asks(self, outgoing: Pipe, hops: int, answer: Callable[[], Any]) -> None:
        # A turn later: if the port has just opened, its pipes are attached behind what is posted already.
        # Without them it would answer at once.
        self._host.soon(partial(self._take_question, outgoing, hops, answer))

    def _take_question(self, outgoing: Pipe, hops: int, answer: Callable[[], Any]) -> None:
        # Another pipe: the connection in which this was asked has ended.
        if self.port is not None and outgoing is self._outgoing:
            self.port.when_subscribed(hops, answer)

    def _on_synced(self, incoming: Pipe, hops: int) -> None:
        # Another pipe: the answer is of an earlier connection, and the question was asked again in this one.
        if self.port is not None and incoming is self._incoming:
            self.port.synced(hops)

    def on_confirmed(self, position: int) -> None:
        """Confirm to the other end what every destination has confirmed."""
        if self._incoming is not None:
            while self._left_out and self._left_out[0][0] <= position:
                self._base_in += self._left_out.popleft()[1]
            news = self._base_in + position - self._incoming.confirmed
            # Not positive: positions of an earlier connection, whose pipes are gone.
            if news > 0:
                self._incoming.confirm(news)

    def _on_peer_confirmed(self) -> None:
        outgoing, port = self._outgoing, self.port
        if outgoing is None or port is None:
            return
        if self._base_out is not None:
            port.confirm_through(self._base_out + outgoing.confirmed)
        position = None
        while self._sifted and self._sifted[0][0] <= outgoing.confirmed:
            _, position = self._sifted.popleft()
        if position is not None:
            port.confirm_through(position)


def pipe_pair(name: str, here: Host, there: Host) -> tuple[Pipe, Pipe]:
    """Return the pipes from here to there, and from there to here."""
    return (
        Pipe(
            f"inproc {name} out", _MARKS, post_to_reader=there.post, post_to_writer=here.post, confirms=True
        ),
        Pipe(
            f"inproc {name} back", _MARKS, post_to_reader=here.post, post_to_writer=there.post, confirms=True
        ),
    )
