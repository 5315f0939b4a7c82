"""Floods of MQTT messages.

All messages have the same size.  So deliveries of QoS 0 are counted by their bytes, and packet identifiers of
QoS 1 and 2 are cut out at equal distances and written into the answers in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks import floods
from benchmarks.floods import BODY, End, Flood
from benchmarks.mqtt.bare import BareClient, publish

_PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 3, 0x40, 0x50, 0x62, 0x70
_ANSWER_SIZE = 4
_MOST_IN_RUN = 4096


@dataclass(frozen=True)
class Job(floods.Job):
    """With no subscribers, the session of a client that is not connected gets the messages."""

    qos: int = 0
    topics: int = 1
    """In turn; with more than one the subscriber has a wildcard."""
    at_once: bool = True
    """Whether a block is one write; otherwise each message is one."""


def flood(link: Connection, address: str, job: Job) -> None:
    """Publish all messages, and wait until all are delivered and acknowledged; send the seconds."""
    blocks = [_block(job, at) for at in range(max(job.window, job.topics // job.block))]
    name = _topic(job, 0)
    topic_filter = "flood/#" if job.topics > 1 else name
    size = len(publish(name, BODY, job.qos, range(1, 2)))
    subscribers = []
    for at in range(job.subscribers):
        client = BareClient(address, f"subscriber-{at}")
        client.subscribe(topic_filter, job.qos)
        packets = _Packets(client, size, len(name))
        subscribers.append(End(client, packets.take_messages if job.qos else packets.count_messages))
    if not job.subscribers:
        sleeper = BareClient(address, "sleeper", clean=False)
        sleeper.subscribe(topic_filter, job.qos)
        sleeper.close()
    client = BareClient(address, "publisher")
    publisher = End(client, _Packets(client, size, len(name)).take_answers)
    Flood(job, blocks, publisher, subscribers, confirmed=job.qos > 0).measure(link)


class _Packets:
    """What one connection receives: messages of one size, and answers."""

    def __init__(self, client: BareClient, size: int, topic_size: int) -> None:
        self._client = client
        self._size = size
        self._id_offset = 2 + 2 + topic_size
        self._rest = b""
        self._bytes = 0

    def count_messages(self) -> int:
        """Read once; return how many messages have come without looking at them."""
        messages, self._bytes = divmod(self._bytes + self._client.read_into_room(), self._size)
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
        self._client.socket.sendall(data)

    def _runs(self) -> Iterator[tuple[int, bytes]]:
        """Read once; yield the first byte and the packet identifiers of consecutive packets of one kind."""
        data = self._rest + self._client.read()
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
