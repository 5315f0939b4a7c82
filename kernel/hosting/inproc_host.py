"""In-process host: one end of a connection between two engines of one kernel.  Batches pass as they are: no bytes, no copies."""

from __future__ import annotations

from kernel.contracts.engine import Host, Port
from kernel.contracts.message import Batch
from kernel.pipes.pipe import Pipe
from kernel.pipes.water_marks import WaterMarks

_AT_ONCE = 4096
_MARKS = WaterMarks(high=4 * _AT_ONCE)


class InprocEnd:
    """One end of a connection: moves batches between its port and the pipes to and from the other end."""

    def __init__(self, host: Host, peer: str) -> None:
        self.peer = peer
        self.port: Port | None = None
        self.messages_in = self.messages_out = 0
        self._host = host
        self._incoming: Pipe | None = None
        self._outgoing: Pipe | None = None
        self._going = True
        self._sent_before = 0
        self._peer_confirmed = 0
        self._waiting_for_room = False
        self._wanted = 0  # whether what is written now is to be confirmed: the port's ``must_confirm``
        self._direct = 0  # messages confirmed at once, because nobody further on confirms

    def plug(self, incoming: Pipe, outgoing: Pipe, port: Port) -> None:
        """Begin.  In the thread of this end."""
        self.port, self._incoming, self._outgoing = port, incoming, outgoing
        self._sent_before = port.sent()
        self._direct = 0
        incoming.on_ready = self._on_incoming  # the pipes post to hosts, which call in their thread
        outgoing.on_writable = self._on_room
        outgoing.on_confirmed = self._on_peer_confirmed
        self._peer_confirmed = 0
        self._waiting_for_room = False
        self._wanted = port.must_confirm
        again = port.rewind() if self._wanted else []
        self._write(again)
        self._on_incoming()
        self.on_output()

    def unplug(self) -> None:
        """Stop; the other end reads what is on its way and then sees the end."""
        if self._outgoing is not None:
            self._outgoing.end()
        self._incoming = self._outgoing = None

    def on_output(self) -> None:
        """The port has something for the other end."""
        while self.port is not None and self._outgoing is not None and not self._waiting_for_room:
            batches = self.port.take(_AT_ONCE)
            if not batches:
                return
            if self.port.must_confirm != self._wanted:
                self._wanted = self.port.must_confirm
                self._peer_confirmed = self._outgoing.written  # nobody waits for those before
            self._write(batches)

    def _write(self, batches: list[Batch]) -> None:
        assert self._outgoing is not None
        for batch in batches:
            self.messages_out += len(batch)
            self._waiting_for_room |= not self._outgoing.write(batch)

    def _on_room(self) -> None:
        self._waiting_for_room = False
        self.on_output()

    def _on_incoming(self) -> None:
        incoming, port = self._incoming, self.port
        while incoming is not None and port is not None and self._going and incoming.more():
            batches = incoming.take(_AT_ONCE)
            count = sum(map(len, batches))
            self.messages_in += count
            self._going = port.send(batches)
            if not port.confirms:  # nobody further on does: it is out of our hands
                incoming.confirm(count)
                self._direct += count
                self._sent_before = port.sent()
        if incoming is not None and incoming.ended and not incoming.more():
            self.on_end()

    def on_end(self) -> None:
        """The other end has gone; set by the engine."""

    def on_writable(self) -> None:
        """The pipes beyond the port have room again."""
        self._going = True
        self._on_incoming()

    def on_confirmed(self, count: int) -> None:
        """Every destination has confirmed."""
        if self._incoming is not None and count > self._sent_before:
            news = self._direct + count - self._sent_before - self._incoming.confirmed
            if news > 0:
                self._incoming.confirm(news)

    def _on_peer_confirmed(self) -> None:
        if self._outgoing is not None and self.port is not None:
            news = self._outgoing.confirmed - self._peer_confirmed
            if news > 0:
                self._peer_confirmed += news
                self.port.confirm(news)


def pipe_pair(place: str, here: Host, there: Host) -> tuple[Pipe, Pipe]:
    """Return the pipes from here to there, and from there to here."""
    return (
        Pipe(
            f"inproc {place} out", _MARKS, post_to_reader=there.post, post_to_writer=here.post, confirms=True
        ),
        Pipe(
            f"inproc {place} back", _MARKS, post_to_reader=here.post, post_to_writer=there.post, confirms=True
        ),
    )
