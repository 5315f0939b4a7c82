"""The sockets of a PGM engine, over UDP or directly over IP.

*Group* sockets are bound to the group's address and have joined the group. *Unicast* sockets are bound to an
address of the interface: a source receives NAKs there and sends from it; receivers send from one. Since the
two are bound to different addresses, a source and any number of receivers can use the same port on one
machine.
"""

from __future__ import annotations

import ctypes
import socket
import sys
from contextlib import suppress
from struct import Struct

from kernel.hosting.datagram_wire import Address, DatagramWire, want_buffer
from kernel.hosting.interfaces import Interface, IpAddress
from plugins.engines.pgm.location import Location
from plugins.engines.pgm.options import GroupOptions

IPPROTO_PGM = 113
USUAL_MTU = 1500
UDP_HEADER = 8
IP_HEADER = {4: 20, 6: 40}

_SO_ATTACH_FILTER = 26
_MREQN = Struct("=4s4si")
_INDEX = Struct("=I")
_BPF = Struct("=HBBI")
_LOAD_BYTE, _LOAD_INDIRECT, _IP_HEADER_TO_X, _AT_LEAST, _RETURN = 0x30, 0x50, 0xB1, 0x35, 0x06
_FIRST_UPSTREAM = 8
"""NAK. Of the types from this one on, all but NCF go to a source (RFC 3208, 8)."""


class Sockets:
    """Opens the sockets of one group. Raises ``OSError`` with the reason."""

    def __init__(self, options: GroupOptions, location: Location, interface: Interface, *, raw: bool) -> None:
        self._options = options
        self._location = location
        self._interface = interface
        self._raw = raw
        self._family = socket.AF_INET if location.group.version == 4 else socket.AF_INET6
        self.warnings: list[str] = []
        overhead = IP_HEADER[location.group.version] + (0 if raw else UDP_HEADER)
        self.packet_size = (options.mtu or min(interface.mtu, USUAL_MTU)) - overhead
        """Bytes of a PGM packet at most."""

    def address_of(self, host: IpAddress | None) -> Address:
        """Return the socket address of a host, or of the group."""
        return self._address(host or self._location.group, 0 if self._raw else self._location.port)

    def group(self, *, upstream_only: bool = False) -> DatagramWire:
        """Open a socket that has joined the group.

        ``upstream_only``: it receives only packets to a source.
        """
        sock = self._open()
        try:
            # Several receivers on one machine share the port; the system gives each a copy of a packet to the
            # group.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if upstream_only:
                _attach(
                    sock, _upstream_filter(self._raw and self._family == socket.AF_INET, udp=not self._raw)
                )
            else:
                # Only a receiver's socket gets a large buffer. Through the filter of a source's socket come
                # requests only.
                self._buffer(sock, socket.SO_RCVBUF, self._options.receive_buffer)
            # Bound to the group's address and not to "any": the system would otherwise deliver packets for
            # other groups that any process on this machine has joined.
            self._bind(sock, self._location.group, 0 if self._raw else self._location.port)
            self._join(sock)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot join {self._location.group}: {error.strerror}") from None
        return DatagramWire(sock)

    def unicast(self, port: int) -> DatagramWire:
        """Open a socket on the interface's address; port 0 takes a free one."""
        sock = self._open()
        try:
            self._buffer(sock, socket.SO_SNDBUF, self._options.send_buffer)
            self._send_by_interface(sock)
            self._bind(sock, self._interface.address, 0 if self._raw else port)
        except OSError as error:
            sock.close()
            where = f"{self._interface.address}:{port}"
            hint = " (another source of this machine uses it)" if port else ""
            raise OSError(error.errno, f"cannot bind to {where}: {error.strerror}{hint}") from None
        return DatagramWire(sock)

    def _open(self) -> socket.socket:
        if not self._raw:
            return socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            return socket.socket(self._family, socket.SOCK_RAW, IPPROTO_PGM)
        except PermissionError as error:
            text = (
                "pgm:// needs the right to open raw sockets (CAP_NET_RAW); epgm:// goes over UDP and does not"
            )
            raise PermissionError(error.errno, text) from None

    def _buffer(self, sock: socket.socket, option: int, size: int) -> None:
        warning = want_buffer(sock, option, size)
        if warning is not None:
            self.warnings.append(warning)

    def _address(self, host: IpAddress, port: int) -> Address:
        if host.version == 4:
            return str(host), port
        return str(host), port, 0, self._interface.index

    def _bind(self, sock: socket.socket, host: IpAddress, port: int) -> None:
        sock.bind(self._address(host, port))

    def _join(self, sock: socket.socket) -> None:
        group, interface = self._location.group, self._interface
        if self._family == socket.AF_INET:
            request = _MREQN.pack(group.packed, interface.address.packed, interface.index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        else:
            request = group.packed + _INDEX.pack(interface.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)

    def _send_by_interface(self, sock: socket.socket) -> None:
        options, interface = self._options, self._interface
        if self._family == socket.AF_INET:
            request = _MREQN.pack(bytes(4), interface.address.packed, interface.index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, options.ttl)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, options.loop)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, options.ttl)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, options.loop)


def _upstream_filter(ip_header: bool, *, udp: bool) -> bytes:
    """Return a BPF filter for packets of type 8 or higher, so that a source does not read its own data."""
    # The type is the fifth byte of the PGM header. On a UDP socket a filter sees the packet from the UDP
    # header on, on a raw IPv4 socket from the IP header on, on a raw IPv6 socket from the payload on.
    kind = (UDP_HEADER if udp else 0) + 4
    load = (
        # An IPv4 header may have options, so its length is read from the packet.
        [(_IP_HEADER_TO_X, 0, 0, 0), (_LOAD_INDIRECT, 0, 0, kind)]
        if ip_header
        else [(_LOAD_BYTE, 0, 0, kind)]
    )
    # A jump has two offsets, for true and for false. The value returned is how many bytes of the packet to
    # keep; 0 drops it.
    rest = [(_AT_LEAST, 0, 1, _FIRST_UPSTREAM), (_RETURN, 0, 0, 0xFFFF), (_RETURN, 0, 0, 0)]
    return b"".join(_BPF.pack(*step) for step in load + rest)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _attach(sock: socket.socket, steps: bytes) -> None:
    """Attach a filter.

    Where there is none (not Linux) the socket receives more than it needs, which is harmless.
    """
    # The number is another option elsewhere.
    if sys.platform != "linux":
        return
    # The system copies the program during the call, so that nothing needs to keep it alive.
    program = _Program(len(steps) // _BPF.size, steps)
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
