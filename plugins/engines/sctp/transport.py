"""The sockets that carry SCTP packets, over UDP (RFC 6951) or directly over IP.

Addresses are 4 or 16 bytes, as in the protocol. There is one socket for each of our addresses, so that a
packet leaves from the address that the peer expects it from.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kernel.hosting.datagram_wire import Address, DatagramWire, want_buffer

IPPROTO_SCTP = 132
_DISCARD = 9
_ANY = {bytes(4), bytes(16)}


class Transport:
    """The sockets of one side."""

    def __init__(
        self, hosts: Sequence[str], udp_port: int, *, raw: bool, send_buffer: int, receive_buffer: int
    ) -> None:
        """Open a socket for each of ``hosts``, which are IP addresses. Raises ``OSError`` with the reason."""
        self.warnings: list[str] = []
        self.udp_port = udp_port
        self.wires: list[DatagramWire] = []
        self.addresses: tuple[bytes, ...] = ()
        """Our addresses, if there are several that the peer is to be told."""
        self._raw = raw
        self._buffers = ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer))
        self._by_address: dict[bytes, DatagramWire] = {}
        self._towards: dict[bytes, DatagramWire] = {}
        try:
            for host in hosts:
                self._open(host)
        except BaseException:
            self.close()
            raise
        if len(self.wires) > 1 and not _ANY & self._by_address.keys():
            # With a wildcard the host's addresses are not known, and with one address the packet's source
            # says it.
            self.addresses = tuple(self._by_address)

    def close(self) -> None:
        """Close the sockets."""
        for wire in self.wires:
            wire.close()

    def wire_to(self, address: bytes) -> DatagramWire:
        """Return the socket to send from: the system would choose its address for that destination."""
        wire = self._towards.get(address)
        if wire is None:
            if len(self._towards) > 4096:
                self._towards.clear()
            wire = self._towards[address] = self._choose(address)
        return wire

    def _choose(self, address: bytes) -> DatagramWire:
        if len(self.wires) == 1:
            return self.wires[0]
        with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            try:
                # Connecting a UDP socket sends nothing: it only makes the system choose a route and a source
                # address.
                probe.connect((unpacked(address), _DISCARD))
                found = self._by_address.get(packed(probe.getsockname()[0]))
            except OSError:
                # There is no route at the moment. The packet is sent from any address of the family: it may
                # be lost, and is repeated.
                found = None
        # A wildcard socket has no address that would be found.
        same_family = (wire for own, wire in self._by_address.items() if len(own) == len(address))
        return found or next(same_family, self.wires[0])

    def socket_address(self, address: bytes, udp_port: int) -> Address:
        """Return the socket address to send to."""
        return unpacked(address), 0 if self._raw else udp_port

    def _open(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = self._raw_socket(family) if self._raw else socket.socket(family, socket.SOCK_DGRAM)
        try:
            for option, size in self._buffers:
                if (warning := want_buffer(made, option, size)) is not None:
                    self.warnings.append(warning)
            if family == socket.AF_INET6:
                # IPv4 has sockets of its own here: addresses of 4 bytes would otherwise come as mapped ones
                # of 16.
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((host, 0 if self._raw else self.udp_port))
        except OSError as error:
            made.close()
            raise OSError(error.errno, self._cannot(host, error)) from None
        if not self._raw:
            # With port 0 the first socket gets any port, and the others use the same: RFC 6951 (5.1) has one
            # local port for all.
            self.udp_port = made.getsockname()[1]
        wire = DatagramWire(made)
        if not self._raw:
            # Not on a raw socket: there is no UDP port that could be unreachable.
            wire.hear_of_refusals()
        self.wires.append(wire)
        self._by_address[packed(host or "0.0.0.0")] = wire

    def _cannot(self, host: str, error: OSError) -> str:
        if self._raw:
            return f"cannot bind to {host}: {error.strerror}"
        text = f"cannot bind to UDP port {self.udp_port} of {host or 'all interfaces'}: {error.strerror}"
        return f"{text}; another UDP port can be given behind the SCTP port, as in {host}:5000/9900"

    @staticmethod
    def _raw_socket(family: int) -> socket.socket:
        try:
            return socket.socket(family, socket.SOCK_RAW, IPPROTO_SCTP)
        except PermissionError as error:
            text = 'transport = "raw" needs the right to open raw sockets (CAP_NET_RAW); "udp" does not'
            raise PermissionError(error.errno, text) from None


def packed(host: str) -> bytes:
    """Return an address as 4 or 16 bytes. An empty host is the wildcard of IPv4."""
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])


def unpacked(address: bytes) -> str:
    """Return an address as text."""
    return socket.inet_ntop(_family(address), address)


def _family(address: bytes) -> int:
    return socket.AF_INET if len(address) == 4 else socket.AF_INET6
