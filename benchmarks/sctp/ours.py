"""Two kernels, and an association between them."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.kernels import linked_plan
from benchmarks.processes import WARM, time_calls
from kernel.topology.system import Kernel
from plugins.engines.sctp.options import HostedSctp

PACKETS: int = HostedSctp().packet_size_max
"""Bytes of a packet at the most, as the engine has it by itself."""
BATCH_BYTES = 100_000
"""About how many bytes of messages one call sends."""


def _listening(framing: str, spin: float | None = None, **sctp: Any) -> Kernel:
    kernel = Kernel(linked_plan("listen", f"{framing}+sctp://127.0.0.1:0/0", spin=spin, sctp=sctp)).start()
    kernel.wait_running()
    return kernel


def _dialling(place: str, spin: float | None = None, **sctp: Any) -> Kernel:
    kernel = Kernel(linked_plan("dial", place, spin=spin, sctp=sctp)).start()
    kernel.wait_running()
    return kernel


def receive(link: Connection, count: int, size: int, framing: str, packet_size_max: int = PACKETS) -> None:
    """Receive all that has come in one call."""
    with _listening(framing, packet_size_max=packet_size_max) as kernel:
        receive_many = kernel.open("app").receive_many
        link.send(f"{framing}+sctp://{kernel.address_of('link')}")
        first = received = len(receive_many())
        start = time.perf_counter()
        while received < count:
            received += len(receive_many())
        link.send((received - first) / (time.perf_counter() - start))
        link.recv()


def send(
    link: Connection, place: str, count: int, size: int, framing: str, packet_size_max: int = PACKETS
) -> None:
    """Send batches of messages."""
    with _dialling(place, packet_size_max=packet_size_max) as kernel:
        send_many = kernel.open("app").send_many
        bodies = [b"x" * size] * max(BATCH_BYTES // size, 1)
        left = count
        while left > 0:
            send_many(bodies[:left])
            left -= len(bodies)
        link.recv()


def echo(link: Connection, count: int, size: int, framing: str, spin: float | None = None) -> None:
    """Send back what comes."""
    with _listening(framing, spin) as kernel:
        app = kernel.open("app")
        link.send(f"{framing}+sctp://{kernel.address_of('link')}")
        for _ in range(WARM + count):
            app.send(app.receive())
        link.recv()


def ask(link: Connection, place: str, count: int, size: int, framing: str, spin: float | None = None) -> None:
    """Send and wait for the answer."""
    with _dialling(place, spin) as kernel:
        app = kernel.open("app")
        body = b"x" * size

        def there_and_back() -> None:
            app.send(body)
            app.receive()

        link.send(time_calls(there_and_back, count))
        link.recv()
