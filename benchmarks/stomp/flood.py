"""Floods of STOMP messages.

No body has a NUL.  So frames are counted by their ends, and what an ACK has to name is cut out of a read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks import floods
from benchmarks.floods import BODY, End, Flood
from benchmarks.stomp.bare import BareClient, send

_NUL = b"\0"
_ERROR = b"ERROR\n"
_ACK_HEADER = re.compile(rb"\nack:([^\n]*)")


@dataclass(frozen=True)
class Job(floods.Job):
    """With no subscribers, a durable queue gets the messages, which are read when all is measured."""

    ack: str = "auto"
    """How the subscriber acknowledges."""
    prefetch: int = 0
    """Messages that it may have unacknowledged; 0: any number."""
    receipts: bool = False
    """Whether each message is persistent, and the publisher gets a receipt for it."""


def flood(link: Connection, address: str, job: Job) -> None:
    """Publish all messages, and wait until all are delivered or have their receipts; send the seconds."""
    # The broker may have been used before, and what a failed run has left must not be counted.
    destination = f"/queue/flood-{os.getpid()}"
    subscribers = []
    for _ in range(job.subscribers):
        client = BareClient(address)
        client.subscribe(destination, job.ack, job.prefetch)
        subscribers.append(_end(client, acknowledges=job.ack != "auto"))
    publisher = _end(BareClient(address), acknowledges=False)
    block = b"".join(send(destination, BODY, _headers(job, number)) for number in range(job.block))
    Flood(job, [[block]], publisher, subscribers, confirmed=job.receipts).measure(link)
    if not job.subscribers:
        _drain(address, destination, (job.count // job.block + 1) * job.block)


def _headers(job: Job, number: int) -> dict[str, str]:
    return {"persistent": "true", "receipt": str(number)} if job.receipts else {}


def _end(client: BareClient, *, acknowledges: bool) -> End:
    frames = _Frames(client)
    return End(client, frames.acknowledge if acknowledges else frames.count)


def _drain(address: str, destination: str, count: int) -> None:
    """Read so many messages out of a queue: a broker that goes on would keep them."""
    client = BareClient(address)
    client.subscribe(destination, "client-individual", prefetch=1000, empty=False)
    frames = _Frames(client)
    while count > 0:
        count -= frames.acknowledge()
    client.close()


class _Frames:
    """What one connection receives."""

    def __init__(self, client: BareClient) -> None:
        self._client = client
        self._rest = b""

    def count(self) -> int:
        """Read once; return how many frames have ended, without looking at them."""
        read = self._client.read_into_room()
        room = self._client.room
        if room.find(_ERROR, 0, read) >= 0:
            raise ConnectionError(f"the broker has sent {bytes(room[:read])!r}")
        return room.count(_NUL, 0, read)

    def acknowledge(self) -> int:
        """Read once, acknowledge each message, and return how many have come."""
        data = self._rest + self._client.read()
        end = data.rfind(_NUL) + 1
        self._rest = data[end:]
        names = _ACK_HEADER.findall(data, 0, end)
        if names:
            acks = b"\n\n\0ACK\nid:".join(names)
            self._client.socket.sendall(b"ACK\nid:%b\n\n\0" % acks)
        elif _ERROR in data:
            raise ConnectionError(f"the broker has sent {data!r}")
        return len(names)
