"""A TCP connection, and the dissector that reads it once its protocol is recognised.

A conversation is undecided at first: chunks wait in ``_undecided`` while the first bytes of each sender are
compared with what the dissectors know.  If the user has named the protocol of a port, it is decided from the
beginning.  Otherwise it is decided by the bytes, and by the port when there are enough bytes to say that
nobody knows them.  Then the chunks that waited are dissected, or the conversation is ignored.  It never
changes its mind: a dissector that fails is not replaced, since it has read bytes that another one would miss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernel.contracts.dissector import Line, StreamDissector
from kernel.contracts.kinds import DissectorKind
from kernel.inspection.recognition import RECOGNITION_BYTES, Recognition
from kernel.inspection.tcp import Chunk, Segment, TcpConversation

# Gaps count too: a connection of which only gaps were captured would otherwise wait for ever.
UNDECIDED_CHUNKS = 8


class Conversation:
    """A connection between a client and a server."""

    def __init__(self, segment: Segment, recognition: Recognition) -> None:
        self.kind: DissectorKind | None = None
        self.tcp: TcpConversation = TcpConversation(*_client_and_server(segment, recognition))
        self.ignored: bool = False
        """Whether it is not to be shown."""
        self.number = 0
        """Number among this protocol's conversations, given by the owner."""
        self._recognition = recognition
        self._dissector: StreamDissector | None = None
        self._undecided: list[Chunk] = []
        self._first = [b"", b""]
        ports = (self.tcp.server[1], self.tcp.client[1])
        # The user's word comes before the bytes.
        if recognition.is_meant(*ports):
            self._decide(recognition.of_ports("stream", *ports))

    def take(self, segment: Segment) -> Iterator[Line]:
        """Process a segment; yield the lines that it completes."""
        if not self.ignored:
            yield from self._read(self.tcp.take(segment), segment.time)

    def finish(self, time: float) -> Iterator[Line]:
        """Yield lines for what still waits for bytes that will not arrive."""
        if not self.ignored:
            yield from self._read(self.tcp.finish(), time)
            # The capture ends before there were enough bytes to decide.
            if self.kind is None and self._undecided:
                self._guess()
                yield from self._decided(time)

    def row(self) -> dict[str, Any]:
        """Return the figures of a conversation whose ``kind`` is known."""
        assert self.kind is not None
        assert self._dissector is not None
        return {
            "session": f"{self.kind.name}-{self.number}",
            "client": endpoint(*self.tcp.client),
            "server": endpoint(*self.tcp.server),
            **own_figures(self._dissector.figures),
            **self.tcp.figures(),
        }

    def _read(self, chunks: Iterable[Chunk], time: float) -> Iterator[Line]:
        for chunk in chunks:
            # Asked for each chunk: at the one before, nobody may have known its bytes, or the dissector may
            # have failed.
            if self.ignored:
                return
            if self._dissector is not None:
                yield from self._dissect(chunk, time)
            else:
                self._undecided.append(chunk)
                self._recognise(chunk)
                yield from self._decided(time)

    def _recognise(self, chunk: Chunk) -> None:
        first = (self._first[chunk.sender] + chunk.data)[:RECOGNITION_BYTES]
        self._first[chunk.sender] = first
        found = self._recognition.of_bytes("stream", first)
        if found is not None:
            self._decide(found)
        # Nobody recognises these bytes, and more of them would not help.
        elif len(first) >= RECOGNITION_BYTES or len(self._undecided) >= UNDECIDED_CHUNKS:
            self._guess()

    def _guess(self) -> None:
        self._decide(self._recognition.of_ports("stream", self.tcp.server[1], self.tcp.client[1]))

    def _decide(self, kind: DissectorKind | None) -> None:
        if kind is None:
            self.ignored = True
            self._undecided.clear()
            return
        self.kind = kind
        self._dissector = kind.create()

    def _decided(self, time: float) -> Iterator[Line]:
        """Dissect the bytes that arrived before the protocol was recognised."""
        if self._dissector is not None:
            chunks, self._undecided = self._undecided, []
            for chunk in chunks:
                yield from self._dissect(chunk, time)

    def _dissect(self, chunk: Chunk, time: float) -> Sequence[Line]:
        assert self._dissector is not None
        try:
            if chunk.data:
                return self._dissector.receive(chunk.sender, chunk.data, time)
            return self._dissector.lose(chunk.sender, chunk.lost, time)
        # A dissector is a plugin's, and reads bytes that anybody may have sent.  Its fault ends this
        # conversation only.
        except Exception as error:
            self.ignored = True
            return [failed(error)]


FAILED = "dissector failed"


def failed(error: Exception) -> Line:
    """Return a line that reports a fault of a dissector: other conversations are still shown."""
    return Line(FAILED, {"error": _told(error)})


def own_figures(figures: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what a dissector counts; if that fails, a figure that says so in their place."""
    try:
        return figures()
    # As for a line: the tables of all others are still wanted.
    except Exception as error:
        return {FAILED: _told(error)}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def endpoint(address: str, port: int) -> str:
    """Return an address and a port as text; port 0 is omitted."""
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _client_and_server(segment: Segment, recognition: Recognition) -> tuple[tuple[str, int], tuple[str, int]]:
    source, destination = segment.source, segment.destination
    # A SYN tells for certain: the client's has no ACK (RFC 9293, section 3.5).
    if segment.syn:
        from_client = segment.acknowledged is None
    elif recognition.is_known_port(destination[1]) != recognition.is_known_port(source[1]):
        from_client = recognition.is_known_port(destination[1])
    else:
        # Neither port says anything.  Clients have ephemeral ports, which are high.
        from_client = source[1] >= destination[1]
    return (source, destination) if from_client else (destination, source)
