"""Packets: a common header of twelve bytes, and chunks (RFC 9260, 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import msgspec

from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.checksum import is_intact, sealed
from plugins.protocols.sctp.chunks import Chunk, Type
from plugins.protocols.sctp.errors import MalformedPacket

HEADER = Struct(">HHII")
"""Source port, destination port, verification tag, checksum."""
_ADDRESS = Struct(">HHI")
_CHUNK = Struct(">BBH")
_DATA = frozenset((Type.DATA, Type.I_DATA))
_ALONE = frozenset((Type.INIT, Type.INIT_ACK, Type.SHUTDOWN_COMPLETE))
"""Chunks that must be alone in their packet (6.10)."""


class Packet(msgspec.Struct, frozen=True, gc=False):
    """A decoded packet."""

    source: int
    """The sender's SCTP port."""
    destination: int
    tag: int
    chunks: tuple[Chunk, ...]
    control: tuple[Chunk, ...]
    """The chunks that are neither DATA nor I-DATA."""


def encode(source: int, destination: int, tag: int, encoded: Iterable[bytes]) -> bytes:
    """Return a packet of encoded chunks, or parts of chunks."""
    return sealed(_ADDRESS.pack(source, destination, tag), b"".join(encoded))


def decode(packet: bytes) -> Packet:
    """Decode a packet. Raises ``MalformedPacket``."""
    if len(packet) < HEADER.size + _CHUNK.size:
        raise MalformedPacket(f"{len(packet)} bytes; a packet has {HEADER.size + _CHUNK.size} at least")
    # First of all: nothing in a damaged packet can be believed, not even its ports.
    if not is_intact(packet):
        raise MalformedPacket("a packet with a wrong checksum")
    source, destination, tag, _ = HEADER.unpack_from(packet)
    found: list[Chunk] = []
    control: list[Chunk] = []
    at = HEADER.size
    while at < len(packet):
        # Data is recognized here because it is most of what arrives; the other chunks take the general path.
        if packet[at] in _DATA:
            at = chunks.decode_data(packet, at, found)
        else:
            chunk, at = _decode_control(packet, at)
            found.append(chunk)
            control.append(chunk)
    # The whole packet is discarded: 6.10 forbids to send it, and no rule says which part to believe.
    if control and len(found) > 1 and any(chunks.kind_of(chunk) in _ALONE for chunk in control):
        raise MalformedPacket("INIT, INIT ACK or SHUTDOWN COMPLETE together with other chunks")
    return Packet(source, destination, tag, tuple(found), tuple(control))


def _decode_control(packet: bytes, at: int) -> tuple[Chunk, int]:
    """Return the chunk at ``at``, and the offset of the next one."""
    if len(packet) - at < _CHUNK.size:
        raise MalformedPacket(f"{len(packet) - at} bytes where a chunk should be")
    kind, flags, length = _CHUNK.unpack_from(packet, at)
    end = at + length
    if length < _CHUNK.size or end > len(packet):
        raise MalformedPacket(f"a chunk {kind} of {length} bytes in {len(packet) - at}")
    # The length does not include the padding (3.2).
    return chunks.decode(kind, flags, packet[at + 4 : end]), end + (-length & 3)
