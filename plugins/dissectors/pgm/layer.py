"""PGM as layers of scapy: headers of all types, and option extensions (RFC 3208, 8, 9, 11.8, 14.7 and 15.4).

Written from the RFC, and independent of ``plugins.protocols.pgm``, so that each tests the other.

``PGM() / ODATA(sqn=1) / b"data"`` makes a packet.  Lengths, checksum and the bits about options are filled in
where they are None; a test may set them to anything else.

``PGM(raw)`` reads a packet.  Less than a header raises ``struct.error``.  A body that does not fit its type
becomes ``Raw``, as everywhere in scapy.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    FieldLenField,
    FieldListField,
    IntField,
    IP6Field,
    IPField,
    MultipleTypeField,
    PacketListField,
    ShortEnumField,
    ShortField,
    StrFixedLenField,
    StrLenField,
    XIntField,
    XShortField,
    XStrFixedLenField,
)
from scapy.packet import Packet
from scapy.utils import checksum

TYPES = {
    0x00: "SPM", 0x01: "POLL", 0x02: "POLR", 0x04: "ODATA", 0x05: "RDATA",
    0x08: "NAK", 0x09: "NNAK", 0x0A: "NCF", 0x0C: "SPMR", 0x0D: "ACK",
}  # fmt: skip
UPSTREAM = frozenset({"POLR", "NAK", "NNAK", "SPMR", "ACK"})
"""Packet types to the source, whose ports are in the opposite order."""
_FAMILIES = {1: "IPv4", 2: "IPv6"}
MOST_OPTIONS = 64
"""Option extensions that are read; the RFC allows 16 (9)."""


def _nla(name: str) -> list[Any]:
    """Return the fields of a network-layer address.  An address of an unknown family has no bytes."""
    family = f"{name}_afi"
    return [
        ShortEnumField(family, 1, _FAMILIES),
        ShortField(f"{name}_reserved", 0),
        MultipleTypeField(
            [
                (IPField(name, "0.0.0.0"), lambda packet: getattr(packet, family) == 1),
                (IP6Field(name, "::"), lambda packet: getattr(packet, family) == 2),
            ],
            StrFixedLenField(name, b"", 0),
        ),
    ]


# ---------------------------------------------------------------------- option extensions


class Option(Packet):
    """The fields of all options: a type, a length, the bits F, OPX and U, and seven bits of their own (9)."""

    name = "PGM option"
    kind = 0x7F
    length = 4

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """Leave the following bytes to the next option."""
        return b"", s

    @staticmethod
    def head(kind: int, length: int | None = 4) -> list[Any]:
        """Return the fields that every option begins with."""
        return [
            BitField("last", 0, 1),
            BitEnumField("type", kind, 7, NAMES),
            ByteField("len", length),
            BitField("reserved", 0, 5),
            BitField("encoded", 0, 1),
            BitField("opx", 0, 2),
            BitField("encoded_null", 0, 1),
            BitField("specific", 0, 7),
        ]


NAMES = {
    0x00: "LENGTH", 0x01: "FRAGMENT", 0x02: "NAK_LIST", 0x03: "JOIN", 0x04: "NAK_BO_IVL", 0x05: "NAK_BO_RNG",
    0x07: "REDIRECT", 0x08: "PARITY_PRM", 0x09: "PARITY_GRP", 0x0A: "CURR_TGSIZE", 0x0B: "NBR_UNREACH",
    0x0C: "PATH_NLA", 0x0D: "SYN", 0x0E: "FIN", 0x0F: "RST", 0x10: "CR", 0x11: "CRQST", 0x12: "PGMCC_DATA",
    0x13: "PGMCC_FEEDBACK", 0x7F: "INVALID",
}  # fmt: skip
NETWORK_SIGNIFICANT = frozenset({0x02, 0x04, 0x05, 0x07, 0x08, 0x0B, 0x0C, 0x10, 0x11, 0x12, 0x13})


class OptFragment(Option):
    """OPT_FRAGMENT (9.2)."""

    name = "FRAGMENT"
    fields_desc = [
        *Option.head(0x01, 16),
        IntField("first_sqn", 0),
        IntField("offset", 0),
        IntField("size", 0),
    ]


class OptNakList(Option):
    """OPT_NAK_LIST (9.3)."""

    name = "NAK_LIST"
    fields_desc = [
        BitField("last", 0, 1),
        BitEnumField("type", 0x02, 7, NAMES),
        FieldLenField("len", None, fmt="B", length_of="sqns", adjust=lambda packet, size: size + 4),
        *Option.head(0x02)[3:],
        FieldListField("sqns", [], IntField("", 0), length_from=lambda packet: max(packet.len - 4, 0)),
    ]


class OptJoin(Option):
    """OPT_JOIN (9.4)."""

    name = "JOIN"
    fields_desc = [*Option.head(0x03, 8), IntField("oldest_sqn", 0)]


class OptParityParameters(Option):
    """OPT_PARITY_PRM (11.8.1); of its specific bits, 2 is proactive and 1 on demand."""

    name = "PARITY_PRM"
    fields_desc = [*Option.head(0x08, 8), IntField("group", 0)]


class OptParityGroup(Option):
    """OPT_PARITY_GRP (11.8.2)."""

    name = "PARITY_GRP"
    fields_desc = [*Option.head(0x09, 8), IntField("group", 0)]


class OptGroupSize(Option):
    """OPT_CURR_TGSIZE (11.8.3)."""

    name = "CURR_TGSIZE"
    fields_desc = [*Option.head(0x0A, 8), IntField("size", 0)]


class OptSyn(Option):
    """OPT_SYN (9.6)."""

    name = "SYN"
    fields_desc = Option.head(0x0D)


class OptFin(Option):
    """OPT_FIN (9.7)."""

    name = "FIN"
    fields_desc = Option.head(0x0E)


class OptReset(Option):
    """OPT_RST (9.8).

    Of its specific bits, 0x40 says that NAKs will not be answered, the others are a code.
    """

    name = "RST"
    fields_desc = Option.head(0x0F)


class OptOther(Option):
    """Any other option, as bytes."""

    name = "option"
    fields_desc = [
        BitField("last", 0, 1),
        BitEnumField("type", 0x7F, 7, NAMES),
        FieldLenField("len", None, fmt="B", length_of="value", adjust=lambda packet, size: size + 4),
        *Option.head(0x7F)[3:],
        StrLenField("value", b"", length_from=lambda packet: max(packet.len - 4, 0)),
    ]


_FIXED = {
    (0x01, 16): OptFragment, (0x03, 8): OptJoin, (0x08, 8): OptParityParameters, (0x09, 8): OptParityGroup,
    (0x0A, 8): OptGroupSize, (0x0D, 4): OptSyn, (0x0E, 4): OptFin, (0x0F, 4): OptReset,
}  # fmt: skip


def _next_option(
    packet: Packet, options: list[Any], current: Packet | None, rest: bytes
) -> type[Packet] | None:
    """Return the class of the next option: that of its type if the length fits, else ``OptOther``."""
    if (current is not None and current.last) or len(rest) < 4:
        return None
    kind, length = rest[0] & 0x7F, rest[1]
    # The only option here whose length varies: a list of sequence numbers.
    if kind == 0x02 and length % 4 == 0:
        return OptNakList
    return _FIXED.get((kind, length), OptOther)


def ended(*options: Option) -> list[Option]:
    """Return these options, with OPT_END set in the last one."""
    if options:
        options[-1].last = 1
    return list(options)


# ---------------------------------------------------------------------- what follows the header


def _has_options(packet: Packet) -> bool:
    """Whether option extensions follow.  The header tells it; for a body without a header, its options do."""
    header = packet.underlayer
    # While a packet is being read, the bit in the header decides.  While one is being made, it may be None;
    # then the options themselves do.
    if isinstance(header, PGM) and header.present is not None:
        return bool(header.present)
    return bool(packet.fields.get("options"))


def _options() -> list[Any]:
    """Return the fields of OPT_LENGTH and of the options that follow it."""
    return [
        ConditionalField(ByteField("length_type", 0), _has_options),
        ConditionalField(ByteField("length_len", 4), _has_options),
        ConditionalField(
            FieldLenField("total", None, length_of="options", adjust=lambda packet, size: size + 4),
            _has_options,
        ),
        ConditionalField(
            PacketListField(
                "options",
                [],
                next_cls_cb=_next_option,
                length_from=lambda packet: max(packet.total - 4, 0),
                max_count=MOST_OPTIONS,
            ),
            _has_options,
        ),
    ]


class SPM(Packet):
    """Source path message (8.1)."""

    name = "SPM"
    fields_desc = [
        IntField("sqn", 0), IntField("trail", 0), IntField("lead", 0), *_nla("path"), *_options(),
    ]  # fmt: skip


class ODATA(Packet):
    """Original data (8.2)."""

    name = "ODATA"
    fields_desc = [IntField("sqn", 0), IntField("trail", 0), *_options()]


class RDATA(ODATA):
    """Repair data (8.2)."""

    name = "RDATA"


class NAK(Packet):
    """Negative acknowledgement (8.3)."""

    name = "NAK"
    fields_desc = [IntField("sqn", 0), *_nla("source"), *_nla("group"), *_options()]


class NNAK(NAK):
    """Null NAK, of a designated local repairer (8.3)."""

    name = "NNAK"


class NCF(NAK):
    """NAK confirmation (8.3)."""

    name = "NCF"


class SPMR(Packet):
    """Source path message request (13.3.1)."""

    name = "SPMR"
    fields_desc = _options()


class POLL(Packet):
    """Poll request (14.7.1)."""

    name = "POLL"
    fields_desc = [
        IntField("sqn", 0), ShortField("round", 0), ShortField("subtype", 0), *_nla("path"),
        IntField("back_off", 0), XIntField("random", 0), XIntField("mask", 0), *_options(),
    ]  # fmt: skip


class POLR(Packet):
    """Poll response (14.7.2)."""

    name = "POLR"
    fields_desc = [IntField("sqn", 0), ShortField("round", 0), ShortField("reserved", 0), *_options()]


class ACK(Packet):
    """Acknowledgement of the acker of PGMCC.  It is not in RFC 3208; the layout is OpenPGM's."""

    name = "ACK"
    fields_desc = [IntField("highest", 0), XIntField("bitmap", 0), *_options()]


BODIES: dict[int, type[Packet]] = {
    0x00: SPM, 0x01: POLL, 0x02: POLR, 0x04: ODATA, 0x05: RDATA, 0x08: NAK, 0x09: NNAK, 0x0A: NCF, 0x0C: SPMR,
    0x0D: ACK,
}  # fmt: skip
_TYPE_OF = {body: kind for kind, body in BODIES.items()}


class PGM(Packet):
    """The header that all packets have (8)."""

    name = "PGM"
    fields_desc = [
        ShortField("sport", 0),
        ShortField("dport", 0),
        BitField("version", 0, 2),
        BitField("reserved", 0, 2),
        BitEnumField("type", None, 4, TYPES),
        BitField("parity", 0, 1),
        BitField("var_pktlen", 0, 1),
        BitField("unused", 0, 4),
        BitField("network_significant", None, 1),
        BitField("present", None, 1),
        XShortField("chksum", None),
        XStrFixedLenField("gsi", bytes(6), 6),
        ShortField("tsdu", None),
    ]

    def post_build(self, packet: bytes, payload: bytes) -> bytes:
        """Fill in the fields that were left at None."""
        body = self.payload
        head = bytearray(packet)
        options = body.fields.get("options") or []
        if self.type is None:
            head[4] |= _TYPE_OF.get(type(body), 0)
        if self.present is None:
            head[5] |= bool(options)
        if self.network_significant is None:
            head[5] |= 2 * any(option.type in NETWORK_SIGNIFICANT for option in options)
        if self.tsdu is None:
            # The TSDU length counts the data behind the options.
            head[14:16] = len(body.payload).to_bytes(2, "big")
        # RFC 3208, 8: the checksum is over the whole packet with 0 in its place.  A result of 0 is written as
        # 0xFFFF, because 0 means that there is no checksum.
        if self.chksum is None:
            head[6:8] = b"\0\0"
            head[6:8] = (checksum(bytes(head) + payload) or 0xFFFF).to_bytes(2, "big")
        return bytes(head) + payload

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the layer that follows a header of this type."""
        found: type[Packet] = BODIES.get(self.type) or self.default_payload_class(payload)
        return found


def options_of(body: Packet) -> list[Option]:
    """Return a packet's options, without those that scapy could not read (``Raw``)."""
    return [option for option in body.fields.get("options") or [] if isinstance(option, Option)]


def numbers_of(request: Packet) -> list[int]:
    """Return the sequence numbers of a NAK or NCF: the one in its header, and those of its list."""
    numbers = [request.sqn]
    for option in options_of(request):
        if isinstance(option, OptNakList):
            numbers += option.sqns
    return numbers
