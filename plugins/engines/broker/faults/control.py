"""Control: which faults are set, and what they do to single messages and clients.

``model.py`` asks it where a message is published, delivered or acknowledged, and ``engine.py`` at the end of
a turn.  All of it runs in the broker's thread.

How a connection is cut
    A number is kept exactly: what comes from the client after the last message that counts is not done.
    Messages that it would have published are dropped, since it was never told that they arrived.
    Acknowledgements are put off until the connection is lost, and then the messages go back to their queues.

    After an acknowledgement or a publish, the connection is lost before anything more is written: the client
    does not know what became of its last messages.  After a delivery or a confirmation it is lost when the
    client says something next, which is not read any more, or after ``LINGER``.  Many clients look for the
    end of the connection first, and would not see what came just before it.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from plugins.engines.broker.faults.cut import Counted, Cut
from plugins.engines.broker.faults.record import Record
from plugins.engines.broker.host.confirms import Confirms, Outcome

LINGER = 0.2
"""Seconds for which a connection stays after its last delivery or confirmation, if the
client says nothing."""

if TYPE_CHECKING:
    from plugins.engines.broker.front_end import Client
    from plugins.engines.broker.host.stream_client import StreamClient
    from plugins.engines.broker.queue import Queue
    from plugins.engines.broker.receiver import Receiver, Window
    from plugins.engines.broker.span import Span


class FaultControl:
    """The faults of one broker."""

    def __init__(self) -> None:
        self.record = Record()
        self.current: StreamClient | None = None
        """The client whose input is being processed."""
        self.clients: dict[Window, StreamClient] = {}
        """By window: a receiver knows its window, and not its client."""
        self.refuses_publishes = False
        self.doomed: dict[StreamClient, bool] = {}
        """Clients whose connection is to be lost, and whether at once."""
        self._cuts: dict[int, Cut] = {}
        self._numbers = count(1)
        self._losing: dict[int, StreamClient] = {}
        self._lost: dict[int, str] = {}
        self._put_off: list[tuple[Queue, Span]] = []

    # What a test asks for

    def add_cut(self, client: str, of: Counted, after: int) -> int:
        """Have a connection lost later; return the number of this cut."""
        number = next(self._numbers)
        self._cuts[number] = Cut(number, client, of, after, {})
        return number

    def end_cut(self, number: int) -> None:
        """Forget a cut.  It is no error if it is over."""
        self._cuts.pop(number, None)

    def peer_of(self, number: int) -> str:
        """Return the address of the client whose connection this cut has lost; empty: none yet."""
        return self._lost.get(number, "")

    # What the model asks

    def client_of(self, receiver: Receiver) -> StreamClient | None:
        """Return the client to which a receiver delivers; None: it has no connection."""
        return self.clients.get(receiver.window)

    def left(self, client: StreamClient | None, of: Counted) -> int | None:
        """Return how many messages may still pass; None: any number."""
        if client is None:
            return None
        if client in self.doomed:
            return 0
        return min((cut.left(client) for cut in self._cuts.values() if cut.fits(client, of)), default=None)

    def count(self, client: StreamClient | None, of: Counted, passed: int) -> None:
        """So many messages have passed.  0: one was stopped."""
        if client is None or client in self.doomed:
            return
        for number, cut in list(self._cuts.items()):
            if cut.fits(client, of):
                cut.counts[client] = cut.counts.get(client, 0) + passed
                if cut.left(client) <= 0:
                    del self._cuts[number]
                    self.doomed[client] = of in ("acks", "publishes") or not passed
                    self._losing[number] = client

    def passing(self, of: Counted, wanted: int) -> int:
        """Return how many messages from the present client pass, and count them."""
        left = self.left(self.current, of)
        passed = wanted if left is None else min(left, wanted)
        if left is not None:
            self.count(self.current, of, passed)
        return passed

    def put_off(self, queue: Queue, span: Span) -> None:
        """Return messages to their queue when the connection is lost that has acknowledged them."""
        self._put_off.append((queue, span))

    # What the engine asks

    def lose(self, client: StreamClient) -> None:
        """Lose the connection of a client now."""
        self.doomed.pop(client, None)
        for number in [number for number, each in self._losing.items() if each is client]:
            del self._losing[number]
            self._lost[number] = client.peer
        client.lose("cut by a test")
        # The latest first: each is put at the front.
        put_off, self._put_off = self._put_off, []
        for queue, span in reversed(put_off):
            queue.requeue(span)

    def has_ended(self, client: Client) -> None:
        """A client has ended, whatever the reason."""
        for window, each in list(self.clients.items()):
            if each is client:
                del self.clients[window]
                self.doomed.pop(each, None)

    def make_confirms(self) -> Confirms:
        """Make what counts the confirmations of the client whose input is being processed."""
        return CountedConfirms(self, self.current)


class CountedConfirms(Confirms):
    """Confirmations that end where a cut says so."""

    __slots__ = ("_client", "_control")

    def __init__(self, control: FaultControl, client: StreamClient | None) -> None:
        super().__init__()
        self._control = control
        self._client = client

    def outcomes(self, confirmed: int, safe: int = 0) -> list[Outcome]:
        """Return the new outcomes, up to the one after which the connection is lost."""
        first = told = self.told
        found = super().outcomes(confirmed, safe)
        left = self._control.left(self._client, "confirms")
        if left is None or not found:
            return found
        last = first + left
        kept: list[Outcome] = []
        for outcome in found:
            if told >= last:
                break
            until = min(outcome.last, last)
            kept.append(Outcome(until, outcome.accepted, until == told + 1))
            told = until
        self._control.count(self._client, "confirms", min(left, found[-1].last - first))
        return kept
