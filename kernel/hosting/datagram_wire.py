"""Datagram wire: sends and receives many datagrams in one system call, where the system can.

Linux can (UDP_SEGMENT, UDP_GRO).  Datagrams of one size for one address are sent with one system call, and
datagrams that arrived together are read together.  With one call for each datagram, plain Python reaches
about 80,000 per second.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any

SEGMENTS_A_CALL = 64
BYTES_A_CALL = 65_000
"""A datagram with its headers has at most 65,535 bytes; so has the buffer that UDP_SEGMENT divides into
datagrams."""
READ_SIZE = 65_536

_LINUX = sys.platform == "linux"
"""Or what calls itself so: gVisor and WSL 1 lack some of the options below."""
# From ``linux/udp.h``, ``asm-generic/socket.h``, ``linux/in.h`` and ``linux/in6.h``: Python's ``socket`` does
# not have these.  They are used on Linux only: elsewhere the same numbers are other options.  On macOS 10 and
# 11 of IPPROTO_IP are IP_MULTICAST_TTL and IP_MULTICAST_LOOP, and 32 of SOL_SOCKET is SO_BROADCAST.
UDP_SEGMENT, UDP_GRO = 103, 104
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_SEGMENT_SIZE, _GRO_SIZE = Struct("=H"), Struct("=i")
_ANCILLARY = socket.CMSG_SPACE(_GRO_SIZE.size)
_NOT_NOW = (errno.EAGAIN, errno.ENOBUFS)
_NONET = getattr(errno, "ENONET", errno.EHOSTUNREACH)
"""Only Linux has it."""
_UNREACHABLE = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, _NONET))
"""Errors that say that the address of an earlier datagram cannot be reached.  The present call is not at
fault."""
_NEWS = _UNREACHABLE | {
    errno.ECONNREFUSED, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPROTO, errno.EACCES, errno.EMSGSIZE,
}  # fmt: skip
"""All errors that ICMP, or a failed address resolution, may cause (Linux's ``icmp_err_convert``)."""

_RECVERR = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
# Reads ``sock_extended_err`` records, which IP_RECVERR makes of ICMP messages.
_MSG_ERRQUEUE = 0x2000
_MTU_DISCOVER = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
_PMTUDISC_PROBE = 3
"""Do not fragment, whatever path MTU the system has noted."""
# ``struct sock_extended_err``: errno, origin, type, code, padding, info, data.
_EXTENDED_ERROR = Struct("=I4B2I")
# SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6.  Errors of our own system have another origin.
_ICMP_ORIGINS = (2, 3)

Address = tuple[Any, ...]
"""An address of the socket module: (host, port), for IPv6 with flow and scope."""
Read = tuple[bytes, list[tuple[int, int, bytes]], int, Address]
"""What ``recvmsg`` returns: data, ancillary data, flags and address."""


class DatagramWire:
    """A bound socket, UDP or raw.  A raw IPv4 socket reads the IP header as well; it is removed here."""

    __slots__ = (
        "_again", "_batches", "_header", "_out", "_socket", "dropped", "refusal", "refused", "segments",
    )  # fmt: skip

    def __init__(self, bound: socket.socket) -> None:
        bound.setblocking(False)
        self._socket = bound
        # Linux gives a raw IPv4 socket the whole packet, but a raw IPv6 socket only the payload (RFC 3542,
        # section 3).
        self._header = bound.type == socket.SOCK_RAW and bound.family == socket.AF_INET
        self._out: deque[tuple[bytes, Address]] = deque()
        self.segments: bool = bound.type == socket.SOCK_DGRAM and _can_segment(bound)
        """Whether datagrams of one size are sent in one call.  Becomes false if the system refuses that."""
        self._batches = bound.type == socket.SOCK_DGRAM and _asks_for_batches(bound)
        self._again: Read | None = None
        """What was read and put back."""
        self.dropped: int = 0
        """Datagrams that the system refused to send."""
        self.refusal: str = ""
        """The reason for the last one."""

        self.refused: bool = False
        """Whether ``take_refused`` would find something."""

    def hear_of_refusals(self) -> None:
        """Ask the system to keep ICMP messages about datagrams that nobody listened for.  Only Linux does."""
        if _LINUX:
            level, option = _RECVERR[self._socket.family]
            with suppress(OSError):
                self._socket.setsockopt(level, option, 1)

    def take_refused(self) -> list[tuple[bytes, Address]]:
        """Return the beginnings of datagrams that nobody listened for, and where they were sent."""
        self.refused = False
        found: list[tuple[bytes, Address]] = []
        while _LINUX:
            try:
                data, ancillary, _, address = self._socket.recvmsg(READ_SIZE, 512, _MSG_ERRQUEUE)
            except OSError:
                return found
            for level, kind, value in ancillary:
                if (level, kind) in _RECVERR.values() and len(value) >= _EXTENDED_ERROR.size:
                    number, origin, *_ = _EXTENDED_ERROR.unpack_from(value)
                    # Port unreachable: the host is there, and nothing listens at the port.
                    if number == errno.ECONNREFUSED and origin in _ICMP_ORIGINS:
                        found.append((data, address))
        return found

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # ------------------------------------------------------------------ another thread

    @property
    def lendable(self) -> bool:
        """Whether another thread may send and read with ``sender`` and ``reader``."""
        return self._batches

    def sender(self) -> Callable[[bytes, Address], int]:
        """Return the function that sends a datagram to an address.  It raises ``OSError``."""
        return self._socket.sendto

    def reader(self) -> tuple[Callable[[int], Read], int]:
        """Return the function that reads what has come together, and its argument.

        It raises ``OSError``.  With ancillary data it is several datagrams of one size.
        """
        return partial(self._socket.recvmsg, READ_SIZE), _ANCILLARY

    def put_back(self, read: Read) -> None:
        """Have ``receive`` return this first."""
        self._again = read

    # ------------------------------------------------------------------ in

    def receive(self, calls: int) -> list[tuple[list[bytes], Address]]:
        """Read with at most ``calls`` system calls.

        Return datagrams and the addresses they came from, in order.
        """
        got: list[tuple[list[bytes], Address]] = []
        receive = self._receive_batch if self._batches else self._receive_one
        for _ in range(calls):
            try:
                datagrams, address = receive()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno not in _NEWS:
                    raise
                # The system reports an ICMP error about a datagram that we sent with whatever call comes
                # next.  It has nothing to do with what there is to receive.
                self.refused = True
                continue
            # One entry for each run of datagrams from one address: the caller looks up the peer once for all
            # of them.
            if got and got[-1][1] == address:
                got[-1][0].extend(datagrams)
            else:
                got.append((datagrams, address))
        return got

    def _receive_batch(self) -> tuple[list[bytes], Address]:
        again = self._again
        if again is not None:
            self._again = None
        data, ancillary, _, address = again or self._socket.recvmsg(READ_SIZE, _ANCILLARY)
        if not ancillary:
            return [data], address
        # UDP_GRO: Linux has put datagrams of one size together, of which only the last may be shorter.  The
        # ancillary data has the size.
        (size,) = _GRO_SIZE.unpack(ancillary[0][2])
        return [data[at : at + size] for at in range(0, len(data), size)], address

    def _receive_one(self) -> tuple[list[bytes], Address]:
        data, address = self._socket.recvfrom(READ_SIZE)
        # The low four bits of an IPv4 header have its length, in words of four bytes.
        return [data[(data[0] & 15) * 4 :] if self._header else data], address

    # ------------------------------------------------------------------ out

    def send(self, datagrams: Sequence[bytes], address: Address) -> bool:
        """Send datagrams, after those that wait.

        False: some wait; call ``flush`` when the socket is writable.
        """
        if self._out:
            # Behind those that wait, to keep the order.
            self._out += [(datagram, address) for datagram in datagrams]
            return self.flush()
        at, count = 0, len(datagrams)
        while at < count:
            # Set back during the loop if the system refuses a call with several datagrams.
            taken = self._segment(datagrams, at) if self.segments else 1
            gone = self._send(datagrams[at : at + taken], address)
            if gone is None:
                self._out += [(datagram, address) for datagram in datagrams[at:]]
                return False
            at += gone
        return True

    def probe(self, datagram: bytes, address: Address) -> None:
        """Send a datagram that must not be fragmented on its way (for path MTU discovery), now or not at all.

        Other datagrams may be fragmented.
        """
        if not _LINUX:
            # The probe is not sent, gets no answer, and so its size counts as too large.
            return
        level, option = _MTU_DISCOVER[self._socket.family]
        try:
            # The option belongs to the socket and not to a datagram, so it is set for this one call only.
            usual = self._socket.getsockopt(level, option)
            self._socket.setsockopt(level, option, _PMTUDISC_PROBE)
        except OSError:
            return
        try:
            self._socket.sendto(datagram, address)
        except OSError:
            # Larger than the interface takes, or it takes nothing now.  Both count as a probe that was lost.
            pass
        finally:
            self._socket.setsockopt(level, option, usual)

    def flush(self) -> bool:
        """Send the datagrams that wait; False: some still wait."""
        out = self._out
        while out:
            datagram, address = out[0]
            gone = self._send([datagram], address)
            if gone is None:
                return False
            # 0: the error was about an earlier datagram, and this one has to be tried again.
            if gone:
                out.popleft()
        return True

    def _segment(self, datagrams: Sequence[bytes], at: int) -> int:
        """Return how many from ``at`` on fit one call: of one size, and only the last may be shorter."""
        size = len(datagrams[at])
        most = min(SEGMENTS_A_CALL, BYTES_A_CALL // size, len(datagrams) - at)
        for taken in range(1, most):
            length = len(datagrams[at + taken])
            if length != size:
                # The first that differs ends the run.  If it is shorter, it may be the last one of it.
                return taken + (length < size)
        return max(most, 1)

    def _send(self, datagrams: Sequence[bytes], address: Address) -> int | None:
        """Return how many were sent or dropped.

        0: try again (maybe one by one from now on); None: not now.
        """
        try:
            if len(datagrams) == 1:
                self._socket.sendto(datagrams[0], address)
            else:
                size = _SEGMENT_SIZE.pack(len(datagrams[0]))
                self._socket.sendmsg(datagrams, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)], 0, address)
        except ConnectionRefusedError:
            # An ICMP error about an earlier datagram.  Reporting it clears it, and this one was not sent yet.
            self.refused = True
            return 0
        except OSError as error:
            # ENOBUFS: the queue of the network interface is full.  It is as temporary as a full socket.
            if error.errno in _NOT_NOW:
                return None
            self.refused |= error.errno in _NEWS
            if len(datagrams) > 1:
                if error.errno in _UNREACHABLE:
                    # It may be about an earlier datagram for another address.  One alone shows which it is.
                    return self._send(datagrams[:1], address)
                # The system or the interface cannot segment.  From now on each datagram has a call of its
                # own.
                self.segments = False
                return 0
            # Unreachable, or too large for the interface.  Datagrams may be lost, so it counts as lost; to
            # try again would hold up all that follow.
            self.dropped += 1
            self.refusal = f"{error.strerror} ({len(datagrams[0])} bytes)"
        return len(datagrams)


def _can_segment(bound: socket.socket) -> bool:
    # Asked, and not tried: a system that does not know UDP_SEGMENT may ignore it, and send all the datagrams
    # as one.  macOS does.
    try:
        return _LINUX and bound.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT) >= 0
    except OSError:
        # Before 4.18.
        return False


def _asks_for_batches(bound: socket.socket) -> bool:
    if not _LINUX:
        return False
    try:
        bound.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    except OSError:
        # Before 5.0.
        return False
    return True


def want_buffer(bound: socket.socket, option: int, size: int) -> str | None:
    """Set a socket's buffer size (SO_RCVBUF or SO_SNDBUF); return a warning if the system gave it less."""
    receiving = option == socket.SO_RCVBUF
    if _LINUX:
        # With CAP_NET_ADMIN a process may exceed the system's limit.
        try:
            bound.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE if receiving else _SO_SNDBUFFORCE, size)
        except OSError:
            bound.setsockopt(socket.SOL_SOCKET, option, size)
        # Linux doubles the size that was asked for, for its own overhead, and returns the doubled one
        # (socket(7)).
        got = bound.getsockopt(socket.SOL_SOCKET, option) // 2
        limit = f"net.core.{'rmem_max' if receiving else 'wmem_max'}"
    else:
        _set_what_is_given(bound, option, size)
        got = bound.getsockopt(socket.SOL_SOCKET, option)
        limit = "kern.ipc.maxsockbuf"
    if got >= size:
        return None
    return (
        f"the system gave a socket buffer of {got} bytes, not {size}: bursts may be lost; "
        f"sysctl -w {limit}={size}"
    )


def _set_what_is_given(bound: socket.socket, option: int, size: int) -> None:
    """Set the buffer's size, or half of it, and so on: BSD's descendants refuse more than their limit."""
    while True:
        try:
            bound.setsockopt(socket.SOL_SOCKET, option, size)
        except OSError as error:
            if error.errno != errno.ENOBUFS or size < 2:
                raise
            size //= 2
        else:
            return
