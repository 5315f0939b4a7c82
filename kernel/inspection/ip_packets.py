"""From what a network interface saw to TCP segments and datagrams.

Not by scapy, which takes 200 us and more for what takes 4 here: live, the packets in between would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from socket import AF_INET6, inet_ntoa, inet_ntop
from struct import Struct, error

from kernel.contracts.dissector import Datagram
from kernel.inspection.tcp import Segment

ETHERNET, RAW, NULL, LOOP = 1, 101, 0, 108
LINUX_COOKED, LINUX_COOKED_2 = 113, 276
IPV4_ONLY, IPV6_ONLY = 228, 229
"""Types of links (https://www.tcpdump.org/linktypes.html)."""
TCP, UDP, FRAGMENT, NO_NEXT = 6, 17, 44, 59
_EXTENSIONS = frozenset((0, 43, 60, 135))
"""Headers of IPv6 that have a length in units of eight bytes: hop-by-hop, routing, destination options, mobility."""
_AUTHENTICATION = 51
_VLAN = frozenset((0x8100, 0x88A8, 0x9100))
_IPV4_TYPE, _IPV6_TYPE = 0x0800, 0x86DD
_MOST_EXTENSIONS = 16

_IPV4 = Struct(">BxHxxHxBxx4s4s")
_IPV6 = Struct(">4xHBx16s16s")
_TCP = Struct(">HHIIBB")
_UDP = Struct(">HHH")
_U16 = Struct(">H")


class _NotIp(Exception):
    """Neither IPv4 nor IPv6, or less than its header."""


class _Fragment(Exception):
    """A piece of a packet."""


Read = tuple[int, Segment | Datagram]
"""The protocol's number in IP, and what was in it."""


class IpPackets:
    """Packets of interfaces to what is in them; what cannot be shown is counted."""

    def __init__(self) -> None:
        self.fragments: int = 0
        """Fragments of IP, which are not put together."""
        self.other: int = 0
        """Neither IP nor readable."""

    def read(self, link: int, packet: bytes, time: float, cut: int) -> Read | None:
        """Take a packet of a link of that type, of which ``cut`` bytes at the end were not captured."""
        try:
            return _read(packet[_LINKS.get(link, _unknown)(packet) :], time, cut)
        except _Fragment:
            self.fragments += 1
        except (_NotIp, error, IndexError):
            self.other += 1
        return None


# ---------------------------------------------------------------------- links: where IP begins


def _ethernet(packet: bytes) -> int:
    at = 12
    (kind,) = _U16.unpack_from(packet, at)
    while kind in _VLAN:
        at += 4
        (kind,) = _U16.unpack_from(packet, at)
    if kind not in (_IPV4_TYPE, _IPV6_TYPE):
        raise _NotIp
    return at + 2


def _unknown(packet: bytes) -> int:
    raise _NotIp


_LINKS: dict[int, Callable[[bytes], int]] = {
    ETHERNET: _ethernet,
    LINUX_COOKED: lambda packet: 16,
    LINUX_COOKED_2: lambda packet: 20,
    NULL: lambda packet: 4,
    LOOP: lambda packet: 4,
    **dict.fromkeys((RAW, 12, 14, IPV4_ONLY, IPV6_ONLY), lambda packet: 0),
}


# ---------------------------------------------------------------------- IP


def _read(packet: bytes, time: float, cut: int) -> Read:
    version = packet[0] >> 4
    if version == 4:
        number, source, destination, at, end = _ipv4(packet)
    elif version == 6:
        number, source, destination, at, end = _ipv6(packet)
    else:
        raise _NotIp
    if end is not None:  # beyond is Ethernet's filling: nothing is missing of which only that was cut off
        cut = min(cut, max(end - len(packet), 0))
    payload = packet[at:end]
    if number == TCP:
        return TCP, _segment(source, destination, payload, time, cut)
    ports = [0, 0]
    if number == UDP:
        *ports, length = _UDP.unpack_from(payload)
        payload = payload[8 : length or None]  # 0: more than 16 bits can say
    return number, Datagram(
        time=time,
        source=source,
        destination=destination,
        source_port=ports[0],
        destination_port=ports[1],
        data=payload,
        cut=cut,
    )


def _ipv4(packet: bytes) -> tuple[int, str, str, int, int | None]:
    """Return the protocol's number, source, destination, and where what is carried begins and ends (None: with the packet)."""
    first, total, fragment, number, source, destination = _IPV4.unpack_from(packet)
    if fragment & 0x3FFF:  # more follow, or others came before
        raise _Fragment
    head = (first & 15) * 4
    if head < 20:
        raise _NotIp
    # 0: the network card cuts it later (TSO)
    return number, inet_ntoa(source), inet_ntoa(destination), head, total or None


def _ipv6(packet: bytes) -> tuple[int, str, str, int, int | None]:
    """Return the same of version 6."""
    size, number, source, destination = _IPV6.unpack_from(packet)
    at, end = 40, 40 + size if size else None
    for _ in range(_MOST_EXTENSIONS):
        if number == FRAGMENT:
            raise _Fragment
        if number not in _EXTENSIONS and number != _AUTHENTICATION:
            return number, inet_ntop(AF_INET6, source), inet_ntop(AF_INET6, destination), at, end
        length = (packet[at + 1] + 2) * 4 if number == _AUTHENTICATION else (packet[at + 1] + 1) * 8
        number = packet[at]
        at += length
    raise _NotIp


def _segment(source: str, destination: str, payload: bytes, time: float, cut: int) -> Segment:
    source_port, destination_port, number, acknowledged, offset, flags = _TCP.unpack_from(payload)
    head = (offset >> 4) * 4
    if head < 20:
        raise _NotIp
    return Segment(
        time=time,
        source=(source, source_port),
        destination=(destination, destination_port),
        number=number,
        acknowledged=acknowledged if flags & 0x10 else None,
        fin=bool(flags & 0x01),
        syn=bool(flags & 0x02),
        reset=bool(flags & 0x04),
        data=payload[head:],
        cut=max(cut - max(head - len(payload), 0), 0),  # less what was cut off of the header
    )
