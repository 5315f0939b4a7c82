"""pyzmq with blocking sockets, as its guide shows them: PUSH/PULL one way, REQ/REP there and back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing.connection import Connection

from benchmarks.processes import WARM, allow_descriptors, resident, time_calls
from benchmarks.scenario import Unavailable

try:
    import zmq
except ImportError:  # the row will say so
    zmq = None  # type: ignore[assignment]

_BACKEND = "PYZMQ_BACKEND"
"""Which backend pyzmq takes when it is imported."""


def require() -> None:
    """Say so when pyzmq is not there."""
    if zmq is None:
        raise Unavailable("pyzmq is not installed")


def new_keys() -> tuple[str, str]:
    """Return a public and a secret key."""
    require()
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def receive(link: Connection, count: int, size: int, copy: bool, keys: tuple[str, str] | None = None) -> None:
    """Receive with one call a message; ``keys``: those of a server of CURVE."""
    require()
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        if keys:
            socket.curve_server = True
            socket.curve_secretkey = keys[1].encode()
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        link.send(f"tcp://127.0.0.1:{port}")
        socket.recv(copy=copy)
        start = time.perf_counter()
        for _ in range(count - 1):
            socket.recv(copy=copy)
        link.send((count - 1) / (time.perf_counter() - start))


def send(
    link: Connection, address: str, count: int, size: int, copy: bool, keys: tuple[str, str] | None = None
) -> None:
    """Send with one call a message; ``keys``: those of a server of CURVE."""
    require()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        if keys:
            socket.curve_serverkey = keys[0].encode()
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.connect(address)
        body = b"x" * size
        for _ in range(count):
            socket.send(body, 0, copy)
        link.recv()


def receive_keyed(link: Connection, count: int, size: int) -> None:
    """Receive messages of a key and a body, with one call each."""
    require()
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        link.send(f"tcp://127.0.0.1:{port}")
        socket.recv_multipart()
        start = time.perf_counter()
        for _ in range(count - 1):
            socket.recv_multipart()
        link.send((count - 1) / (time.perf_counter() - start))


def send_keyed(link: Connection, address: str, count: int, size: int) -> None:
    """Send messages of a key and a body, each under another key, with one call each."""
    require()
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        body = b"x" * size
        for number in range(count):
            socket.send_multipart((b"order.%d" % number, body))
        link.recv()


def echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes."""
    require()
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        link.send(f"tcp://127.0.0.1:{port}")
        for _ in range(WARM + count):
            socket.send(socket.recv())


def ask(link: Connection, address: str, count: int, size: int) -> None:
    """Ask and wait for the answer."""
    require()
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(address)
        body = b"x" * size

        def there_and_back() -> None:
            socket.send(body)
            socket.recv()

        link.send(time_calls(there_and_back, count))
        socket.close(0)


def publish(link: Connection, bodies: Sequence[bytes], count: int, peers: int) -> None:
    """Publish ``bodies`` in turn; say how much processor time that took.  ``peers`` have subscribed before."""
    require()
    with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
        pub.sndhwm = 0
        pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        link.send(f"tcp://127.0.0.1:{pub.bind_to_random_port('tcp://127.0.0.1')}")
        for _ in range(peers):
            pub.recv()
        link.recv()
        start = time.process_time()
        for body in islice(cycle(bodies), count):
            pub.send(body)
        link.recv()
        link.send(time.process_time() - start)
        link.recv()


def publish_alike(link: Connection, count: int, size: int, subscribers: int) -> None:
    """Publish with one call a message, when there are so many subscribers."""
    require()
    # An XPUB, which knows of its subscribers; otherwise it is the same.
    with zmq.Context() as context, context.socket(zmq.XPUB) as pub:
        # Nothing is dropped, so what comes is known.
        pub.sndhwm = 0
        pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        link.send(f"tcp://127.0.0.1:{pub.bind_to_random_port('tcp://127.0.0.1')}")
        for _ in range(subscribers):
            pub.recv()
        body = b"x" * size
        for _ in range(count):
            pub.send(body)
        link.recv()


def subscribe(link: Connection, address: str, count: int) -> None:
    """Receive what is published, with one call a message."""
    require()
    with zmq.Context() as context, context.socket(zmq.SUB) as sub:
        sub.rcvhwm = 0
        sub.subscribe(b"")
        sub.connect(address)
        sub.recv()
        start = time.perf_counter()
        for _ in range(count - 1):
            sub.recv()
        link.send((count - 1) / (time.perf_counter() - start))


@contextmanager
def on_our_backend() -> Iterator[None]:
    """Have programs that are started in this block run on our backend for pyzmq, and not on libzmq."""
    before = os.environ.get(_BACKEND)
    os.environ[_BACKEND] = "plugins.apis.sockets.pyzmq_backend"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BACKEND]
        else:
            os.environ[_BACKEND] = before


def listen(link: Connection, peers: int = 0) -> None:
    """Listen until told to end; say the place, and then the process's memory whenever asked."""
    require()
    allow_descriptors(peers)
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, peers + 1000)
        with context.socket(zmq.PULL) as pull:
            link.send(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
            while link.recv() is not None:
                link.send(resident())
