"""Constants and structures of the system's SCTP sockets (RFC 6458), from Linux's ``linux/sctp.h``."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

IPPROTO_SCTP = 132
MSG_NOTIFICATION = 0x8000
SO_MEMINFO = 55

Ancillary = tuple[int, int, bytes]
"""A control message: level, type, data, as the socket module has it."""


class Option(IntEnum):
    """Socket options of level IPPROTO_SCTP."""

    RTOINFO = 0
    ASSOCINFO = 1
    INITMSG = 2
    NODELAY = 3
    PEER_ADDR_PARAMS = 9
    I_WANT_MAPPED_V4_ADDR = 12
    STATUS = 14
    DELAYED_SACK = 16
    MAX_BURST = 20
    RECVRCVINFO = 32
    BINDX_ADD = 100
    GET_PEER_ADDRS = 108
    CONNECTX = 110
    PR_SUPPORTED = 113
    RECONFIG_SUPPORTED = 117
    STREAM_SCHEDULER = 123
    STREAM_SCHEDULER_VALUE = 124
    EVENT = 127
    ECN_SUPPORTED = 130
    REMOTE_UDP_ENCAPS_PORT = 132


class Cmsg(IntEnum):
    """Types of control messages."""

    SNDINFO = 2
    RCVINFO = 3
    PRINFO = 5


UNORDERED = 0x0001
SACK_IMMEDIATELY = 0x0008
"""RFC 7053."""
_PR_TTL = 0x0010

# Options. The association id is always 0: a one-to-one socket has one association.
INITMSG = Struct("=HHHH")
"""Streams out and in, attempts, milliseconds of the longest timeout."""
RTOINFO = Struct("=iIII")
"""Id; milliseconds of the initial, largest and smallest timeout."""
ASSOCINFO = Struct("=iHHIII")
"""Id, retransmissions, number of peer addresses, peer's and own window, milliseconds of a cookie's life."""
PEER_ADDR_PARAMS = Struct("=i128sIHIIIIBx")
"""Id, address, milliseconds between heartbeats, retransmissions, MTU, milliseconds of a SACK's delay, flags,
flow label, DSCP."""
DELAYED_SACK = Struct("=iII")
"""Id, milliseconds, packets."""
ASSOC_VALUE = Struct("=iI")
NUMBER = Struct("=i")
STREAM_VALUE = Struct("=iHH")
"""Id, stream, value."""
EVENT = Struct("=iHBx")
"""Id, type of notification, 1 for on."""
UDP_ENCAPS = Struct("@i0P128sH0P")
"""Id, address, port, with the alignment of ``sockaddr_storage``."""
MEMINFO = Struct("=9I")
"""The sixth number is the bytes that are queued and not acknowledged, with the overhead of each message."""
STATUS = Struct("=iiIHHHHI")
"""Id, state, peer's window, unacknowledged and pending chunks, streams in and out, largest fragment."""
_GETADDRS = Struct("=iI")

_SNDINFO = Struct("=HH4sIi")
_RCVINFO = Struct("=HHH2x4sIIIi")
_PRINFO = Struct("=H2xI")
ANCILLARY_SPACE = socket.CMSG_SPACE(_RCVINFO.size)

_SOCKADDR = Struct("=H2s")
_FAMILY = Struct("=H")
_SOCKADDR_SIZES = {4: 16, 16: 28}


def sending(stream: int, protocol: int, flags: int = 0, context: int = 0) -> Ancillary:
    """Return the SCTP_SNDINFO of a message. ``context`` identifies it in a notification of failure."""
    # The protocol identifier goes through the system as it is: the bytes are those on the wire.
    data = _SNDINFO.pack(stream, flags, protocol.to_bytes(4, "big"), context, 0)
    return IPPROTO_SCTP, Cmsg.SNDINFO, data


def expiring(milliseconds: int) -> Ancillary:
    """Return the SCTP_PRINFO that gives a message a lifetime (RFC 3758)."""
    return IPPROTO_SCTP, Cmsg.PRINFO, _PRINFO.pack(_PR_TTL, milliseconds)


def received(ancillary: Iterable[Ancillary]) -> tuple[int, int, bool]:
    """Return a message's stream, protocol identifier and whether it is unordered (SCTP_RCVINFO)."""
    for level, kind, data in ancillary:
        if level == IPPROTO_SCTP and kind == Cmsg.RCVINFO:
            stream, _, flags, protocol, *_ = _RCVINFO.unpack_from(data)
            return stream, int.from_bytes(protocol, "big"), bool(flags & UNORDERED)
    raise ValueError("a message came without SCTP_RCVINFO")


def socket_address(address: bytes, port: int) -> bytes:
    """Return a ``sockaddr_in`` or ``sockaddr_in6``."""
    if len(address) == 4:
        return _SOCKADDR.pack(socket.AF_INET, port.to_bytes(2, "big")) + address + bytes(8)
    return _SOCKADDR.pack(socket.AF_INET6, port.to_bytes(2, "big")) + bytes(4) + address + bytes(4)


def address_of(sockaddr: bytes) -> bytes:
    """Return the address in a ``sockaddr``; empty for an unknown family."""
    (family,) = _FAMILY.unpack_from(sockaddr)
    if family == socket.AF_INET:
        return sockaddr[4:8]
    return sockaddr[8:24] if family == socket.AF_INET6 else b""


def peer_addresses(answer: bytes) -> list[bytes]:
    """Decode the value of SCTP_GET_PEER_ADDRS."""
    _, count = _GETADDRS.unpack_from(answer)
    found, at = [], _GETADDRS.size
    for _ in range(count):
        address = address_of(answer[at : at + 28])
        # The addresses follow each other without padding, each as long as its family's structure.
        found.append(address)
        at += _SOCKADDR_SIZES[len(address)]
    return found
