"""Captures: pcap and pcapng files, and network interfaces. Only this file knows scapy's readers.

Scapy reads the formats of files and opens interfaces.  It does not decode packets, for which it is too slow
(``ip_packets.py``).

A file may be cut off, damaged or forged, and scapy trusts it.  So it reads through ``_Source``, which limits
sizes and notices an early end.  Whatever goes wrong ends the reading and nothing else: what was read before
is shown, and ``complaint`` says why there is no more.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from struct import Struct
from typing import IO, Any

import msgspec

from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError
from kernel.contracts.extras import Extra
from kernel.inspection.ip_packets import ETHERNET, RAW

MOST = 256 * 1024
"""Bytes of a packet that are examined: more than any interface delivers, including ones that merge segments.
"""
_READ_MOST = 16 << 20
"""The largest record of a capture file."""
_BEGINNINGS = (4, 16)
"""Sizes that are read first of a record, in pcapng and pcap: a file may end there."""
_RECEIVE_BUFFER_FORCE, _BUFFER = 33, 64 << 20
"""SO_RCVBUFFORCE, which Python's ``socket`` lacks. scapy's buffer of 64 KiB is less than one burst."""
_PACKET, _STATISTICS, _DROPS = 263, 6, Struct("II")
"""SOL_PACKET, PACKET_STATISTICS: counts of received and dropped packets."""
_LIKE_ETHERNET = (1, 772)
"""Hardware types (ARPHRD) of Ethernet and of the loopback interface."""
SCAPY = Extra("inspect", "kernel inspect needs scapy", ("scapy",))


class Packet(msgspec.Struct, frozen=True):
    """A captured packet."""

    link: int
    """Link type (LINKTYPE)."""
    data: bytes
    time: float
    """Seconds since the first packet."""
    cut: int
    """Bytes at the end that were not captured."""


class CaptureError(KernelError):
    """A capture cannot be read. The message names it, and says what to do."""


class CaptureFile:
    """A capture file; "-" is standard input.

    Packets are read one by one, so that the file may have any size.
    """

    def __init__(self, path: str) -> None:
        self.complaint: str = ""
        """The reason for an early end, if there was one."""
        self._path = path
        self._file = _open(path)
        self._source = _Source(_unpacked(self._file))
        self.size: int = 0 if path == "-" else Path(path).stat().st_size
        """Bytes of the file; 0: unknown."""

    def progress(self) -> int:
        """Return how many bytes were read."""
        return self._source.position

    def packets(self) -> Iterator[Packet]:
        """Yield all packets that can be read."""
        import zlib

        from scapy.error import Scapy_Exception

        try:
            # Reads the header of the file, so that a wrong file is an error at once and not a capture without
            # packets.
            reader = self._reader()
        except (Scapy_Exception, EOFError, OSError, zlib.error, ValueError) as error:
            raise CaptureError(f"{self._path} is no capture in pcap or pcapng format: {error}") from None
        begun: float | None = None
        while True:
            try:
                frame, facts = reader._read_packet(size=MOST)
                link, at = _place(reader, facts)
            except EOFError:
                break
            except Exception as error:
                # scapy may raise anything on forged input.  What was read before is still shown.
                self._source.fault = self._source.fault or f"{type(error).__name__}: {error}"
                break
            if begun is None:
                begun = at
            yield Packet(link, frame, at - begun, max(facts.wirelen - len(frame), 0))
        self._complain()

    def close(self) -> None:
        """Close the file."""
        self._source.close()
        self._file.close()

    def _reader(self) -> Any:
        from scapy.utils import RawPcapNgReader, RawPcapReader

        magic = self._source.read(4)
        if not magic:
            raise EOFError("it is empty")
        # A section header block begins a pcapng file.  All else is tried as pcap, which has four magic
        # numbers.
        kind: Any = RawPcapNgReader if magic == b"\x0a\x0d\x0d\x0a" else RawPcapReader
        # scapy's metaclass would open the file by its name and guess.  We have a file that is open already,
        # maybe a pipe, and have read its first bytes.
        reader = kind.__new__(kind, self._source)
        kind.__init__(reader, self._path, self._source, magic)
        return reader

    def _complain(self) -> None:
        source = self._source
        if source.fault:
            self.complaint = f"{self._path} is damaged at byte {source.position}: {source.fault}"
        elif source.short:
            self.complaint = f"{self._path} ends within a packet, after {source.position} bytes"
        elif source.more():
            self.complaint = f"{self._path} is damaged at byte {source.position}: the rest was not read"


def _open(path: str) -> BufferedReader:
    import sys

    if path == "-":
        piped: Any = sys.stdin.buffer
        return piped if isinstance(piped, BufferedReader) else BufferedReader(piped)
    try:
        return open(path, "rb")
    except OSError as error:
        raise CaptureError(f"{path} cannot be read: {error.strerror}") from None


def _unpacked(file: BufferedReader) -> IO[bytes]:
    """Return a reader of the file, or of what is compressed in it.

    It may be a pipe, so that there is no seeking.
    """
    import gzip

    # ``peek`` does not move, which matters for a pipe.
    packed = file.peek(2)[:2] == b"\x1f\x8b"
    return gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[return-value]


class _Source:
    """The file object for scapy; it never returns more than a record can have."""

    name = "capture"

    def __init__(self, file: IO[bytes]) -> None:
        self.position = 0
        self.short = False
        self.fault = ""
        self._file = file

    def read(self, size: int) -> bytes:
        # The size comes from the file. scapy would allocate what a damaged or forged record asks for.
        if size > _READ_MOST or size < 0:
            self.fault = f"a record of {size} bytes"
            raise OSError(self.fault)
        data = self._file.read(size)
        self.position += len(data)
        # At a regular end scapy asks for the beginning of the next record and gets nothing.  Everything else
        # that is short was cut off.
        if len(data) < size and (data or size not in _BEGINNINGS):
            self.short = True
        return data

    def more(self) -> bool:
        """Whether there is more to read."""
        try:
            return bool(self._file.read(1))
        except Exception:
            # A damaged gzip file has something left, even if it cannot be read.
            return True

    def close(self) -> None:
        self._file.close()


def _place(reader: Any, facts: Any) -> tuple[int, float]:
    """Return link type and time of a packet."""
    if hasattr(facts, "tsresol"):
        # A simple packet block of pcapng has no time.
        ticks = 0 if facts.tshigh is None else (facts.tshigh << 32) + facts.tslow
        return facts.linktype, ticks / facts.tsresol
    return reader.linktype, facts.sec + facts.usec / (1e9 if reader.nano else 1e6)


class LiveCapture:
    """The packets of an interface. Needs the right to open raw sockets."""

    size = 0

    def __init__(self, interface: str, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._dropped = 0
        self._socket = _listen(interface)
        # Item 3 of a packet socket's address is the hardware type (packet(7)).
        self._link = ETHERNET if self._socket.ins.getsockname()[3] in _LIKE_ETHERNET else RAW

    @property
    def complaint(self) -> str:
        """The number of packets for which the system had no room, as text; empty: none."""
        if not self._dropped:
            return ""
        packets = counted(self._dropped, "packet came faster than it", "packets came faster than they")
        return f"{packets} could be read"

    def progress(self) -> int:
        """Return 0: an interface has no end to measure progress by."""
        return 0

    def packets(self) -> Iterator[Packet]:
        """Yield packets as they arrive, for ``seconds`` or without end."""
        until = None if self._seconds is None else time.monotonic() + self._seconds
        begun: float | None = None
        while until is None or time.monotonic() < until:
            wait = None if until is None else max(until - time.monotonic(), 0.0)
            # Not the blocking ``recv`` alone: on a silent interface it would never see the end of
            # ``seconds``.
            if not select.select([self._socket.ins], [], [], wait)[0]:
                return
            _, frame, at = self._socket.recv_raw(MOST)
            # On the loopback interface every packet is seen twice, going out and coming in.  scapy returns
            # one of them without a frame.
            if frame is None:
                continue
            if begun is None:
                begun = at
            yield Packet(self._link, frame, at - begun, 0)

    def close(self) -> None:
        """Stop capturing."""
        # Before the socket is closed.  Reading the counters also sets them to 0 (packet(7)).
        self._dropped = _DROPS.unpack(self._socket.ins.getsockopt(_PACKET, _STATISTICS, _DROPS.size))[1]
        self._socket.close()


def _listen(interface: str) -> Any:
    import logging
    import socket

    # It warns of link types that it does not know, and we do.
    logging.getLogger("scapy").setLevel(logging.ERROR)
    known = [name for _, name in socket.if_nameindex()]
    if interface not in known:
        raise CaptureError(f"there is no interface {interface!r}; there are: {', '.join(known)}")
    try:
        from scapy.arch.linux import L2ListenSocket, L2Socket

        # ``L2Socket`` leaves out what goes out.  On the loopback interface all of that comes in again; on any
        # other one it would be half of each conversation.
        both_ways = L2Socket if interface == "lo" else L2ListenSocket
        opened = both_ways(iface=interface, promisc=False)
    except PermissionError:
        raise CaptureError(
            f"listening at {interface} takes the right to open raw sockets (root, or CAP_NET_RAW); "
            "without it, inspect a file that somebody else has captured: tcpdump -w FILE -i " + interface
        ) from None
    except (OSError, ImportError) as error:
        raise CaptureError(f"cannot listen at {interface}: {error}") from None
    for option in (socket.SO_RCVBUF, _RECEIVE_BUFFER_FORCE):
        try:
            opened.ins.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        except PermissionError:
            # SO_RCVBUFFORCE needs CAP_NET_ADMIN.  Without it the size stays within net.core.rmem_max.
            pass
    return opened
