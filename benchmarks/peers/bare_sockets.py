"""Python's own blocking sockets with nothing around them: what the language and the system allow."""

from __future__ import annotations

import socket
import time
from multiprocessing.connection import Connection

from benchmarks.processes import WARM, time_calls


def _accept(link: Connection) -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link.send(listener.getsockname()[1])
        connected, _ = listener.accept()
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _connect(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def receive(link: Connection, count: int, size: int) -> None:
    """Receive bodies without frames into one buffer, used again and again."""
    with _accept(link) as connected:
        buffer = bytearray(size)
        first = got = connected.recv_into(buffer)
        start = time.perf_counter()
        while got < count * size:
            got += connected.recv_into(buffer)
        link.send((got - first) / size / (time.perf_counter() - start))


def send(link: Connection, port: int, count: int, size: int) -> None:
    """Send one body after another, without frames."""
    with _connect(port) as connected:
        body = b"x" * size
        for _ in range(count):
            connected.sendall(body)
        link.recv()


def echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes."""
    with _accept(link) as connected:
        for _ in range(WARM + count):
            connected.sendall(_exactly(connected, size))


def ask(link: Connection, port: int, count: int, size: int) -> None:
    """Send and wait for the answer."""
    with _connect(port) as connected:
        body = b"x" * size

        def there_and_back() -> None:
            connected.sendall(body)
            _exactly(connected, size)

        link.send(time_calls(there_and_back, count))


def _exactly(connected: socket.socket, size: int) -> bytes:
    got = connected.recv(size)
    while len(got) < size:
        more = connected.recv(size - len(got))
        if not more:
            raise EOFError("the peer hung up")
        got += more
    return got
