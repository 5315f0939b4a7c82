"""Workers: many consumers of one queue, each of which gets one message at a time and acknowledges it.

One process plays all of them, with very little time for each: deliveries are counted by their bytes, since all
bodies and all consumer tags have the same size.
"""

from __future__ import annotations

import select
import threading
import time
from multiprocessing.connection import Connection
from struct import Struct

from benchmarks.amqp.bare import CHANNEL, BareClient
from plugins.protocols.amqp091.frames import METHOD
from plugins.protocols.amqp091.methods import basic, queue

BODY = b"x" * 100
BLOCK = 100
_ACK = Struct(">BHIHHQBB")
"""A whole frame with basic.ack, of one message."""
_END = 0xCE
"""The octet at the end of a frame."""


def drain(link: Connection, address: str, workers: int, count: int) -> None:
    """Publish ``count`` messages to one queue and have the workers take them; send the messages a second."""
    publisher = BareClient(address)
    name = publisher.call(queue.Declare(exclusive=False, auto_delete=True), queue.DeclareOk).queue
    crew = [_Worker(BareClient(address), name, f"{at:06}") for at in range(workers)]
    by_descriptor = {worker.fileno: worker for worker in crew}
    # One message for each worker says how large a delivery is, and that all of them are there.
    ready = select.epoll()
    for worker in crew:
        ready.register(worker.fileno, select.EPOLLIN)
    publisher.socket.sendall(publisher.encoded([BODY] * workers, name))
    waiting = set(by_descriptor)
    while waiting:
        for descriptor, _ in ready.poll():
            if descriptor in waiting and by_descriptor[descriptor].measure():
                waiting.discard(descriptor)
    link.send("ready")
    link.recv()
    block = publisher.encoded([BODY] * BLOCK, name)
    blocks = max(count // BLOCK, 1)

    def publish() -> None:
        for _ in range(blocks):
            publisher.socket.sendall(block)

    publishing = threading.Thread(target=publish)
    left = blocks * BLOCK
    start = time.perf_counter()
    publishing.start()
    while left > 0:
        for descriptor, _ in ready.poll():
            left -= by_descriptor[descriptor].work()
    took = time.perf_counter() - start
    publishing.join()
    link.send(blocks * BLOCK / took)
    link.recv()


class _Worker:
    """One connection with one consumer."""

    def __init__(self, client: BareClient, name: str, tag: str) -> None:
        client.call(basic.Qos(prefetch_count=1), basic.QosOk)
        client.call(basic.Consume(queue=name, consumer_tag=tag), basic.ConsumeOk)
        self._client = client
        self._size = 0
        self._received = 0
        self._done = 0
        self.fileno = client.socket.fileno()

    def measure(self) -> bool:
        """Read the first delivery and acknowledge it; whether it was whole."""
        self._size += self._client.count()
        # Method, header and body; the body's frame is the last.
        whole = self._size > len(BODY)
        if whole:
            self._acknowledge()
        return whole

    def work(self) -> int:
        """Read once; acknowledge what has come whole, and return how many messages that were."""
        self._received += self._client.count()
        messages, self._received = divmod(self._received, self._size)
        for _ in range(messages):
            self._acknowledge()
        return messages

    def _acknowledge(self) -> None:
        self._done += 1
        frame = _ACK.pack(METHOD, CHANNEL, 13, 60, 80, self._done, 0, _END)
        self._client.socket.sendall(frame)
