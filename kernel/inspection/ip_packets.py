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
"""Link types (https://www.tcpdump.org/linktypes.html)."""
TCP, UDP, FRAGMENT, NO_NEXT = 6, 17, 44, 59
_EXTENSIONS = frozenset((0, 43, 60, 135))
"""IPv6 extension headers whose length is in units of eight bytes: hop-by-hop, routing, destination options,
mobility."""
_AUTHENTICATION = 51
# IEEE 802.1Q, 802.1ad, and what older switches used for two tags.  Tags may be nested.
_VLAN = frozenset((0x8100, 0x88A8, 0x9100))
_IPV4_TYPE, _IPV6_TYPE = 0x0800, 0x86DD
# A forged packet may be nothing but extension headers.
_MOST_EXTENSIONS = 16

_IPV4 = Struct(">BxHxxHxBxx4s4s")
_IPV6 = Struct(">4xHBx16s16s")
_TCP = Struct(">HHIIBB")
_UDP = Struct(">HHH")
_U16 = Struct(">H")


class _NotIp(Exception):
    """The packet is neither IPv4 nor IPv6, or shorter than its header."""


class _Fragment(Exception):
    """The packet is a fragment."""


Read = tuple[int, Segment | Datagram]
"""The IP protocol number, and the payload."""


class IpPackets:
    """Extracts segments and datagrams from packets of an interface, and counts what cannot be shown."""

    def __init__(self) -> None:
        self.fragments: int = 0
        """IP fragments, which are not reassembled."""
        self.other: int = 0
        """Packets that are not IP, or unreadable."""

    def read(self, link: int, packet: bytes, time: float, cut: int) -> Read | None:
        """Process a packet of a link type, of which ``cut`` bytes at the end were not captured."""
        try:
            return _read(packet[_LINKS.get(link, _unknown)(packet) :], time, cut)
        except _Fragment:
            self.fragments += 1
        except (_NotIp, error, IndexError):
            self.other += 1
        return None


# ---------------------------------------------------------------------- links: where IP begins


def _ethernet(packet: bytes) -> int:
    # Behind the two addresses.
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
    # tcpdump -i any.  The header has a fixed size, and the version nibble tells IPv4 from IPv6.
    LINUX_COOKED: lambda packet: 16,
    LINUX_COOKED_2: lambda packet: 20,
    NULL: lambda packet: 4,
    LOOP: lambda packet: 4,
    # DLT_RAW is 12 on most systems and 14 on OpenBSD, and some programs write it into files as it is.
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
    # Behind the end there is only Ethernet's padding.  If nothing else was cut off, nothing is missing.
    if end is not None:
        cut = min(cut, max(end - len(packet), 0))
    payload = packet[at:end]
    if number == TCP:
        return TCP, _segment(source, destination, payload, time, cut)
    ports = [0, 0]
    if number == UDP:
        *ports, length = _UDP.unpack_from(payload)
        # A length of 0: a jumbogram, longer than 16 bits can say (RFC 2675, section 4).
        payload = payload[8 : length or None]
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
    """Return protocol number, source, destination, and the bounds of the payload.

    An end of None is the end of the packet.
    """
    first, total, fragment, number, source, destination = _IPV4.unpack_from(packet)
    # The flag MF (more fragments), or an offset: others came before (RFC 791, section 3.1).
    if fragment & 0x3FFF:
        raise _Fragment
    head = (first & 15) * 4
    if head < 20:
        raise _NotIp
    # A total length of 0: the network card divides the packet later (TSO), and the capture is from before
    # that.
    return number, inet_ntoa(source), inet_ntoa(destination), head, total or None


def _ipv6(packet: bytes) -> tuple[int, str, str, int, int | None]:
    """Return the same for IPv6."""
    size, number, source, destination = _IPV6.unpack_from(packet)
    at, end = 40, 40 + size if size else None
    for _ in range(_MOST_EXTENSIONS):
        if number == FRAGMENT:
            raise _Fragment
        if number not in _EXTENSIONS and number != _AUTHENTICATION:
            return number, inet_ntop(AF_INET6, source), inet_ntop(AF_INET6, destination), at, end
        # The authentication header counts in words of 4 bytes, minus 2 (RFC 4302, section 2.2).  The others
        # count in units of 8 bytes, without the first.
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
        # Bytes that were cut off the header do not count as missing data.
        cut=max(cut - max(head - len(payload), 0), 0),
    )
