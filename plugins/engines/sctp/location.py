"""Locations in SCTP addresses: ``host,host:port/udp-port``."""

from __future__ import annotations

import ipaddress

import msgspec

from kernel.hosting.address import Address, parse_address

TRANSPORT = "sctp"
FRAMINGS = ("backend", "plain")
UDP_PORT = 9899
"""The default UDP port of SCTP over UDP (RFC 6951, 5.1)."""


class Location(msgspec.Struct, frozen=True):
    """The location of one side of an association."""

    hosts: tuple[str, ...]
    """Names or addresses. An empty one means all interfaces."""
    port: int
    """SCTP port; 0: any."""
    udp_port: int | None = None
    """UDP port, 0: any; None: the transport's default."""

    def __str__(self) -> str:
        text = f"{','.join(map(bracketed, self.hosts))}:{self.port}"
        return text if self.udp_port is None else f"{text}/{self.udp_port}"


def bracketed(host: str) -> str:
    """Return a host as it is written in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_sctp_address(text: str) -> tuple[Address, Location]:
    """Parse ``framing+sctp://host,host:port/udp-port``. Raises ``ValueError`` with the reason."""
    address = parse_address(text, (TRANSPORT,))
    if address.protocol not in FRAMINGS:
        raise ValueError(
            f"{text!r}: messages travel over SCTP as {' or '.join(FRAMINGS)}, not {address.protocol!r}"
        )
    location, slash, udp_port = address.place.partition("/")
    hosts, colon, port = location.rpartition(":")
    if not colon or not _is_port(port) or (slash and not _is_port(udp_port)):
        raise ValueError(
            f"{text!r}: {address.place!r} is no host,host:port/udp-port, as in 10.0.0.1,10.1.0.1:5000/{UDP_PORT}"
        )
    found = tuple(_host(text, host) for host in hosts.split(","))
    if len(found) > 1 and "" in found:
        raise ValueError(f"{text!r}: an empty host means all interfaces, and must be the only one")
    return address, Location(found, int(port), int(udp_port) if slash else None)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < 65536


def _host(text: str, host: str) -> str:
    if not host.startswith("["):
        if ":" in host:
            raise ValueError(f"{text!r}: an IPv6 host must be in brackets, as in [::1]:5000")
        return host
    try:
        return str(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        raise ValueError(f"{text!r}: {host} is not an IPv6 address") from None
