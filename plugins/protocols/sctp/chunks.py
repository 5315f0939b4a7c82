"""Chunks: the parts of a packet (RFC 9260, 3.3; RFC 3758, 8260, 6525, 4820).

A chunk has a type, eight flags, a length and a value, and is padded to a multiple of four bytes. Sequence
numbers are as on the wire here, wrapped. DATA and I-DATA share a class, as do FORWARD-TSN and I-FORWARD-TSN.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any

import msgspec

from plugins.protocols.sctp import parameters
from plugins.protocols.sctp.errors import MalformedPacket
from plugins.protocols.sctp.parameters import Parameters


class Type(IntEnum):
    """Chunk types."""

    DATA = 0
    INIT = 1
    INIT_ACK = 2
    SACK = 3
    HEARTBEAT = 4
    HEARTBEAT_ACK = 5
    ABORT = 6
    SHUTDOWN = 7
    SHUTDOWN_ACK = 8
    ERROR = 9
    COOKIE_ECHO = 10
    COOKIE_ACK = 11
    ECHO = 12
    """ECNE: a mark was received (RFC 4960, appendix A)."""
    REDUCED = 13
    """CWR: the window was reduced."""
    SHUTDOWN_COMPLETE = 14
    I_DATA = 64
    RE_CONFIG = 130
    PAD = 132
    FORWARD_TSN = 192
    I_FORWARD_TSN = 194


_INTERLEAVED = int(Type.I_DATA)
ENDING, BEGINNING, UNORDERED, IMMEDIATE = 0x01, 0x02, 0x04, 0x08
"""Flags of DATA and I-DATA."""
REFLECTED = 0x01
"""The T bit of ABORT and SHUTDOWN COMPLETE: the verification tag is the one that the receiver itself uses
towards its peer (8.5.1)."""

_HEAD = Struct(">BBH")
DATA, I_DATA = Struct(">BBHIHHI"), Struct(">BBHIHHII")
"""Headers in front of the user data."""
_INIT = Struct(">IIHHI")
_SACK = Struct(">IIHH")
_PAIR = Struct(">HH")
_SKIPPED = Struct(">HHI")


class Data(msgspec.Struct, frozen=True, gc=False):
    """DATA or I-DATA: a message or a fragment of one."""

    tsn: int
    stream: int
    number: int
    """Number of the message in its stream: SSN of 16 bits, or MID of 32 bits in I-DATA."""
    flags: int
    data: bytes
    protocol: int = 0
    """Payload protocol identifier (PPID). In I-DATA only the first fragment has it."""
    fsn: int = 0
    """Fragment sequence number (FSN), in I-DATA."""
    interleaved: bool = False
    """Whether it is I-DATA."""


class Init(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """INIT and INIT ACK."""

    is_ack: bool
    tag: int
    window: int
    outbound: int
    inbound: int
    tsn: int
    parameters: Parameters = ()


class Sack(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """SACK: what was received.

    All TSNs up to ``cumulative`` were, and those of ``gaps`` (first and last offset from it).
    """

    cumulative: int
    window: int
    gaps: tuple[tuple[int, int], ...] = ()
    duplicates: tuple[int, ...] = ()


class Plain(msgspec.Struct, frozen=True, gc=False):
    """A chunk with an opaque value: COOKIE ECHO, SHUTDOWN ACK, PAD, and unknown types."""

    kind: int
    value: bytes = b""
    flags: int = 0


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A chunk that consists of parameters or causes: HEARTBEAT, HEARTBEAT ACK, ABORT, ERROR, RE-CONFIG."""

    kind: int
    parameters: Parameters = ()
    flags: int = 0


class Shutdown(msgspec.Struct, frozen=True, gc=False):
    """SHUTDOWN: all TSNs up to ``cumulative`` were received."""

    cumulative: int


class Forward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """FORWARD-TSN or I-FORWARD-TSN: wait for nothing up to ``cumulative``.

    RFC 3758, section 3.2, and RFC 8260, section 2.3.1.
    """

    cumulative: int
    skipped: tuple[tuple[int, int, bool], ...] = ()
    """Stream, number of its last skipped message, and whether that is unordered."""
    interleaved: bool = False


Chunk = Data | Init | Sack | Plain | Listed | Shutdown | Forward

_LISTED = frozenset((Type.HEARTBEAT, Type.HEARTBEAT_ACK, Type.ABORT, Type.ERROR, Type.RE_CONFIG))


def kind_of(chunk: Chunk) -> int:
    """Return the chunk's type."""
    if isinstance(chunk, Data):
        return Type.I_DATA if chunk.interleaved else Type.DATA
    if isinstance(chunk, Init):
        return Type.INIT_ACK if chunk.is_ack else Type.INIT
    if isinstance(chunk, Sack):
        return Type.SACK
    if isinstance(chunk, Shutdown):
        return Type.SHUTDOWN
    if isinstance(chunk, Forward):
        return Type.I_FORWARD_TSN if chunk.interleaved else Type.FORWARD_TSN
    return chunk.kind


# ---------------------------------------------------------------------- writing


def encode(chunk: Chunk) -> bytes:
    """Return the encoded chunk, padded."""
    if isinstance(chunk, Data):
        return _encode_data(chunk)
    if isinstance(chunk, Init):
        fixed = _INIT.pack(chunk.tag, chunk.window, chunk.outbound, chunk.inbound, chunk.tsn)
        return _padded(kind_of(chunk), 0, fixed + parameters.encode(chunk.parameters))
    if isinstance(chunk, Sack):
        fixed = _SACK.pack(chunk.cumulative, chunk.window, len(chunk.gaps), len(chunk.duplicates))
        gaps = b"".join(_PAIR.pack(*gap) for gap in chunk.gaps)
        return _padded(Type.SACK, 0, fixed + gaps + b"".join(_four(tsn) for tsn in chunk.duplicates))
    if isinstance(chunk, Shutdown):
        return _padded(Type.SHUTDOWN, 0, _four(chunk.cumulative))
    if isinstance(chunk, Forward):
        return _encode_forward(chunk)
    if isinstance(chunk, Listed):
        return _padded(chunk.kind, chunk.flags, parameters.encode(chunk.parameters))
    return _padded(chunk.kind, chunk.flags, chunk.value)


def _four(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _padded(kind: int, flags: int, value: bytes) -> bytes:
    return _HEAD.pack(kind, flags, 4 + len(value)) + value + bytes(-len(value) % 4)


def _encode_data(chunk: Data) -> bytes:
    data = chunk.data
    length = len(data)
    if chunk.interleaved:
        # One field with two meanings: the first fragment has the protocol identifier, its number is always 0
        # (RFC 8260, 2.1).
        last = chunk.protocol if chunk.flags & BEGINNING else chunk.fsn
        head = I_DATA.pack(
            Type.I_DATA, chunk.flags, I_DATA.size + length, chunk.tsn, chunk.stream, 0, chunk.number, last
        )
    else:
        head = DATA.pack(
            Type.DATA, chunk.flags, DATA.size + length, chunk.tsn, chunk.stream, chunk.number, chunk.protocol
        )
    return b"".join((head, data, bytes(-length % 4)))


def _encode_forward(chunk: Forward) -> bytes:
    if chunk.interleaved:
        skipped = [_SKIPPED.pack(stream, unordered, number) for stream, number, unordered in chunk.skipped]
    else:
        skipped = [_PAIR.pack(stream, number) for stream, number, _ in chunk.skipped]
    return _padded(kind_of(chunk), 0, _four(chunk.cumulative) + b"".join(skipped))


# ---------------------------------------------------------------------- reading


def decode(kind: int, flags: int, value: bytes) -> Chunk:
    """Decode a chunk from its type, flags and value. Raises ``MalformedPacket``."""
    if kind in _LISTED:
        return Listed(kind, parameters.decode(value), flags)
    reader = _READERS.get(kind)
    return reader(flags, value) if reader else Plain(kind, value, flags)


def decode_data(packet: bytes, at: int, found: list[Chunk]) -> int:
    """Decode consecutive DATA or I-DATA chunks from offset ``at`` on; return the offset behind them.

    Raises ``MalformedPacket``.
    """
    kind, end = packet[at], len(packet)
    interleaved = kind == _INTERLEAVED
    header = I_DATA if interleaved else DATA
    unpack, size, fsn = header.unpack_from, header.size, 0
    # One loop for all data of a packet, without a call per chunk: a packet of small messages has many.
    while at < end and packet[at] == kind:
        if end - at < size:
            raise _bad_data(packet, at)
        if interleaved:
            _, flags, length, tsn, stream, _, number, protocol = unpack(packet, at)
            if not flags & BEGINNING:
                protocol, fsn = 0, protocol
        else:
            _, flags, length, tsn, stream, number, protocol = unpack(packet, at)
        # A chunk must not reach beyond the packet, and has at least its own header.
        if length < size or at + length > end:
            raise _bad_data(packet, at)
        data = packet[at + size : at + length]
        found.append(Data(tsn, stream, number, flags, data, protocol, fsn, interleaved))
        fsn = 0
        # The padding of the last chunk may be missing; ``at`` is then behind the end, which ends the loop.
        at += length + (-length & 3)
    return at


def _bad_data(packet: bytes, at: int) -> MalformedPacket:
    left = len(packet) - at
    if left < _HEAD.size:
        return MalformedPacket(f"{left} bytes where a chunk should be")
    kind, _, length = _HEAD.unpack_from(packet, at)
    if length < _HEAD.size or length > left:
        return MalformedPacket(f"a chunk {kind} of {length} bytes in {left}")
    least = I_DATA.size if kind == Type.I_DATA else DATA.size
    return MalformedPacket(f"DATA of {length} bytes; it has {least} at least")


def _at_least(name: str, value: bytes, least: int) -> None:
    if len(value) < least:
        raise MalformedPacket(f"{name} of {4 + len(value)} bytes; it has {4 + least} at least")


def _read_init(is_ack: bool) -> Callable[[int, bytes], Init]:
    def read(flags: int, value: bytes) -> Init:
        _at_least("INIT ACK" if is_ack else "INIT", value, _INIT.size)
        tag, window, outbound, inbound, tsn = _INIT.unpack_from(value)
        rest = parameters.decode(value[_INIT.size :])
        return Init(
            is_ack=is_ack,
            tag=tag,
            window=window,
            outbound=outbound,
            inbound=inbound,
            tsn=tsn,
            parameters=rest,
        )

    return read


def _read_sack(flags: int, value: bytes) -> Sack:
    _at_least("SACK", value, _SACK.size)
    cumulative, window, gaps, duplicates = _SACK.unpack_from(value)
    at = _SACK.size + 4 * gaps
    # Both counts are from the peer, and are checked against the length before anything is read.
    if len(value) != at + 4 * duplicates:
        raise MalformedPacket(f"SACK of {4 + len(value)} bytes with {gaps} gaps and {duplicates} duplicates")
    return Sack(
        cumulative=cumulative,
        window=window,
        gaps=tuple(_PAIR.iter_unpack(value[_SACK.size : at])),
        duplicates=tuple(int.from_bytes(value[n : n + 4], "big") for n in range(at, len(value), 4)),
    )


def _read_shutdown(flags: int, value: bytes) -> Shutdown:
    _at_least("SHUTDOWN", value, 4)
    return Shutdown(int.from_bytes(value[:4], "big"))


def _read_forward(flags: int, value: bytes) -> Forward:
    _at_least("FORWARD-TSN", value, 4)
    if len(value) % 4:
        raise MalformedPacket(f"FORWARD-TSN of {4 + len(value)} bytes")
    # Only ordered messages are named: unordered DATA has no number (RFC 3758, 3.5, C4).
    skipped = tuple((stream, number, False) for stream, number in _PAIR.iter_unpack(value[4:]))
    return Forward(cumulative=int.from_bytes(value[:4], "big"), skipped=skipped)


def _read_i_forward(flags: int, value: bytes) -> Forward:
    _at_least("I-FORWARD-TSN", value, 4)
    # Four bytes for the TSN, and eight for each message.
    if len(value) % 8 != 4:
        raise MalformedPacket(f"I-FORWARD-TSN of {4 + len(value)} bytes")
    skipped = tuple((stream, mid, bool(bits & 1)) for stream, bits, mid in _SKIPPED.iter_unpack(value[4:]))
    return Forward(cumulative=int.from_bytes(value[:4], "big"), skipped=skipped, interleaved=True)


_READERS: dict[int, Callable[[int, bytes], Any]] = {
    Type.INIT: _read_init(is_ack=False),
    Type.INIT_ACK: _read_init(is_ack=True),
    Type.SACK: _read_sack,
    Type.SHUTDOWN: _read_shutdown,
    Type.FORWARD_TSN: _read_forward,
    Type.I_FORWARD_TSN: _read_i_forward,
}
