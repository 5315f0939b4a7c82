"""A program on libzmq 2.1 (2012), which speaks ZMTP 1.0: ``libzmq2_peer LIBRARY bind`` or ``connect``.

It does what java/OldZmq.java does, in the same order.  Before its PUB sends, it hears that it is connected from the other side.
"""

from __future__ import annotations

import ctypes
import select
import sys
from collections.abc import Callable
from typing import Any

from tests.ports import free_port

TYPES = {"PAIR": 0, "PUB": 1, "SUB": 2, "REQ": 3, "REP": 4, "DEALER": 5, "ROUTER": 6, "PULL": 7, "PUSH": 8}
IDENTITY, SUBSCRIBE, RCVMORE = 5, 6, 13
SNDMORE = 2
LARGE = b"x" * 300_000
TEXTS = (b"one", b"two", LARGE)


class _Message(ctypes.Structure):
    """``zmq_msg_t`` of 2.1: a small body is in it."""

    _fields_ = (
        ("content", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte),
        ("size", ctypes.c_ubyte),
        ("data", ctypes.c_ubyte * 30),
    )


class Library:
    """What is needed of libzmq."""

    def __init__(self, path: str) -> None:
        self._dll = dll = ctypes.CDLL(path, use_errno=True)
        for name in ("zmq_init", "zmq_socket", "zmq_msg_data"):
            getattr(dll, name).restype = ctypes.c_void_p
        dll.zmq_msg_size.restype = ctypes.c_size_t
        dll.zmq_strerror.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p(dll.zmq_init(1))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns 0."""
        if getattr(self._dll, name)(*arguments):
            raise OSError(f"{name}: {self._dll.zmq_strerror(self._dll.zmq_errno()).decode()}")

    def socket(self, kind: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._dll.zmq_socket(self.context, TYPES[kind]))

    def body_of(self, message: _Message) -> bytes:
        return ctypes.string_at(
            self._dll.zmq_msg_data(ctypes.byref(message)), self._dll.zmq_msg_size(ctypes.byref(message))
        )

    def fill(self, message: _Message, body: bytes) -> None:
        self.call("zmq_msg_init_size", ctypes.byref(message), ctypes.c_size_t(len(body)))
        ctypes.memmove(self._dll.zmq_msg_data(ctypes.byref(message)), body, len(body))


class Socket:
    """A socket that has bound or connected."""

    def __init__(self, library: Library, role: str, kind: str, identity: bytes = b"") -> None:
        self._library = library
        self._socket = library.socket(kind)
        if identity:
            self._set(IDENTITY, identity)
        if kind == "SUB":
            self._set(SUBSCRIBE, b"tea")
        if role == "bind":
            place = f"tcp://127.0.0.1:{free_port()}"
            library.call("zmq_bind", self._socket, place.encode())
            print(place, flush=True)
        else:
            library.call("zmq_connect", self._socket, sys.stdin.readline().strip().encode())

    def _set(self, option: int, value: bytes) -> None:
        self._library.call("zmq_setsockopt", self._socket, option, value, ctypes.c_size_t(len(value)))

    def send(self, *parts: bytes) -> None:
        for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            message = _Message()
            self._library.fill(message, part)
            self._library.call("zmq_send", self._socket, ctypes.byref(message), SNDMORE if left else 0)
            self._library.call("zmq_msg_close", ctypes.byref(message))

    def receive(self) -> tuple[bytes, ...]:
        parts = []
        more = ctypes.c_int64(1)
        while more.value:
            message = _Message()
            self._library.call("zmq_msg_init", ctypes.byref(message))
            self._library.call("zmq_recv", self._socket, ctypes.byref(message), 0)
            parts.append(self._library.body_of(message))
            self._library.call("zmq_msg_close", ctypes.byref(message))
            size = ctypes.c_size_t(8)
            self._library.call(
                "zmq_getsockopt", self._socket, RCVMORE, ctypes.byref(more), ctypes.byref(size)
            )
        return tuple(parts)

    def close(self) -> None:
        self._library.call("zmq_close", self._socket)


Open = Callable[..., Socket]


def request(open_socket: Open) -> Socket:
    socket = open_socket("REQ")
    for text in TEXTS:
        socket.send(text)
        assert socket.receive() == (b"re: " + text,)
    return socket


def reply(open_socket: Open) -> Socket:
    socket = open_socket("REP")
    for text in TEXTS:
        assert socket.receive() == (text,)
        socket.send(b"re: " + text)
    return socket


def publish(open_socket: Open) -> Socket:
    socket = open_socket("PUB")
    # Neither side tells when the other is connected, so something is sent until the other side has it.
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        socket.send(b"teatime", b"0")
    assert sys.stdin.readline() == "there\n"
    socket.send(b"coffee", b"1")
    socket.send(b"tea", b"2")
    socket.send(b"teapot", LARGE)
    return socket


def subscribe(open_socket: Open) -> Socket:
    socket = open_socket("SUB")
    assert socket.receive() == (b"tea", b"2")
    assert socket.receive() == (b"teapot", LARGE)
    return socket


def push(open_socket: Open) -> Socket:
    socket = open_socket("PUSH")
    for number in range(1000):
        socket.send(b"%d" % number)
    socket.send(b"a", b"", LARGE)
    return socket


def pull(open_socket: Open) -> Socket:
    socket = open_socket("PULL")
    for number in range(1000):
        assert socket.receive() == (b"%d" % number,)
    assert socket.receive() == (b"a", b"", LARGE)
    return socket


def dealer(open_socket: Open) -> Socket:
    socket = open_socket("DEALER", b"anna")
    socket.send(b"", b"question")
    assert socket.receive() == (b"", b"answer")
    return socket


def router(open_socket: Open) -> Socket:
    socket = open_socket("ROUTER")
    assert socket.receive() == (b"berta", b"", b"question")
    socket.send(b"berta", b"", b"answer")
    return socket


def pair(open_socket: Open) -> Socket:
    socket = open_socket("PAIR")
    socket.send(b"a", b"", LARGE)
    assert socket.receive() == (b"b", b"", LARGE)
    return socket


def main(path: str, role: str) -> None:
    library = Library(path)
    for check in (request, reply, publish, subscribe, push, pull, dealer, router, pair):
        socket = check(lambda *how: Socket(library, role, *how))
        # The other side says when it has all.
        assert sys.stdin.readline() == "done\n"
        socket.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
