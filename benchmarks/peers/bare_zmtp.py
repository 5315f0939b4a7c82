"""Peers of ZMTP that are little more than sockets: they write bytes that are made beforehand, and measure the other side."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection

from benchmarks.processes import allow_descriptors
from benchmarks.streams import READ_BYTES, opened

AT_A_TIME = 16
_GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL".ljust(64, b"\0")


def _short(body: bytes) -> bytes:
    """Return a command."""
    return bytes((4, len(body))) + body


def _ready(kind: bytes) -> bytes:
    return _short(b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind)


def greeted(address: str, kind: bytes) -> socket.socket:
    """Return a connection behind the handshake of NULL."""
    sock = opened(address)
    # Not in one go with READY: libzmq hangs up on who does that.
    sock.sendall(_GREETING)
    _read(sock, len(_GREETING))
    sock.sendall(_ready(kind))
    _read(sock, _read(sock, 2)[1])
    return sock


def _read(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise EOFError("the other side hung up")
    return data


def subscribe(
    link: Connection, address: str, prefixes: Sequence[Sequence[bytes]], size: int, count: int
) -> None:
    """Subscribe, a connection for each set of prefixes; say when ``count`` messages of ``size`` bytes have come."""
    allow_descriptors(len(prefixes))
    ready = select.epoll()
    socks = {}
    for wanted in prefixes:
        sock = greeted(address, b"SUB")
        sock.sendall(b"".join(_short(b"\x09SUBSCRIBE" + prefix) for prefix in wanted))
        socks[sock.fileno()] = sock
        ready.register(sock.fileno(), select.EPOLLIN)
    link.send("subscribed")
    room = bytearray(READ_BYTES)
    # Two bytes of header: bodies are short.
    left = count * (size + 2)
    while left > 0:
        for descriptor, _ in ready.poll():
            left -= socks[descriptor].recv_into(room)
    link.send("done")
    link.recv()


def come_and_go(link: Connection, address: str, count: int) -> None:
    """Connect and disconnect, several peers at a time; send the seconds."""
    _come_and_go(address, AT_A_TIME)
    link.send("ready")
    link.recv()
    start = time.perf_counter()
    _come_and_go(address, count)
    link.send(time.perf_counter() - start)
    link.recv()


def _come_and_go(address: str, count: int) -> None:
    # One comes whenever one goes: the other side has something to do all the time.
    here: deque[socket.socket] = deque()
    for _ in range(count):
        if len(here) == AT_A_TIME:
            here.popleft().close()
        here.append(greeted(address, b"PUSH"))
    for sock in here:
        sock.close()


def stay(link: Connection, address: str, count: int) -> None:
    """Hold connections that do nothing."""
    allow_descriptors(count)
    held = [greeted(address, b"PUSH") for _ in range(count)]
    link.send(len(held))
    link.recv()
