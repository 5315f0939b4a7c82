"""Floods: one process that publishes and consumes over bare connections, and needs very little time for it.

Deliveries are counted by their bytes: all bodies have the same size, and all consumer tags too, so that all
deliveries have the same size.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.amqp.bare import BareClient
from plugins.protocols.amqp091.methods import exchange, queue

BODY = b"x" * 100
BLOCK = 500
"""Messages that a connection writes at once, before it waits for all of them to come back."""
IN_FLIGHT = 8 * BLOCK
"""Messages under way at the least, however few connections share them."""


@dataclass(frozen=True)
class Exchange:
    """An exchange, what is bound to it, and what is published to it in a block."""

    kind: str
    bindings: tuple[tuple[str, str], ...]
    """Queue and key; each queue has a consumer."""
    keys: tuple[str, ...]
    """One message under each."""
    deliveries: int
    """How many come of one block."""


def one_exchange(link: Connection, address: str, flow: Exchange, count: int) -> None:
    """Publish until ``count`` messages have been delivered, a block at a time; say how many that were."""
    client = BareClient(address)
    client.call(exchange.Declare(exchange="flood", type=flow.kind), exchange.DeclareOk)
    for at, name in enumerate(dict.fromkeys(name for name, _ in flow.bindings)):
        client.call(queue.Declare(queue=name, auto_delete=True), queue.DeclareOk)
        client.consume(name, f"{at:06}")
    for name, key in flow.bindings:
        client.call(queue.Bind(queue=name, exchange="flood", routing_key=key), queue.BindOk)
    block = b"".join(client.encoded([BODY], key, "flood") for key in flow.keys)
    size = client.measure_deliveries(block, flow.deliveries)
    link.send("ready")
    link.recv()
    blocks = max(count // flow.deliveries, 1)
    for _ in range(blocks):
        client.socket.sendall(block)
        _read(client, size)
    link.send(blocks * flow.deliveries)
    link.recv()


@dataclass(frozen=True)
class Feed:
    """A feed through a topic exchange in which no key comes twice."""

    bindings: tuple[str, ...]
    """The keys with which its one queue is bound: each message matches one of them."""
    key: str
    """What a key is: ``at`` is the number of the message, ``binding`` that number modulo the number of bindings."""
    least: int
    """Octets of the smallest body."""
    most: int
    """Octets of the largest one."""


def new_keys(link: Connection, address: str, feed: Feed, count: int) -> None:
    """Publish messages under a new key each until ``count`` have come back, a block at a time; say how many."""
    client = BareClient(address)
    client.call(exchange.Declare(exchange="feed", type="topic"), exchange.DeclareOk)
    client.call(queue.Declare(queue="feed", exclusive=True), queue.DeclareOk)
    client.consume("feed")
    for key in feed.bindings:
        client.call(queue.Bind(queue="feed", exchange="feed", routing_key=key), queue.BindOk)
    blocks = []
    # The first block is for the sizes of what comes back, which depend on those of keys and bodies only.
    for start in range(0, max(count, BLOCK) + BLOCK, BLOCK):
        keys = [feed.key.format(at=at, binding=at % len(feed.bindings)) for at in range(start, start + BLOCK)]
        sizes = [feed.least + at * 37 % (feed.most - feed.least + 1) for at in range(start, start + BLOCK)]
        block = b"".join(
            client.encoded([b"x" * size], key, "feed") for key, size in zip(keys, sizes, strict=True)
        )
        blocks.append((block, sum(map(len, keys)) + sum(sizes)))
    first, varying = blocks.pop(0)
    fixed = client.measure_deliveries(first, BLOCK) - varying
    link.send("ready")
    link.recv()
    for block, varying in blocks:
        client.socket.sendall(block)
        _read(client, fixed + varying)
    link.send(len(blocks) * BLOCK)
    link.recv()


def many_connections(link: Connection, address: str, connections: int, count: int) -> None:
    """Divide a load among connections, each with a queue to publish to and consume from; send the rate."""
    floods = [_Flood(BareClient(address), f"flood-{at:06}") for at in range(connections)]
    each = max(IN_FLIGHT // BLOCK // connections, 1)
    link.send("ready")
    link.recv()
    ready = select.epoll()
    by_descriptor = {flood.fileno: flood for flood in floods}
    for flood in floods:
        ready.register(flood.fileno, select.EPOLLIN)
    blocks = max(count // BLOCK, connections * each)
    to_send = blocks
    start = time.perf_counter()
    for _ in range(each):
        for flood in floods:
            flood.publish()
            to_send -= 1
    left = blocks
    while left:
        for descriptor, _ in ready.poll():
            flood = by_descriptor[descriptor]
            for _ in range(flood.receive()):
                left -= 1
                if to_send:
                    to_send -= 1
                    flood.publish()
    link.send(blocks * BLOCK / (time.perf_counter() - start))
    link.recv()


class _Flood:
    """One connection's share."""

    def __init__(self, client: BareClient, name: str) -> None:
        client.call(queue.Declare(queue=name, exclusive=True), queue.DeclareOk)
        client.consume(name, "000000")
        self._client = client
        self._block = client.encoded([BODY] * BLOCK, name)
        self._size = client.measure_deliveries(self._block, BLOCK)
        self._received = 0
        self.fileno = client.socket.fileno()

    def publish(self) -> None:
        """Write a block."""
        self._client.socket.sendall(self._block)

    def receive(self) -> int:
        """Read once; return how many blocks have come back with it."""
        self._received += self._client.count()
        blocks, self._received = divmod(self._received, self._size)
        return blocks


def _read(client: BareClient, size: int) -> None:
    while size:
        size -= client.count()
