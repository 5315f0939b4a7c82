"""SCTP in captures: a line for each chunk, and for each association its retransmissions and times.

Chunks are decoded one by one with the decoder of ``plugins.protocols.sctp``, so that a damaged one hides no
other. A wrong checksum is reported and counted, but hides nothing: at its sender, a packet whose checksum the
hardware computes has none.
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
        intact = datagram.cut > 0 or is_intact(data)
        found = list(_chunks(data, datagram.cut))
        first = found[0] if found else None
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
    if kind not in (Type.DATA, Type.I_DATA):
        return chunks.decode(kind, flags, whole[_CHUNK.size :])
    found: list[Chunk] = []
    chunks.decode_data(whole, 0, found)
    return found[0]


def _chunks(packet: bytes, cut: int) -> Iterator[Chunk | str]:
    """Yield the chunks of a packet, and the faults of what is none."""
    at, end = HEADER.size, len(packet)
    while at < end:
        if end - at < _CHUNK.size:
            yield f"{end - at} bytes where a chunk should be"
            return
        kind, flags, length = _CHUNK.unpack_from(packet, at)
        if length < _CHUNK.size or at + length > end:
            yield "not captured whole" if cut else f"a chunk {kind} of {length} bytes in {end - at}"
            return
        try:
            yield _chunk(kind, flags, packet[at : at + length])
        except RemoteProtocolError as error:
            yield str(error)
        at += length + -length % 4
