"""Option extensions: what may stand between the header of a packet and its data (RFC 3208, 9 and 11.8).

``Extensions`` is all of them that mean something to us, decoded.  Unknown ones are skipped, and so are the
bits of the third byte (OPX, F, U) of those that are not about parity: OpenPGM leaves whatever memory had
there.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from kernel.contracts.errors import RemoteProtocolError

LENGTH, FRAGMENT, NAK_LIST, JOIN = 0x00, 0x01, 0x02, 0x03
PARITY_PRM, PARITY_GRP, CURR_TGSIZE = 0x08, 0x09, 0x0A
SYN, FIN, RST = 0x0D, 0x0E, 0x0F
PGMCC_DATA, PGMCC_FEEDBACK = 0x12, 0x13
"""Not in the RFC: the numbers that OpenPGM uses."""

END = 0x80
"""Set in the type of the last option extension."""
MAX_NAK_LIST = 62
MOST = 16
"""Option extensions that a packet may have."""

ENCODED = 0x04
"""The F bit, after five reserved ones: the value belongs to a parity packet, and is itself parity (9,
11.2)."""

_NETWORK_SIGNIFICANT = {NAK_LIST, PARITY_PRM}
_FRAGMENT = Struct(">III")
_U32 = Struct(">I")
_PGMCC_DATA, _PGMCC_FEEDBACK = Struct(">IHxx"), Struct(">IHH")
_LOSS_OF_ALL = 0xFFFF
_AFI_OF_SIZE = {4: 1, 16: 2}


class MalformedPacket(RemoteProtocolError):
    """The bytes are no PGM packet, or a damaged one. Unknown types and options are no error."""


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """OPT_FRAGMENT: a fragment of a larger unit (9.2)."""

    first: int
    """Sequence number of the packet with the first fragment."""
    offset: int
    """Offset of this fragment in bytes."""
    size: int
    """Bytes of the whole unit."""


class Reset(msgspec.Struct, frozen=True, gc=False):
    """OPT_RST: the source ends the session with an error (9.8)."""

    code: int = 0
    unanswered: bool = False
    """The N bit: NAKs will not be answered."""


class ParityParameters(msgspec.Struct, frozen=True, gc=False):
    """OPT_PARITY_PRM: what a source offers (11.8.1)."""

    group: int
    """Packets in a transmission group."""
    proactive: bool = False
    on_demand: bool = False


class CongestionData(msgspec.Struct, frozen=True, gc=False):
    """OPT_PGMCC_DATA: when the packet was sent, and who must acknowledge it."""

    timestamp: int
    acker: bytes
    """The acker's address of 4 or 16 bytes; zeros: none yet."""


class CongestionFeedback(msgspec.Struct, frozen=True, gc=False):
    """OPT_PGMCC_FEEDBACK: the report of a receiver."""

    timestamp: int
    """Timestamp of the last packet plus the time since."""
    loss: float
    """Loss rate from 0 to 1."""
    address: bytes


class Extensions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The option extensions of one packet."""

    fragment: Fragment | None = None
    encoded: bool = False
    """The fragment's numbers are parity of those of the group's packets."""
    nak_list: tuple[int, ...] = ()
    join: int | None = None
    """The oldest packet that a new receiver may request (9.4)."""
    syn: bool = False
    fin: bool = False
    reset: Reset | None = None
    parity: ParityParameters | None = None
    parity_group: int = 0
    group_size: int | None = None
    congestion: CongestionData | None = None
    feedback: CongestionFeedback | None = None


NONE = Extensions()


def encode(extensions: Extensions) -> tuple[bytes, int]:
    """Return the encoded extensions, and the bits that announce them in the header's options byte."""
    found = _options(extensions)
    # Most data packets have no options; they have no OPT_LENGTH either.
    if not found:
        return b"", 0
    encoded = [bytes((kind, 4 + len(value), third, fourth)) + value for kind, third, fourth, value in found]
    last = encoded[-1]
    encoded[-1] = bytes((last[0] | END,)) + last[1:]
    body = b"".join(encoded)
    # 0x01: there are options; 0x02: at least one concerns network elements. The RFC calls these bits 0 and 1
    # and counts from the left (8, Options). OpenPGM counts from the right, and so do we.
    bits = 0x03 if any(kind in _NETWORK_SIGNIFICANT for kind, *_ in found) else 0x01
    return b"\x00\x04" + (4 + len(body)).to_bytes(2, "big") + body, bits


def _options(extensions: Extensions) -> list[tuple[int, int, int, bytes]]:
    """Return type, third and fourth byte, and value of each; the network-significant first (9.1)."""
    found: list[tuple[int, int, int, bytes]] = []
    if extensions.nak_list:
        numbers = extensions.nak_list
        found.append((NAK_LIST, 0, 0, b"".join(map(_U32.pack, numbers))))
    if extensions.parity is not None:
        parity = extensions.parity
        found.append((PARITY_PRM, 0, parity.proactive << 1 | parity.on_demand, _U32.pack(parity.group)))
    if extensions.fragment is not None:
        fragment = extensions.fragment
        value = _FRAGMENT.pack(fragment.first, fragment.offset, fragment.size)
        found.append((FRAGMENT, ENCODED if extensions.encoded else 0, 0, value))
    if extensions.join is not None:
        found.append((JOIN, 0, 0, _U32.pack(extensions.join)))
    if extensions.parity_group:
        found.append((PARITY_GRP, 0, 0, _U32.pack(extensions.parity_group)))
    if extensions.group_size is not None:
        found.append((CURR_TGSIZE, 0, 0, _U32.pack(extensions.group_size)))
    found += _congestion_options(extensions)
    if extensions.syn:
        found.append((SYN, 0, 0, b""))
    if extensions.fin:
        found.append((FIN, 0, 0, b""))
    if extensions.reset is not None:
        found.append((RST, 0, extensions.reset.unanswered << 6 | extensions.reset.code & 0x3F, b""))
    return found


def _congestion_options(extensions: Extensions) -> list[tuple[int, int, int, bytes]]:
    found: list[tuple[int, int, int, bytes]] = []
    if (data := extensions.congestion) is not None:
        value = _PGMCC_DATA.pack(data.timestamp, _AFI_OF_SIZE[len(data.acker)]) + data.acker
        found.append((PGMCC_DATA, 0, 0, value))
    if (feedback := extensions.feedback) is not None:
        # 16 bits, of which all ones mean that everything was lost (PGMCC, 2.1.3).
        loss = round(feedback.loss * _LOSS_OF_ALL)
        head = _PGMCC_FEEDBACK.pack(feedback.timestamp, _AFI_OF_SIZE[len(feedback.address)], loss)
        found.append((PGMCC_FEEDBACK, 0, 0, head + feedback.address))
    return found


def decode(packet: bytes, at: int) -> tuple[Extensions, int]:
    """Return the extensions that begin at ``at``, and the offset behind them."""
    if len(packet) < at + 4 or packet[at] & ~END != LENGTH or packet[at + 1] != 4:
        raise MalformedPacket("option extensions that do not begin with OPT_LENGTH")
    end = at + int.from_bytes(packet[at + 2 : at + 4], "big")
    if end > len(packet):
        raise MalformedPacket("option extensions that are longer than the packet")
    fields: dict[str, object] = {}
    at += 4
    # A limit, since a packet's receiver walks the list before it knows whether the packet is of use.
    for _ in range(MOST):
        if at + 4 > end:
            raise MalformedPacket("option extensions without a last one (OPT_END)")
        kind, length = packet[at], packet[at + 1]
        # Every option has a head of four bytes: a shorter one would let the loop stand still.
        if length < 4 or at + length > end:
            raise MalformedPacket(f"an option extension of type {kind & 0x7F} that is {length} bytes long")
        # An unknown option is skipped by its length.
        _decode_one(kind & 0x7F, packet[at : at + length], fields)
        at += length
        if kind & END:
            return Extensions(**fields) if fields else NONE, end  # type: ignore[arg-type]
    raise MalformedPacket(f"more than {MOST} option extensions")


def _decode_one(kind: int, option: bytes, fields: dict[str, object]) -> None:
    value = option[4:]
    if kind == FRAGMENT:
        fields["fragment"] = Fragment(*_FRAGMENT.unpack(_sized(value, 12, "OPT_FRAGMENT")))
        # The only bit of the third byte that is read: without it the fragment's numbers are as they say, with
        # it they are parity.
        fields["encoded"] = bool(option[2] & ENCODED)
    elif kind == NAK_LIST:
        # 62 numbers and the one in the header: a longer list would let one packet cause more repairs than the
        # RFC allows (9.3).
        if len(value) % 4 or len(value) > 4 * MAX_NAK_LIST:
            raise MalformedPacket(f"OPT_NAK_LIST of {len(value)} bytes")
        fields["nak_list"] = tuple(number for (number,) in _U32.iter_unpack(value))
    elif kind == PARITY_PRM:
        group = _number(value, "OPT_PARITY_PRM")
        fields["parity"] = ParityParameters(group, bool(option[3] & 2), bool(option[3] & 1))
    elif kind in _NUMBERS:
        name, what = _NUMBERS[kind]
        fields[name] = _number(value, what)
    elif kind == SYN:
        fields["syn"] = True
    elif kind == FIN:
        fields["fin"] = True
    elif kind in (PGMCC_DATA, PGMCC_FEEDBACK):
        _decode_congestion(kind, value, fields)
    elif kind == RST:
        fields["reset"] = Reset(option[3] & 0x3F, bool(option[3] & 0x40))


def _decode_congestion(kind: int, value: bytes, fields: dict[str, object]) -> None:
    family, address = int.from_bytes(value[4:6], "big"), value[8:]
    # The option's length must agree with the address family, since the address is the rest of the option.
    if _AFI_OF_SIZE.get(len(address)) != family:
        raise MalformedPacket(f"an option of PGMCC with {len(value)} bytes and an address of family {family}")
    timestamp, _, loss = _PGMCC_FEEDBACK.unpack_from(value)
    if kind == PGMCC_DATA:
        fields["congestion"] = CongestionData(timestamp, address)
    else:
        fields["feedback"] = CongestionFeedback(timestamp, loss / _LOSS_OF_ALL, address)


_NUMBERS = {
    JOIN: ("join", "OPT_JOIN"),
    PARITY_GRP: ("parity_group", "OPT_PARITY_GRP"),
    CURR_TGSIZE: ("group_size", "OPT_CURR_TGSIZE"),
}


def _number(value: bytes, what: str) -> int:
    return int.from_bytes(_sized(value, 4, what), "big")


def _sized(value: bytes, size: int, what: str) -> bytes:
    if len(value) != size:
        raise MalformedPacket(f"{what} with a value of {len(value)} bytes")
    return value
