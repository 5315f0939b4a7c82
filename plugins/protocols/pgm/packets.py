"""Packets of PGM: what the bytes look like (RFC 3208, 8).

Every packet begins with the same 16 bytes: two ports, type, options, checksum, the source's global identifier
and the length of the data. A *TSI* (transport session identifier) is that identifier and the source's port,
eight bytes here. Packets on their way to a source have the two ports the other way round.

Hot paths (``source.py``, ``receiver.py``) pack and unpack plain data packets themselves, with ``DATA``;
everything else goes through ``decode`` and the ``encode_*`` functions.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from plugins.protocols.pgm import extensions as ext
from plugins.protocols.pgm.checksum import is_intact, sealed
from plugins.protocols.pgm.extensions import Extensions, MalformedPacket

SPM, POLL, POLR, ODATA, RDATA, NAK, NNAK, NCF, SPMR, ACK = 0, 1, 2, 4, 5, 8, 9, 10, 12, 13

NAMES = {
    SPM: "SPM", POLL: "POLL", POLR: "POLR", ODATA: "ODATA", RDATA: "RDATA",
    NAK: "NAK", NNAK: "NNAK", NCF: "NCF", SPMR: "SPMR", ACK: "ACK",
}  # fmt: skip

# The bits of the options byte are those that OpenPGM sends. The RFC counts bits from the left (8, Options);
# OpenPGM counts them from the right.
VAR_PKTLEN = 0x40
PARITY = 0x80

HEADER = Struct(">HHBBH6sH")
"""Source port, destination port, type, options, checksum, global source identifier, TSDU length."""
DATA = Struct(">HHBBH6sHII")
"""The same, and sequence number and trailing edge."""

# The type alone tells the direction. NCF and POLL, between these numbers, go downstream (8).
UPSTREAM = frozenset((POLR, NAK, NNAK, SPMR, ACK))
"""Packet types from receivers, whose ports are in the opposite order."""

_WINDOW = Struct(">III")
_ACK = Struct(">II")
_AFI_OF_SIZE = {4: 1, 16: 2}
_SIZE_OF_AFI = {1: 4, 2: 16}


class Packet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What all packets have."""

    kind: int
    tsi: bytes
    """Global source identifier (six bytes) and source port (two)."""
    port: int
    """Data-destination port."""
    extensions: Extensions = ext.NONE


class SourcePath(Packet, frozen=True, kw_only=True, gc=False):
    """SPM: the source's window and address (8.1)."""

    number: int
    trail: int
    lead: int
    path: bytes
    """The address that NAKs go to, 4 or 16 bytes."""


class Data(Packet, frozen=True, kw_only=True, gc=False):
    """ODATA or RDATA (8.2)."""

    number: int
    trail: int
    data: bytes
    parity: bool = False
    variable: bool = False
    """OPT_VAR_PKTLEN: of a parity packet, that the group's packets differ in length."""


class Request(Packet, frozen=True, kw_only=True, gc=False):
    """NAK, NNAK or NCF: a request for repairs, or the confirmation of one (8.3)."""

    numbers: tuple[int, ...]
    """The number in the header, then those of the list."""
    source: bytes
    group: bytes
    parity: bool = False


class Ack(Packet, frozen=True, kw_only=True, gc=False):
    """ACK: what has arrived at the acker (PGMCC)."""

    highest: int
    """The highest sequence number that has arrived."""
    bitmap: int
    """Bitmap of the 32 packets up to that one, whose bit is the lowest."""


def tsi_of(packet: bytes) -> bytes:
    """Return the TSI of a packet."""
    return packet[8:14] + (packet[2:4] if packet[4] in UPSTREAM else packet[0:2])


def tsi_text(tsi: bytes) -> str:
    """Return a TSI as text: the identifier in hexadecimal, a dot, and the port."""
    return f"{tsi[:6].hex()}.{int.from_bytes(tsi[6:], 'big')}"


# ---------------------------------------------------------------------- writing


def _packet(
    kind: int, tsi: bytes, port: int, body: bytes, extensions: Extensions, data: bytes = b"", bits: int = 0
) -> bytes:
    options, more = ext.encode(extensions)
    # Upstream packets have the ports the other way round: the data-destination port is first (8).
    ours = int.from_bytes(tsi[6:], "big")
    ports = (port, ours) if kind in UPSTREAM else (ours, port)
    head = HEADER.pack(*ports, kind, bits | more, 0, tsi[:6], len(data))
    return sealed(head + body + options + data)


def encode(packet: Packet) -> bytes:
    """Return the encoded packet."""
    if isinstance(packet, SourcePath):
        body = _WINDOW.pack(packet.number, packet.trail, packet.lead) + _address(packet.path)
        return _packet(packet.kind, packet.tsi, packet.port, body, packet.extensions)
    if isinstance(packet, Data):
        body = packet.number.to_bytes(4, "big") + packet.trail.to_bytes(4, "big")
        bits = (PARITY if packet.parity else 0) | (VAR_PKTLEN if packet.variable else 0)
        return _packet(packet.kind, packet.tsi, packet.port, body, packet.extensions, packet.data, bits)
    if isinstance(packet, Request):
        body = packet.numbers[0].to_bytes(4, "big") + _address(packet.source) + _address(packet.group)
        # The first number is in the header, only the others are in OPT_NAK_LIST (9.3).
        listed = Extensions(nak_list=packet.numbers[1:], feedback=packet.extensions.feedback)
        bits = PARITY if packet.parity else 0
        return _packet(packet.kind, packet.tsi, packet.port, body, listed, bits=bits)
    if isinstance(packet, Ack):
        body = _ACK.pack(packet.highest, packet.bitmap)
        return _packet(packet.kind, packet.tsi, packet.port, body, packet.extensions)
    return _packet(packet.kind, packet.tsi, packet.port, b"", packet.extensions)


def _address(address: bytes) -> bytes:
    return _AFI_OF_SIZE[len(address)].to_bytes(2, "big") + b"\0\0" + address


# ---------------------------------------------------------------------- reading


def decode(packet: bytes) -> Packet:
    """Decode a packet. Raises ``MalformedPacket``."""
    if len(packet) < HEADER.size:
        raise MalformedPacket(f"{len(packet)} bytes; a header has {HEADER.size}")
    first, second, kind, options, checksum, identifier, length = HEADER.unpack_from(packet)
    if kind not in NAMES:
        raise MalformedPacket(f"type {kind:#04x}")
    # 0 means no checksum, which data packets must not have.
    # A network element that changes a header may clear the checksum instead of computing it again (8).
    if not (is_intact(packet) if checksum else kind not in (ODATA, RDATA)):
        raise MalformedPacket(f"{NAMES[kind]} with a wrong checksum")
    source, port = (second, first) if kind in UPSTREAM else (first, second)
    common = (kind, identifier + source.to_bytes(2, "big"), port)
    if kind in (ODATA, RDATA):
        return _decode_data(packet, common, options, length)
    if kind == SPM:
        return _decode_spm(packet, common, options)
    if kind in (NAK, NNAK, NCF):
        return _decode_request(packet, common, options)
    if kind == ACK:
        return _decode_ack(packet, common, options)
    return Packet(kind=kind, tsi=common[1], port=port)


_Common = tuple[int, bytes, int]


def _extensions(packet: bytes, at: int, options: int) -> tuple[Extensions, int]:
    return ext.decode(packet, at) if options & 0x01 else (ext.NONE, at)


def _decode_data(packet: bytes, common: _Common, options: int, length: int) -> Data:
    if len(packet) < DATA.size:
        raise MalformedPacket(f"data in {len(packet)} bytes")
    number, trail = int.from_bytes(packet[16:20], "big"), int.from_bytes(packet[20:24], "big")
    extensions, at = _extensions(packet, DATA.size, options)
    # The length in the header must agree with the datagram's: the rest of a truncated packet must not be
    # taken for a short message.
    if len(packet) != at + length:
        raise MalformedPacket(f"a TSDU of {len(packet) - at} bytes whose header says {length}")
    kind, tsi, port = common
    return Data(
        kind=kind,
        tsi=tsi,
        port=port,
        extensions=extensions,
        number=number,
        trail=trail,
        data=packet[at:],
        parity=bool(options & PARITY),
        variable=bool(options & VAR_PKTLEN),
    )


def _decode_spm(packet: bytes, common: _Common, options: int) -> SourcePath:
    if len(packet) < 28:
        raise MalformedPacket(f"an SPM in {len(packet)} bytes")
    number, trail, lead = _WINDOW.unpack_from(packet, 16)
    path, at = _read_address(packet, 28)
    extensions, _ = _extensions(packet, at, options)
    kind, tsi, port = common
    return SourcePath(
        kind=kind, tsi=tsi, port=port, extensions=extensions, number=number, trail=trail, lead=lead, path=path
    )


def _decode_ack(packet: bytes, common: _Common, options: int) -> Ack:
    if len(packet) < HEADER.size + _ACK.size:
        raise MalformedPacket(f"an ACK in {len(packet)} bytes")
    highest, bitmap = _ACK.unpack_from(packet, HEADER.size)
    extensions, _ = _extensions(packet, HEADER.size + _ACK.size, options)
    kind, tsi, port = common
    return Ack(kind=kind, tsi=tsi, port=port, extensions=extensions, highest=highest, bitmap=bitmap)


def _decode_request(packet: bytes, common: _Common, options: int) -> Request:
    number = int.from_bytes(packet[16:20], "big")
    source, at = _read_address(packet, 20)
    group, at = _read_address(packet, at)
    extensions, _ = _extensions(packet, at, options)
    kind, tsi, port = common
    return Request(
        kind=kind,
        tsi=tsi,
        port=port,
        extensions=Extensions(feedback=extensions.feedback) if extensions.feedback else ext.NONE,
        numbers=(number, *extensions.nak_list),
        source=source,
        group=group,
        parity=bool(options & PARITY),
    )


def _read_address(packet: bytes, at: int) -> tuple[bytes, int]:
    """Return the address whose family is at ``at``, and the offset behind it."""
    size = _SIZE_OF_AFI.get(int.from_bytes(packet[at : at + 2], "big"), 0)
    end = at + 4 + size
    if not size or end > len(packet):
        raise MalformedPacket("an address of an unknown family, or a truncated one")
    return packet[at + 4 : end], end
