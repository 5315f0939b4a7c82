"""``kernel.sockets``, used as ``pyzmq_sockets.py`` uses pyzmq: PUSH/PULL one way, REQ/REP there and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.kernels import BATCH
from benchmarks.processes import WARM, allow_descriptors, resident, time_calls
from kernel.sockets import Context


class Keys(NamedTuple):
    """Options of both sides of CURVE."""

    server: dict[str, Any]
    client: dict[str, Any]


def keys_of(public: str, secret: str) -> Keys:
    """Return what both sides need for a server with these keys, which lets everybody in."""
    return Keys(
        {"mechanism": "CURVE", "curve_secret_key": secret, "curve_clients": {"everybody": "*"}},
        {"mechanism": "CURVE", "curve_server_key": public},
    )


def receive(link: Connection, count: int, size: int, keys: Keys | None = None) -> None:
    """Receive with one call a message; ``keys``: the server of CURVE."""
    with Context() as context:
        pull = context.socket("PULL", engine=keys.server if keys else {})
        link.send(pull.bind("tcp://127.0.0.1:0"))
        recv = pull.recv
        recv()
        start = time.perf_counter()
        for _ in range(count - 1):
            recv()
        link.send((count - 1) / (time.perf_counter() - start))


def send(link: Connection, address: str, count: int, size: int, keys: Keys | None = None) -> None:
    """Send with one call a message; ``keys``: a client of CURVE."""
    with Context() as context:
        push = context.socket("PUSH", engine=keys.client if keys else {})
        push.connect(address)
        send = push.send
        body = b"x" * size
        for _ in range(count):
            send(body)
        link.recv()


def receive_many(link: Connection, count: int, size: int) -> None:
    """Receive what has come in one call."""
    with Context() as context:
        pull = context.socket("PULL", rcvhwm=32 * BATCH)
        link.send(pull.bind("tcp://127.0.0.1:0"))
        first = received = len(pull.recv_many())
        start = time.perf_counter()
        while received < count:
            received += len(pull.recv_many())
        link.send((received - first) / (time.perf_counter() - start))


def send_many(link: Connection, address: str, count: int, size: int) -> None:
    """Send a batch in one call."""
    with Context() as context:
        push = context.socket("PUSH", sndhwm=32 * BATCH)
        push.connect(address)
        body = b"x" * size
        for _ in range(count // BATCH):
            push.send_many([body] * BATCH)
        link.recv()


def echo(link: Connection, count: int, size: int, spin: float | None = None) -> None:
    """Send back what comes."""
    with Context(spin=spin) as context:
        rep = context.socket("REP")
        link.send(rep.bind("tcp://127.0.0.1:0"))
        for _ in range(WARM + count):
            rep.send(rep.recv())


def ask(link: Connection, address: str, count: int, size: int, spin: float | None = None) -> None:
    """Ask and wait for the answer."""
    with Context(spin=spin) as context:
        req = context.socket("REQ")
        req.connect(address)
        body = b"x" * size

        def there_and_back() -> None:
            req.send(body)
            req.recv()

        link.send(time_calls(there_and_back, count))


def publish(link: Connection, bodies: Sequence[bytes], count: int, peers: int) -> None:
    """Publish ``bodies`` in turn, in batches; say how much processor time that took.

    ``peers`` have subscribed before, each in the order of the bodies.
    """
    with Context() as context:
        # Without a limit: nothing is dropped, so what is delivered is known.
        pub = context.socket("PUB", sndhwm=0)
        link.send(pub.bind("tcp://127.0.0.1:0"))
        pub.wait_for_subscribers(peers)
        pub.wait_for_subscribers(topic=bodies[-1])
        batch = list(islice(cycle(bodies), BATCH))
        link.recv()
        start = time.process_time()
        for _ in range(count // BATCH):
            pub.send_many(batch)
        link.recv()
        link.send(time.process_time() - start)
        link.recv()


def listen(link: Connection, peers: int = 0) -> None:
    """Listen until told to end; say the place, and then the process's memory whenever asked."""
    allow_descriptors(peers)
    with Context() as context:
        pull = context.socket("PULL", engine={"max_connections": peers + 1000})
        link.send(pull.bind("tcp://127.0.0.1:0"))
        while link.recv() is not None:
            link.send(resident())
