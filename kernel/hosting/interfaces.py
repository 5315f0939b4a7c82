"""Finds network interfaces by name, address or network, without any name server."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import msgspec

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# ``linux/sockios.h``; for BSD's descendants ``_IOWR('i', 51, struct ifreq)`` of ``sys/sockio.h``.
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921 if sys.platform == "linux" else 0xC0206933
# The two forms of ``struct ifreq`` (netdevice(7)).
_IFREQ_ADDRESS, _IFREQ_NUMBER = Struct("16s4x4s8x"), Struct("16si12x")
_IPV6_INTERFACES = Path("/proc/net/if_inet6")


class Interface(msgspec.Struct, frozen=True):
    """A network interface with one of its addresses."""

    name: str
    index: int
    address: IpAddress
    mtu: int


def find_interface(wanted: str, group: IpAddress) -> Interface:
    """Return the interface that has this name, this address, or an address in this network.

    If ``wanted`` is empty: the one that the system would use for ``group``.  ``OSError`` lists the interfaces
    that exist.
    """
    if not wanted:
        wanted = str(_address_towards(group))
    found = [interface for interface in interfaces() if interface.address.version == group.version]
    for interface in found:
        if wanted == interface.name or _is_in(interface.address, wanted):
            return interface
    there = ", ".join(f"{interface.name} ({interface.address})" for interface in found) or "none"
    raise OSError(f"there is no interface {wanted!r} with an IPv{group.version} address; there are: {there}")


def interfaces() -> list[Interface]:
    """Return all interfaces that have an address.

    One with an IPv4 and an IPv6 address is in the list twice.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        addresses = _linux_addresses(sock) if sys.platform == "linux" else _addresses()
        return [Interface(name, index, address, _mtu(sock, name)) for name, index, address in addresses]


def _mtu(sock: socket.socket, name: str) -> int:
    _, mtu = _IFREQ_NUMBER.unpack(_ask(sock, _SIOCGIFMTU, name) or bytes(32))
    return int(mtu)


def _linux_addresses(sock: socket.socket) -> Iterator[tuple[str, int, IpAddress]]:
    """Return each interface's name, number and address."""
    for index, name in socket.if_nameindex():
        answer = _ask(sock, _SIOCGIFADDR, name)
        if answer is not None:
            _, address = _IFREQ_ADDRESS.unpack(answer)
            yield name, index, ipaddress.IPv4Address(address)
        for address in _ipv6_addresses(name):
            yield name, index, address


def _addresses() -> Iterator[tuple[str, int, IpAddress]]:
    """Return the same where Linux's calls are not there."""
    # It is installed there only.  On Linux it starts a program to find the C library.
    import ifaddr

    for adapter in ifaddr.get_adapters():
        for of in adapter.ips:
            # An IPv6 address comes with flow and scope.
            text = of.ip if isinstance(of.ip, str) else of.ip[0]
            yield adapter.name, adapter.index or 0, ipaddress.ip_address(text)


def _ask(sock: socket.socket, request: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(sock, request, name.encode().ljust(32, b"\0"))
    except OSError:
        # The interface has no IPv4 address, or has gone in the meantime.
        return None


def _ipv6_addresses(wanted: str) -> list[ipaddress.IPv6Address]:
    try:
        lines = _IPV6_INTERFACES.read_text().splitlines()
    except FileNotFoundError:
        # A system without IPv6.
        return []
    rows = (line.split() for line in lines)
    return [ipaddress.IPv6Address(bytes.fromhex(row[0])) for row in rows if row[-1] == wanted]


def _is_in(address: IpAddress, wanted: str) -> bool:
    try:
        # A single address is a network of one.  Not strict: ``10.1.2.3/24`` is the network that has 10.1.2.3.
        return address in ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False


def _address_towards(group: IpAddress) -> str:
    family = socket.AF_INET if group.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        # Connecting a datagram socket sends nothing.  It makes the system choose a route, and with it our
        # address.  The port has no meaning here; 9 is "discard" (RFC 863).
        try:
            sock.connect((str(group), 9))
        except OSError as error:
            reason = f"no interface leads to {group}: {error.strerror}; name one in the address, as in eth0;{group}"
            raise OSError(error.errno, reason) from None
        return str(sock.getsockname()[0])
