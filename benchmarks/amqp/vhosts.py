"""A publisher of one of several virtual hosts, in a process of its own: it writes blocks that were encoded before."""

from __future__ import annotations

import random
import time
from multiprocessing.connection import Connection

from benchmarks.amqp.bare import BareClient
from plugins.protocols.amqp091.methods import queue

BLOCK = 1000
"""Messages that are written at once."""
_SIZES = (60, 139)
"""Octets of the smallest and the largest body, where they differ."""


def publish(link: Connection, address: str, vhost: str, mixed: bool, blocks: int) -> None:
    """Publish so many blocks when told to; say when the first was written, and when the broker had taken the last.

    ``mixed``: each message of a block has a key and a size of its own.
    """
    client = BareClient(address, vhost)
    if mixed:
        sizes = random.Random(1)
        bodies = [b"x" * sizes.randint(*_SIZES) for _ in range(BLOCK)]
        block = b"".join(client.encoded([body], f"k.{at}", "amq.topic") for at, body in enumerate(bodies))
    else:
        block = client.encoded([b"x" * 100] * BLOCK, "k", "amq.topic")
    link.send("ready")
    link.recv()
    began = time.monotonic()
    for _ in range(blocks):
        client.socket.sendall(block)
    # It is answered after all that was published before.
    client.call(queue.Declare(queue="a", passive=True), queue.DeclareOk)
    link.send((began, time.monotonic()))
    link.recv()
    client.socket.close()
