"""Locations in PGM addresses: ``interface;group:port``, as in libzmq."""

from __future__ import annotations

import ipaddress

import msgspec

from kernel.hosting.address import Address, parse_address
from kernel.hosting.interfaces import IpAddress

TRANSPORTS = ("pgm", "epgm")
FRAMINGS = ("zmtp1", "backend")


class Location(msgspec.Struct, frozen=True):
    """A group on an interface."""

    interface: str
    """Name, address or network; empty: the system's choice."""
    group: IpAddress
    port: int


def parse_pgm_address(text: str) -> tuple[Address, Location]:
    """Parse ``framing+transport://interface;group:port``. Raises ``ValueError`` with the reason."""
    address = parse_address(text, TRANSPORTS)
    if address.protocol not in FRAMINGS:
        raise ValueError(
            f"{text!r}: messages travel over PGM as {' or '.join(FRAMINGS)}, not {address.protocol!r}"
        )
    interface, _, rest = address.place.rpartition(";")
    host, colon, port = rest.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(
            f"{text!r}: {address.place!r} is no interface;group:port, as in eth0;239.192.1.1:5555"
        )
    try:
        group = ipaddress.ip_address(host[1:-1] if host.startswith("[") else host)
    except ValueError:
        raise ValueError(
            f"{text!r}: {host!r} is no address of a group, as in 239.192.1.1 or [ff15::1]"
        ) from None
    if not group.is_multicast:
        raise ValueError(f"{text!r}: {group} is no multicast address")
    return address, Location(interface, group, int(port))
