"""usrsctp in this process, without threads or sockets: packets in, packets out, and the clock is ours (AF_CONN).

Debian's libusrsctp2 through ctypes.  There is one stack for the whole process, which is made once and lives as long as it; each
``Peer`` has an address of its own in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import functools
import socket
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.plugins.protocols.sctp.usrsctp_clock import Clock

AF_CONN, SCTP = 123, 132
_NODELAY, _INITMSG, _RECVRCVINFO = 0x04, 0x03, 0x1F
_INTERLEAVING_SUPPORTED, _FRAGMENT_INTERLEAVE = 0x1206, 0x10
_ENABLE_STREAM_RESET, _RESET_STREAMS, _ADD_STREAMS = 0x0900, 0x0901, 0x0903
_RESET_ALL_KINDS, _RESET_INCOMING, _RESET_OUTGOING = 0x07, 0x01, 0x02
_SENDV_SNDINFO = 1
_UNORDERED = 0x0400
_BUFFER = 1 << 22
_received = ctypes.create_string_buffer(_BUFFER)
"""Made once: four megabytes of zeros for each look took most of the time of these tests."""

_Output = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint8, ctypes.c_uint8
)


class _Address(ctypes.Structure):
    _fields_ = (("family", ctypes.c_uint16), ("port", ctypes.c_uint16), ("handle", ctypes.c_void_p))


class _SendInfo(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("protocol", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("association", ctypes.c_uint32),
    )


class _ReceiveInfo(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_uint16),
        ("number", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("protocol", ctypes.c_uint32),
        ("tsn", ctypes.c_uint32),
        ("cumulative", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("association", ctypes.c_uint32),
    )


class _Init(ctypes.Structure):
    _fields_ = (
        ("streams_out", ctypes.c_uint16),
        ("streams_in", ctypes.c_uint16),
        ("attempts", ctypes.c_uint16),
        ("timeout", ctypes.c_uint16),
    )


class _AssociationValue(ctypes.Structure):
    _fields_ = (("association", ctypes.c_uint32), ("value", ctypes.c_uint32))


class _AddStreams(ctypes.Structure):
    _fields_ = (
        ("association", ctypes.c_uint32),
        ("incoming", ctypes.c_uint16),
        ("outgoing", ctypes.c_uint16),
    )


class _ResetStreams(ctypes.Structure):
    _fields_ = (
        ("association", ctypes.c_uint32),
        ("flags", ctypes.c_uint16),
        ("count", ctypes.c_uint16),
        ("stream", ctypes.c_uint16),
    )


class Received(msgspec.Struct, frozen=True):
    """A message that usrsctp has delivered."""

    stream: int
    protocol: int
    data: bytes
    unordered: bool


def is_there() -> bool:
    """Whether the library is installed."""
    return ctypes.util.find_library("usrsctp") is not None


class _Stack:
    """The one stack of the process."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("usrsctp")
        assert name is not None
        self.library: Any = ctypes.CDLL(name, use_errno=True)
        self.peers: dict[int, Peer] = {}
        self._clock: Clock | None = None
        self._declare()
        self._output = _Output(self._packet_out)
        self.library.usrsctp_init_nothreads(ctypes.c_uint16(0), self._output, None)
        self.library.usrsctp_sysctl_set_sctp_ecn_enable(ctypes.c_uint32(0))

    def _declare(self) -> None:
        pointer, size, length = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        number = ctypes.c_int
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "usrsctp_init_nothreads": (None, [ctypes.c_uint16, _Output, pointer]),
            "usrsctp_socket": (pointer, [number, number, number, pointer, pointer, length, pointer]),
            "usrsctp_setsockopt": (number, [pointer, number, number, pointer, length]),
            "usrsctp_bind": (number, [pointer, pointer, length]),
            "usrsctp_listen": (number, [pointer, number]),
            "usrsctp_connect": (number, [pointer, pointer, length]),
            "usrsctp_accept": (pointer, [pointer, pointer, pointer]),
            "usrsctp_set_non_blocking": (number, [pointer, number]),
            "usrsctp_close": (None, [pointer]),
            "usrsctp_shutdown": (number, [pointer, number]),
            "usrsctp_conninput": (None, [pointer, pointer, size, ctypes.c_uint8]),
            "usrsctp_register_address": (None, [pointer]),
            "usrsctp_deregister_address": (None, [pointer]),
            "usrsctp_handle_timers": (None, [ctypes.c_uint32]),
            "usrsctp_sendv": (
                ctypes.c_ssize_t,
                [pointer, ctypes.c_char_p, size, pointer, number, pointer, length, ctypes.c_uint, number],
            ),
            "usrsctp_recvv": (
                ctypes.c_ssize_t,
                [pointer, pointer, size, pointer, pointer, pointer, pointer, pointer, pointer],
            ),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments

    def measure_by_passed_time(self, seed: int) -> None:
        """Have usrsctp measure by what ``Peer.pass_time`` says, too, from now on; ``seed`` its random numbers.

        Not on macOS: there it goes on with the system's, and a course through losses may be another each time.
        """
        if sys.platform == "linux":
            if self._clock is None:
                self._clock = Clock("libusrsctp")
            self._clock.random.seed(seed)

    def pass_time(self, milliseconds: int) -> None:
        if self._clock is not None:
            self._clock.milliseconds += milliseconds
        self.library.usrsctp_handle_timers(milliseconds)

    def _packet_out(self, handle: int, data: int, size: int, tos: int, fragment: int) -> int:
        peer = self.peers.get(handle)
        if peer is not None:
            peer.sent.append(ctypes.string_at(data, size))
        return 0


@functools.cache
def stack() -> _Stack:
    return _Stack()


_handles = iter(range(1, 1 << 30))


class Peer:
    """A socket of usrsctp, and the association that it gets."""

    def __init__(
        self, port: int, *, streams: int = 10, most_of_ours: int = 10, interleaving: bool = False
    ) -> None:
        """``streams`` are its own, and it takes ``most_of_ours``."""
        self._stack = stack()
        self._library = self._stack.library
        self._handle = next(_handles)
        self._socket: int | None = None
        self._listening: int | None = None
        self.sent: list[bytes] = []
        """Packets on their way to us."""
        self._stack.peers[self._handle] = self
        self._library.usrsctp_register_address(self._handle)
        made = self._library.usrsctp_socket(AF_CONN, socket.SOCK_STREAM, SCTP, None, None, 0, None)
        assert made, errno.errorcode[ctypes.get_errno()]
        self._library.usrsctp_set_non_blocking(made, 1)
        for option in (_NODELAY, _RECVRCVINFO):
            self._set(made, SCTP, option, ctypes.c_int(1))
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._set(made, socket.SOL_SOCKET, option, ctypes.c_int(_BUFFER))
        self._set(made, SCTP, _ENABLE_STREAM_RESET, _AssociationValue(0, _RESET_ALL_KINDS))
        self._set(made, SCTP, _INITMSG, _Init(streams, most_of_ours, 0, 0))
        if interleaving:
            self._set(made, SCTP, _FRAGMENT_INTERLEAVE, ctypes.c_int(2))
            self._set(made, SCTP, _INTERLEAVING_SUPPORTED, _AssociationValue(0, 1))
        self._check(self._library.usrsctp_bind(made, *self._address(port)))
        self._bound = made

    def listen(self) -> None:
        self._check(self._library.usrsctp_listen(self._bound, 1))
        self._listening = self._bound

    def connect(self, port: int) -> None:
        result = self._library.usrsctp_connect(self._bound, *self._address(port))
        assert result == 0 or ctypes.get_errno() == errno.EINPROGRESS
        self._socket = self._bound

    def packet_in(self, packet: bytes) -> None:
        self._library.usrsctp_conninput(self._handle, packet, len(packet), 0)
        if self._socket is None and self._listening is not None:
            self._socket = self._library.usrsctp_accept(self._listening, None, None)
            if self._socket:
                self._library.usrsctp_set_non_blocking(self._socket, 1)

    def pass_time(self, milliseconds: int) -> None:
        self._stack.pass_time(milliseconds)

    def send(self, stream: int, data: bytes, protocol: int = 0, *, unordered: bool = False) -> bool:
        """Queue a message; False when the buffer is full."""
        info = _SendInfo(stream, _UNORDERED if unordered else 0, socket.htonl(protocol), 0, 0)
        size = ctypes.sizeof(info)
        sent = self._library.usrsctp_sendv(
            self._socket, data, len(data), None, 0, ctypes.byref(info), size, _SENDV_SNDINFO, 0
        )
        return bool(sent == len(data))

    def receive(self) -> Iterator[Received]:
        """Take what has been delivered; fragments of large messages are put together."""
        parts: list[bytes] = []
        while self._socket:
            info, info_size = _ReceiveInfo(), ctypes.c_uint32(ctypes.sizeof(_ReceiveInfo))
            source, source_size = ctypes.create_string_buffer(64), ctypes.c_uint32(64)
            kind, flags = ctypes.c_uint(), ctypes.c_int()
            count = self._library.usrsctp_recvv(
                self._socket, _received, _BUFFER, source, ctypes.byref(source_size), ctypes.byref(info),
                ctypes.byref(info_size), ctypes.byref(kind), ctypes.byref(flags),
            )  # fmt: skip
            if count <= 0:
                assert not parts, "usrsctp has delivered a part of a message"
                return
            parts.append(ctypes.string_at(_received, count))
            if flags.value & socket.MSG_EOR:
                data = b"".join(parts)
                yield Received(info.stream, socket.ntohl(info.protocol), data, bool(info.flags & _UNORDERED))
                parts = []

    def receive_into(self, buffer: ctypes.Array[ctypes.c_char]) -> int:
        """Take what has been delivered into a buffer, one upon the other; return the bytes."""
        total = 0
        flags, nothing = ctypes.c_int(), ctypes.c_uint32(0)
        kind = ctypes.c_uint()
        while self._socket:
            count = self._library.usrsctp_recvv(
                self._socket, buffer, len(buffer), None, None, None,
                ctypes.byref(nothing), ctypes.byref(kind), ctypes.byref(flags),
            )  # fmt: skip
            if count <= 0:
                break
            total += count
        return total

    def reset(self, stream: int, *, ours: bool = False) -> bool:
        """Have its outgoing stream count from 0 again, or ask us for that of ours; False when a request is not answered yet."""
        assert self._socket is not None
        request = _ResetStreams(0, _RESET_INCOMING if ours else _RESET_OUTGOING, 1, stream)
        address, size = ctypes.byref(request), 10  # without the padding
        result = self._library.usrsctp_setsockopt(self._socket, SCTP, _RESET_STREAMS, address, size)
        assert result == 0 or ctypes.get_errno() == errno.EALREADY
        return bool(result == 0)

    def add_streams(self, count: int) -> None:
        """Ask to be allowed more outgoing streams."""
        assert self._socket is not None
        self._set(self._socket, SCTP, _ADD_STREAMS, _AddStreams(0, 0, count))

    def shut_down(self) -> None:
        self._library.usrsctp_shutdown(self._socket, socket.SHUT_WR)

    def close(self) -> None:
        """Give everything back; the stack stays."""
        for each in {self._socket, self._bound} - {None, 0}:
            self._library.usrsctp_close(each)
        self._library.usrsctp_deregister_address(self._handle)
        del self._stack.peers[self._handle]

    def _address(self, port: int) -> tuple[Any, int]:
        address = _Address(AF_CONN, socket.htons(port), self._handle)
        return ctypes.byref(address), ctypes.sizeof(address)

    def _set(self, of: int, level: int, option: int, value: Any) -> None:
        self._check(
            self._library.usrsctp_setsockopt(of, level, option, ctypes.byref(value), ctypes.sizeof(value))
        )

    def _check(self, result: int) -> None:
        assert result == 0, errno.errorcode[ctypes.get_errno()]


@contextlib.contextmanager
def peer(
    port: int, *, streams: int = 10, most_of_ours: int = 10, interleaving: bool = False
) -> Iterator[Peer]:
    made = Peer(port, streams=streams, most_of_ours=most_of_ours, interleaving=interleaving)
    try:
        yield made
    finally:
        made.close()
