"""Floods: one process that publishes and subscribes over bare connections, and needs little time for it.

All messages have the same size.  So deliveries of QoS 0 are counted by their bytes, and packet identifiers of
QoS 1 and 2 are cut out at equal distances and written into the answers in the same way.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.mqtt.bare import READ_BYTES, BareClient, publish

BODY = b"x" * 100
_PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 3, 0x40, 0x50, 0x62, 0x70
_ANSWER_SIZE = 4
_MOST_IN_RUN = 4096


@dataclass(frozen=True)
class Job:
    """What is published, and who gets it."""

    qos: int
    count: int
    """Messages."""
    subscribers: int = 1
    """0: the session of a client that is not connected."""
    topics: int = 1
    """In turn; with more than one the subscriber has a wildcard."""
    block: int = 500
    """Messages that are written before anything is read."""
    at_once: bool = True
    """Whether a block is one write; otherwise each message is one."""
    window: int = 8
    """Blocks on their way at most."""


def flood(link: Connection, address: str, job: Job) -> None:
    """Publish all messages, and wait until all are delivered and acknowledged; send the seconds."""
    course = _Course(address, job)
    course.run(1)  # whatever the first one brings along
    link.send("ready")
    link.recv()
    start = time.perf_counter()
    course.run(job.count // job.block)
    link.send(time.perf_counter() - start)
    link.recv()


class _Course:
    """The connections, and how far they are."""

    def __init__(self, address: str, job: Job) -> None:
        self._job = job
        self._blocks = [_block(job, at) for at in range(max(job.window, job.topics // job.block))]
        name = _topic(job, 0)
        topic_filter = "flood/#" if job.topics > 1 else name
        size = len(publish(name, BODY, job.qos, range(1, 2)))
        self._subscribers = []
        for at in range(job.subscribers):
            client = BareClient(address, f"subscriber-{at}")
            client.subscribe(topic_filter, job.qos)
            self._subscribers.append(_Packets(client, size, len(name)))
        if not job.subscribers:
            sleeper = BareClient(address, "sleeper", clean=False)
            sleeper.subscribe(topic_filter, job.qos)
            sleeper.close()
        self._publisher = _Packets(BareClient(address, "publisher"), size, len(name))

    def run(self, blocks: int) -> None:
        """Publish so many blocks."""
        job, publisher = self._job, self._publisher
        wanted = blocks * job.block
        by_descriptor = {each.client.socket.fileno(): each for each in (publisher, *self._subscribers)}
        ready = select.epoll()
        for descriptor in by_descriptor:
            ready.register(descriptor, select.EPOLLIN)
        delivered = acknowledged = sent = 0
        if not job.qos:
            acknowledged = wanted
        if not self._subscribers:
            delivered = wanted
        factor = len(self._subscribers) or 1
        while delivered < wanted * factor or acknowledged < wanted:
            done = min(delivered // factor, acknowledged) // job.block
            while sent < min(blocks, done + job.window):
                for data in self._blocks[sent % len(self._blocks)]:
                    publisher.client.socket.sendall(data)
                sent += 1
            for descriptor, _ in ready.poll():
                packets = by_descriptor[descriptor]
                if packets is publisher:
                    acknowledged += packets.take_answers()
                elif job.qos:
                    delivered += packets.take_messages()
                else:
                    delivered += packets.count_messages()
        ready.close()


class _Packets:
    """What one connection receives: messages of one size, and answers."""

    def __init__(self, client: BareClient, size: int, topic_size: int) -> None:
        self.client = client
        self._size = size
        self._id_offset = 2 + 2 + topic_size
        self._rest = b""
        self._room = bytearray(READ_BYTES)
        self._bytes = 0

    def count_messages(self) -> int:
        """Read once; return how many messages have come without looking at them."""
        read = self.client.socket.recv_into(self._room)
        if not read:
            raise EOFError("the broker hung up")
        messages, self._bytes = divmod(self._bytes + read, self._size)
        return messages

    def take_messages(self) -> int:
        """Read once, answer, and return how many messages have come."""
        count = 0
        for first, ids in self._runs():
            if first == _PUBREL:
                self._answer(_PUBCOMP, ids)
            else:
                self._answer(_PUBACK if first & 6 == 2 else _PUBREC, ids)
                count += len(ids) // 2
        return count

    def take_answers(self) -> int:
        """Read once, answer, and return how many messages are acknowledged."""
        count = 0
        for first, ids in self._runs():
            if first == _PUBREC:
                self._answer(_PUBREL, ids)
            else:
                count += len(ids) // 2
        return count

    def _answer(self, first: int, ids: bytes) -> None:
        data = bytearray(bytes((first, 2, 0, 0)) * (len(ids) // 2))
        data[2::4], data[3::4] = ids[0::2], ids[1::2]
        self.client.socket.sendall(data)

    def _runs(self) -> Iterator[tuple[int, bytes]]:
        """Read once; yield the first byte and the packet identifiers of consecutive packets of one kind."""
        read = self.client.socket.recv(READ_BYTES)
        if not read:
            raise EOFError("the broker hung up")
        data = self._rest + read
        position = 0
        while position < len(data):
            first = data[position]
            is_message = first >> 4 == _PUBLISH
            size, offset = (self._size, self._id_offset) if is_message else (_ANSWER_SIZE, 2)
            whole = min((len(data) - position) // size, _MOST_IN_RUN)
            # The packet behind a run begins at the same distance, with another byte.
            column = data[position : position + whole * size : size]
            count = len(column) - len(column.lstrip(column[:1]))
            if not count:
                break
            end = position + count * size
            ids = bytearray(2 * count)
            ids[0::2] = data[position + offset : end : size]
            ids[1::2] = data[position + offset + 1 : end : size]
            yield first, bytes(ids)
            position = end
        self._rest = data[position:]


def _block(job: Job, number: int) -> list[bytes]:
    """Return what is written for a block; packet identifiers differ from block to block."""
    first = number * job.block
    if job.topics == 1 and job.at_once:
        return [publish(_topic(job, 0), BODY, job.qos, range(first + 1, first + job.block + 1))]
    data = [
        publish(_topic(job, at % job.topics), BODY, job.qos, range(at + 1, at + 2))
        for at in range(first, first + job.block)
    ]
    return [b"".join(data)] if job.at_once else data


def _topic(job: Job, number: int) -> str:
    return "flood" if job.topics == 1 else f"flood/{number:06}"
