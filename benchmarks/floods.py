"""Floods: one process that publishes and subscribes over bare connections, and needs little time for it."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.streams import Stream

BODY = b"x" * 100


@dataclass(frozen=True)
class Job:
    """What is published, and who gets it; each protocol adds its own."""

    count: int
    """Messages."""
    subscribers: int = 1
    """0: nobody is connected, and the broker stores the messages."""
    block: int = 500
    """Messages that are written before anything is read."""
    window: int = 8
    """Blocks on their way at most."""


@dataclass(frozen=True)
class End:
    """A connection of a flood."""

    stream: Stream
    take: Callable[[], int]
    """Reads once, and answers if it has to; returns how many messages were delivered or acknowledged."""


class Flood:
    """The connections, and what is written."""

    def __init__(
        self,
        job: Job,
        blocks: Sequence[list[bytes]],
        publisher: End,
        subscribers: Sequence[End],
        confirmed: bool,
    ) -> None:
        """``blocks``: what is written for each, in turn.

        ``confirmed``: the publisher gets an answer for each message.
        """
        self._job = job
        self._blocks = blocks
        self._publisher = publisher
        self._subscribers = subscribers
        self._confirmed = confirmed

    def run(self, blocks: int) -> None:
        """Publish so many blocks, and wait until all messages are delivered and acknowledged."""
        job, publisher = self._job, self._publisher
        wanted = blocks * job.block
        by_descriptor = {each.stream.socket.fileno(): each for each in (publisher, *self._subscribers)}
        ready = select.epoll()
        for descriptor in by_descriptor:
            ready.register(descriptor, select.EPOLLIN)
        sent = 0
        acknowledged = 0 if self._confirmed else wanted
        delivered = 0 if self._subscribers else wanted
        factor = len(self._subscribers) or 1
        while delivered < wanted * factor or acknowledged < wanted:
            done = min(delivered // factor, acknowledged) // job.block
            while sent < min(blocks, done + job.window):
                for data in self._blocks[sent % len(self._blocks)]:
                    publisher.stream.socket.sendall(data)
                sent += 1
            for descriptor, _ in ready.poll():
                end = by_descriptor[descriptor]
                if end is publisher:
                    acknowledged += end.take()
                else:
                    delivered += end.take()
        ready.close()

    def measure(self, link: Connection) -> None:
        """Publish all messages when told to; send the seconds, and wait for the end."""
        self.run(1)  # whatever the first one brings along
        link.send("ready")
        link.recv()
        start = time.perf_counter()
        self.run(self._job.count // self._job.block)
        link.send(time.perf_counter() - start)
        link.recv()
