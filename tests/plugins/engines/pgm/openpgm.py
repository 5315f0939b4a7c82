"""OpenPGM through ctypes: a socket that sends or receives TSDUs.  Layouts and numbers are those of ``pgm/*.h`` of 5.3."""

from __future__ import annotations

import ctypes as c
import os
import select
import socket
from enum import IntEnum
from typing import Any

LIBRARY = "libpgm-5.3.so.0"
IPPROTO_PGM = 113
GROUP_REQUEST = 392
"""Bytes of ``struct group_source_req`` as OpenPGM has it: interface, group, source, address."""
STORAGE = 128
TIMEOUT = 60.0
WINDOW = 65_536
"""Packets."""
BUFFER = 16 * 1024 * 1024
"""Bytes that sockets are to have, as far as the system lets them."""


class Option(IntEnum):
    """Of ``pgm_setsockopt``."""

    RECV_SOCK = 0x2001
    REPAIR_SOCK = 0x2002
    PENDING_SOCK = 0x2003
    TIME_REMAIN = 0x2005
    RATE_REMAIN = 0x2006
    IP_ROUTER_ALERT = 0x2007
    MTU = 0x2008
    MULTICAST_LOOP = 0x200C
    MULTICAST_HOPS = 0x200D
    AMBIENT_SPM = 0x200F
    HEARTBEAT_SPM = 0x2010
    TXW_SQNS = 0x2012
    TXW_MAX_RTE = 0x2014
    PEER_EXPIRY = 0x2015
    SPMR_EXPIRY = 0x2016
    RXW_SQNS = 0x2018
    NAK_BO_IVL = 0x201B
    NAK_RPT_IVL = 0x201C
    NAK_RDATA_IVL = 0x201D
    NAK_DATA_RETRIES = 0x201E
    NAK_NCF_RETRIES = 0x201F
    SEND_ONLY = 0x2023
    RECV_ONLY = 0x2024
    NOBLOCK = 0x2027
    SEND_GROUP = 0x2028
    JOIN_GROUP = 0x2029
    UDP_ENCAP_UCAST_PORT = 0x2030
    UDP_ENCAP_MCAST_PORT = 0x2031


class Status(IntEnum):
    """What a call to send or receive comes to."""

    ERROR = 0
    NORMAL = 1
    RESET = 2
    FIN = 3
    EOF = 4
    WOULD_BLOCK = 5
    RATE_LIMITED = 6
    TIMER_PENDING = 7
    CONGESTION = 8


class _Error(c.Structure):
    _fields_ = (("domain", c.c_int), ("code", c.c_int), ("message", c.c_char_p))


class _AddressInfo(c.Structure):
    _fields_ = (
        ("family", c.c_ushort),
        ("receive_count", c.c_uint32),
        ("receive", c.c_void_p),
        ("send_count", c.c_uint32),
        ("send", c.c_void_p),
    )


class _SocketAddress(c.Structure):
    _fields_ = (("port", c.c_uint16), ("gsi", c.c_uint8 * 6), ("source_port", c.c_uint16))


class _InterfaceRequest(c.Structure):
    _fields_ = (("interface", c.c_uint32), ("scope", c.c_uint32), ("address", c.c_uint8 * STORAGE))


def load() -> Any:
    """Return the library, its calls described; ``OSError`` if there is none."""
    library = c.CDLL(LIBRARY)
    for name in ("init", "getaddrinfo", "socket", "bind3", "connect", "close", "setsockopt", "getsockopt"):
        getattr(library, f"pgm_{name}").restype = c.c_bool
    option: list[Any] = [c.c_void_p, c.c_int, c.c_int, c.c_void_p]
    sized: list[Any] = [c.c_void_p, c.c_uint]
    library.pgm_setsockopt.argtypes = [*option, c.c_uint]
    library.pgm_getsockopt.argtypes = [*option, c.POINTER(c.c_uint)]
    library.pgm_socket.argtypes = [c.c_void_p, c.c_ushort, c.c_int, c.c_int, c.c_void_p]
    library.pgm_bind3.argtypes = [c.c_void_p, *sized, *sized, *sized, c.c_void_p]
    library.pgm_connect.argtypes = [c.c_void_p, c.c_void_p]
    library.pgm_close.argtypes = [c.c_void_p, c.c_bool]
    library.pgm_send.argtypes = [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]
    library.pgm_recv.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_void_p, c.c_void_p]
    return library


def is_there() -> bool:
    """Whether tests can use it."""
    try:
        load()
    except OSError:
        return False
    return True


class OpenPgm:
    """A socket.  ``url`` is libzmq's: ``epgm://ADDRESS;GROUP:PORT`` or ``pgm://...``; ``rate`` in bytes a second.

    A sender has to ``pump`` between packets: that is how OpenPGM hears NAKs, and sends repairs and SPMs.
    """

    def __init__(self, url: str, *, sends: bool, rate: int = 12_500_000) -> None:
        transport, _, place = url.partition("://")
        network, _, port = place.rpartition(":")
        self._library = load()
        self._error = c.POINTER(_Error)()
        self._socket = c.c_void_p()
        self._room = c.create_string_buffer(1 << 16)
        self._size = c.c_size_t()
        self.resets = 0
        self._call("init")
        info = c.POINTER(_AddressInfo)()
        self._call("getaddrinfo", network.encode(), None, c.byref(info))
        udp = transport == "epgm"
        protocol = socket.IPPROTO_UDP if udp else IPPROTO_PGM
        self._call("socket", c.byref(self._socket), socket.AF_INET, socket.SOCK_SEQPACKET, protocol)
        if udp:  # it binds one of them only: they have to be the same
            self._set(Option.UDP_ENCAP_UCAST_PORT, int(port))
            self._set(Option.UDP_ENCAP_MCAST_PORT, int(port))
        self._set(Option.IP_ROUTER_ALERT, 0)
        self._set(Option.MTU, 1500)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._give(socket.SOL_SOCKET, option, BUFFER)
        self._as_sender(rate) if sends else self._as_receiver()
        self._bind(info.contents, int(port))
        self.descriptors = [
            number
            for option in (Option.RECV_SOCK, Option.REPAIR_SOCK, Option.PENDING_SOCK)
            if (number := self._get(option)) > 0
        ]

    def _as_sender(self, rate: int) -> None:
        self._set(Option.SEND_ONLY, 1)
        self._set(Option.TXW_SQNS, WINDOW)
        self._set(Option.TXW_MAX_RTE, rate)
        self._set(Option.AMBIENT_SPM, 2_000_000)
        self._set(Option.HEARTBEAT_SPM, 100_000, 100_000, 100_000, 100_000, 1_300_000, 7_000_000)

    def _as_receiver(self) -> None:
        self._set(Option.RECV_ONLY, 1)
        self._set(Option.RXW_SQNS, WINDOW)
        self._set(Option.PEER_EXPIRY, 300_000_000)
        self._set(Option.SPMR_EXPIRY, 250_000)
        self._set(Option.NAK_BO_IVL, 50_000)
        self._set(Option.NAK_RPT_IVL, 200_000)
        self._set(Option.NAK_RDATA_IVL, 200_000)
        self._set(Option.NAK_DATA_RETRIES, 50)
        self._set(Option.NAK_NCF_RETRIES, 50)

    def _bind(self, info: _AddressInfo, port: int) -> None:
        assert info.receive is not None
        assert info.send is not None
        address = _SocketAddress(port=port, gsi=(c.c_uint8 * 6)(*os.urandom(6)), source_port=0)
        request = _InterfaceRequest(interface=c.c_uint32.from_address(info.receive).value)
        c.memmove(request.address, info.receive + 8 + 2 * STORAGE, STORAGE)
        wanted = (c.byref(request), c.sizeof(request))
        self._call("bind3", self._socket, c.byref(address), c.sizeof(address), *wanted, *wanted)
        for option, place in ((Option.JOIN_GROUP, info.receive), (Option.SEND_GROUP, info.send)):
            if not self._library.pgm_setsockopt(self._socket, IPPROTO_PGM, option, place, GROUP_REQUEST):
                raise OSError(f"pgm_setsockopt {option.name}")
        self._set(Option.MULTICAST_LOOP, 0)
        self._set(Option.MULTICAST_HOPS, 1)
        self._set(Option.NOBLOCK, 1)
        self._call("connect", self._socket)

    def send(self, tsdu: bytes) -> None:
        """Send a packet, when the rate allows."""
        while True:
            status = Status(self._library.pgm_send(self._socket, tsdu, len(tsdu), None))
            if status is Status.NORMAL:
                return
            if status not in (Status.RATE_LIMITED, Status.WOULD_BLOCK):
                raise OSError(f"pgm_send: {status.name}")
            self.pump()

    def pump(self) -> bytes | None:
        """Let OpenPGM do what is due; return a TSDU if one is there."""
        size, error = c.byref(self._size), c.byref(self._error)
        status = self._library.pgm_recv(self._socket, self._room, len(self._room), 0, size, error)
        if status == Status.NORMAL:
            return c.string_at(self._room, self._size.value)
        if status == Status.RESET:
            self.resets += 1
        return None

    def wait(self, seconds: float) -> None:
        """Wait for packets."""
        select.select(self.descriptors, [], [], seconds)

    def close(self) -> None:
        """End the session."""
        self._library.pgm_close(self._socket, True)

    def _call(self, name: str, *arguments: Any) -> None:
        if not getattr(self._library, f"pgm_{name}")(*arguments, c.byref(self._error)):
            text = self._error.contents.message.decode() if self._error else "?"
            raise OSError(f"pgm_{name}: {text}")

    def _set(self, option: Option, *values: int) -> None:
        self._give(IPPROTO_PGM, option, *values)

    def _give(self, level: int, option: int, *values: int) -> None:
        given = (c.c_int * len(values))(*values)
        if not self._library.pgm_setsockopt(self._socket, level, option, given, c.sizeof(given)):
            raise OSError(f"pgm_setsockopt {option!r}")

    def _get(self, option: Option) -> int:
        value, size = c.c_int(), c.c_uint(4)
        self._library.pgm_getsockopt(self._socket, IPPROTO_PGM, option, c.byref(value), c.byref(size))
        return value.value
