"""A client on a broker: messages from a publisher's process through the broker's to a consumer's."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.amqp.brokers import Broker
from benchmarks.amqp.work import BATCH, Work
from benchmarks.processes import Child, Role
from benchmarks.scenario import Figures

_queues = itertools.count(1)


@dataclass(frozen=True)
class Client:
    """A client library: the roles that publish and consume with it."""

    name: str
    publish: Role
    consume: Role


StartBroker = Callable[[], AbstractContextManager[Broker]]


def shared(node: Callable[[], Broker]) -> StartBroker:
    """A broker that is there already, and stays."""
    return lambda: nullcontext(node())


def through(start: StartBroker, client: Client, work: Work, scale: float) -> Figures:
    """Send messages through a queue of their own; return what the consumer saw, and how busy everybody was.

    ``rate``: messages a second.  ``publisher``, ``consumer``: the share of a core that they used meanwhile;
    ``broker``: microseconds of its processor time a message.
    """
    count = max(int(work.count * scale) // BATCH, 2) * BATCH
    work = replace(work, queue=f"{work.queue}-{os.getpid()}-{next(_queues)}", count=count)
    with (
        start() as broker,
        Child(client.consume, broker.address, work) as consumer,
        Child(client.publish, broker.address, work) as publisher,
    ):
        consumer.hear(publisher)
        before = broker.processor_seconds()
        publisher.say("go")
        rate, consuming = consumer.hear(publisher)
        publishing = publisher.hear(consumer)
        used = broker.processor_seconds() - before
        figures: dict[str, Any] = {"rate": rate, "publisher": publishing, "consumer": consuming}
        return {**figures, "broker": used / count * 1e6}
