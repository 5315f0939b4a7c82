"""Paced messages: a few, at fixed times, through a broker that carries a bulk stream besides.

A latency counts from the time at which the message was due: a client that is late because the broker takes its
processor does not make the figure better.  But a virtual machine sometimes wakes a client milliseconds late where
nothing else runs (``wait_alone``).  So there is the time since the message was written as well.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from multiprocessing.connection import Connection
from struct import Struct

from benchmarks.amqp.bare import BareClient
from plugins.protocols.amqp091.methods import queue

BULK_BLOCK = 200
BODY_BYTES = 100
_NUMBER = Struct(">Q")


def bulk(link: Connection, address: str, rate: float) -> None:
    """Publish and consume ``rate`` messages a second, a block at a time, until told to end."""
    client = BareClient(address)
    name = client.call(queue.Declare(exclusive=True), queue.DeclareOk).queue
    client.consume(name)
    block = client.encoded([b"x" * BODY_BYTES] * BULK_BLOCK, name)
    size = client.measure_deliveries(block, BULK_BLOCK)
    ended = threading.Event()

    def publish() -> None:
        due = time.perf_counter()
        while not ended.is_set():
            client.socket.sendall(block)
            due += BULK_BLOCK / rate
            time.sleep(max(due - time.perf_counter(), 0.0))

    publishing = threading.Thread(target=publish)
    link.send("ready")
    link.recv()
    start = time.perf_counter()
    publishing.start()
    received = 0
    while not link.poll():
        if select.select([client.socket], [], [], 0.1)[0]:
            received += client.count()
    took = time.perf_counter() - start
    ended.set()
    publishing.join()
    link.recv()
    link.send(received / size * BULK_BLOCK / took)
    link.recv()


def pace(link: Connection, address: str, rate: float, count: int) -> None:
    """Publish ``count`` messages, ``rate`` a second.

    Send two lists of the nanoseconds that each took until it was delivered: since it was due, and since it was written.
    """
    client = BareClient(address)
    name = client.call(queue.Declare(exclusive=True), queue.DeclareOk).queue
    client.consume(name)
    marker = b"\xde\xad\xbe\xef" * 2
    body = marker + _NUMBER.pack(0) + b"x" * (BODY_BYTES - 16)
    message = bytearray(client.encoded([body], name))
    at = message.index(marker) + len(marker)
    size = client.measure_deliveries(bytes(message), 1)
    link.send("ready")
    link.recv()
    period = int(1e9 / rate)
    clock = time.perf_counter_ns
    since_due: list[int] = []
    since_written: list[int] = []
    written: deque[int] = deque()
    pending = bytearray()
    start = clock()
    sent = 0
    sock = client.socket
    sock.setblocking(False)
    while len(since_due) < count:
        now = clock()
        due = min((now - start) // period + 1, count)
        while sent < due:
            _NUMBER.pack_into(message, at, start + sent * period)
            written.append(clock())
            sock.send(message)
            sent += 1
        wait = max(start + sent * period - clock(), 0) / 1e9 if sent < count else 1.0
        # ``select`` rounds to microseconds, and ``epoll`` to milliseconds.  Without waiting, this client would take one of
        # two processors for itself.
        if select.select([sock], [], [], wait)[0]:
            pending += sock.recv(1 << 16)
            now = clock()
            while len(pending) >= size:
                found = pending.index(marker) + len(marker)
                since_due.append(now - _NUMBER.unpack_from(pending, found)[0])
                since_written.append(now - written.popleft())
                del pending[:size]
    link.send((since_due, since_written))
    link.recv()


def wait_alone(link: Connection, rate: float, count: int) -> None:
    """Wait as ``pace`` does, without a broker; send how many nanoseconds late each wait ended."""
    period = int(1e9 / rate)
    clock = time.perf_counter_ns
    late: list[int] = []
    start = clock()
    for number in range(count):
        due = start + number * period
        select.select([], [], [], max(due - clock(), 0) / 1e9)
        late.append(clock() - due)
    link.send(late)
    link.recv()
