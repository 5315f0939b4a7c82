"""SCTP in captures: a line for each chunk, and for each association its retransmissions and times.

Chunks are decoded one by one with the decoder of ``plugins.protocols.sctp``, so that a damaged chunk does not
hide the others.  A packet with a wrong checksum is decoded, too, and counted: if the hardware computes the
checksum, a capture at the sender has packets without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any

from kernel.contracts.dissector import Datagram, Line
from kernel.contracts.errors import RemoteProtocolError
from plugins.dissectors.sctp.associations import Association, Associations
from plugins.dissectors.sctp.facts import facts_of, name_of
from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.checksum import is_intact
from plugins.protocols.sctp.chunks import Chunk, Init, Type
from plugins.protocols.sctp.packets import HEADER

_CHUNK = Struct(">BBH")


class SctpDissector:
    """The dissector of all associations of a capture."""

    def __init__(self) -> None:
        self._associations = Associations()

    def receive(self, datagram: Datagram) -> list[Line]:
        """Process a packet; return a line for each of its chunks."""
        data = datagram.data
        if len(data) < HEADER.size + _CHUNK.size:
            return [Line("malformed", {"why": f"{len(data)} bytes; a packet has 16 at least"}, "sctp")]
        source, destination, tag, _ = HEADER.unpack_from(data)
        # A packet that was not captured whole cannot be checked.
        intact = datagram.cut > 0 or is_intact(data)
        found = list(_chunks(data, datagram.cut))
        first = found[0] if found else None
        # RFC 9260, 6.10: an INIT is the only chunk of its packet.
        initial = first if isinstance(first, Init) and not first.is_ack else None
        association, sender = self._associations.of(
            (datagram.source, source), (datagram.destination, destination), tag, initial
        )
        association.wrong_checksums += not intact
        lines = [self._line(association, sender, chunk, datagram.time) for chunk in found]
        if intact:
            return lines
        return [Line(line.what, {**line.facts, "checksum": "wrong"}, line.session) for line in lines]

    def sessions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the figures of each association."""
        return {association.name: association.figures() for association in self._associations.all()}

    def _line(self, association: Association, sender: int, chunk: Chunk | str, time: float) -> Line:
        if isinstance(chunk, str):
            association.malformed += 1
            return Line("malformed", {"why": chunk}, association.name)
        if isinstance(chunk, Init) and chunk.is_ack:
            self._associations.learn(association, sender, chunk.tag)
        again = association.see(sender, chunk, time)
        facts = facts_of(chunk)
        return Line(name_of(chunk), {**facts, "again": True} if again else facts, association.name)


def _chunk(kind: int, flags: int, whole: bytes) -> Chunk:
    # ``decode_data`` reads a chunk together with its header, and appends it to a list.
    if kind not in (Type.DATA, Type.I_DATA):
        return chunks.decode(kind, flags, whole[_CHUNK.size :])
    found: list[Chunk] = []
    chunks.decode_data(whole, 0, found)
    return found[0]


def _chunks(packet: bytes, cut: int) -> Iterator[Chunk | str]:
    """Yield the chunks of a packet, and a text for each chunk that is malformed."""
    at, end = HEADER.size, len(packet)
    while at < end:
        if end - at < _CHUNK.size:
            yield f"{end - at} bytes where a chunk should be"
            return
        kind, flags, length = _CHUNK.unpack_from(packet, at)
        # Where the next chunk begins is not known any more, so the packet ends here.
        if length < _CHUNK.size or at + length > end:
            yield "not captured whole" if cut else f"a chunk {kind} of {length} bytes in {end - at}"
            return
        try:
            yield _chunk(kind, flags, packet[at : at + length])
        except RemoteProtocolError as error:
            yield str(error)
        # Chunks are padded to four bytes (RFC 9260, 3.2).
        at += length + -length % 4
