"""Loopback: whether a peer, or an address, is on this machine."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


def is_on_this_machine(peer: str) -> bool:
    """Whether a peer is on this machine; ``peer``: its name, as the listener has it (``peer_name``)."""
    # For WebSocket behind a proxy this is the proxy: headers that name the client could be forged.
    return peer.startswith("unix#") or is_loopback(peer.rpartition(":")[0].strip("[]"))


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own; ``::ffff:127.0.0.1`` is IPv4 at a socket for both."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def names_loopback(host: str) -> bool:
    """Whether the host of an address is this machine's own: ``localhost``, or an IP address of loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return is_loopback(host)
    # Another name, or none: every interface.
    except ValueError:
        return False
