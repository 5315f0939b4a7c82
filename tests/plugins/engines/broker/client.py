"""A client of the broker model, for tests: a receiver that keeps what it is handed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.receiver import Receiver, Window
from plugins.engines.broker.virtual_host import VirtualHost

PLENTY = 1 << 40


class Client:
    """One receiver, and short words for what tests do most."""

    def __init__(self, vhost: VirtualHost) -> None:
        self.vhost = vhost
        self.window = Window(PLENTY)
        self.cancelled: list[str] = []
        self.receiver = Receiver(
            self.window, lambda: None, lambda consumer: self.cancelled.append(consumer.tag)
        )

    def consume(
        self,
        queue: Queue,
        tag: str = "c",
        *,
        prefetch: int = 0,
        auto_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Consumer:
        consumer = Consumer(
            tag,
            queue,
            self.receiver,
            auto_ack=auto_ack,
            exclusive=exclusive,
            prefetch=prefetch,
            arguments=arguments or {},
        )
        self.vhost.subscribe(consumer, 0.0)
        return consumer

    def received(self, now: float = 0.0) -> list[tuple[int, bytes]]:
        """Process, and return (tag, body) of what came."""
        self.vhost.broker.process(now)
        return [
            (first_tag + offset, body)
            for _, first_tag, span in self.receiver.take_deliveries()
            for offset, body in enumerate(span.as_batch().bodies)
        ]

    def bodies(self, now: float = 0.0) -> list[bytes]:
        return [body for _, body in self.received(now)]


def make_vhost() -> VirtualHost:
    return Broker(clock=1_700_000_000.0).vhost("/")


def run(
    *bodies: bytes,
    key: str = "q",
    exchange: str = "",
    headers: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Batch:
    properties = {"headers": dict(headers)} if headers else {}
    return batch_of(bodies, Envelope(key=key, exchange=exchange, properties=properties, **fields))


def ready(queue: Queue, now: float = 0.0) -> list[bytes]:
    """Return what waits in a queue, in order."""
    queue.process(now)
    return [
        body for level in reversed(queue.backlog.levels) for span in level for body in span.as_batch().bodies
    ]
