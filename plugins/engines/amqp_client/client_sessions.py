"""The two sessions of a client engine: one publishes, the other consumes.

Each has a connection of its own.  A server that blocks publishers stops reading their connection.  On a
common connection it would also stop reading acknowledgements and heartbeats of the consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kernel.contracts.engine import Port
from plugins.engines.amqp_client.consumer import Consumer, Quota
from plugins.engines.amqp_client.link import Link
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.engines.amqp_client.publisher import Publisher
from plugins.engines.amqp_client.requests import all_requests, shared_requests
from plugins.engines.amqp_client.session import Session
from plugins.protocols.amqp091.connection import ClientConnection

_MOST_A_TURN = 10_000
"""Messages that are published in one turn, before other engines of the thread have theirs."""


class PublishSession(Session):
    """Publishes the messages that come on routes."""

    def __init__(
        self,
        link: Link,
        connection: ClientConnection,
        finish: Callable[[], None],
        port: Port,
        options: AmqpClientOptions,
    ) -> None:
        # If there is a consuming connection, it has declared everything, and exclusive queues belong to it.
        make = partial(all_requests, options) if not options.consume else lambda _: shared_requests(options)
        super().__init__(link, connection, finish, port, make)
        self.publisher = Publisher(self, 2, options)
        self.add([self.publisher])

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has neither confirmed nor refused."""
        return self.publisher.unconfirmed

    def pump(self) -> bool:
        """Publish messages that wait; return whether more of them wait."""
        return self.publisher.pump(_MOST_A_TURN)


class ConsumeSession(Session):
    """Sends what it consumes from queues to the routes."""

    def __init__(
        self,
        link: Link,
        connection: ClientConnection,
        finish: Callable[[], None],
        port: Port,
        options: AmqpClientOptions,
        quotas: Sequence[Quota],
    ) -> None:
        super().__init__(link, connection, finish, port, partial(all_requests, options))
        # With acknowledgements the prefetch bounds what the server sends, so the socket is always read and
        # heartbeats are answered.
        self._may_stop_reading = any(each.no_ack for each in options.consume)
        self.add(
            Consumer(
                self,
                channel,
                each.queue,
                prefetch=each.prefetch,
                no_ack=each.no_ack,
                exclusive=each.exclusive,
                arguments=each.arguments,
                quota=quota,
            )
            # Channel 1 declares.  Channel 2 is the publisher's, on the other connection.
            for channel, (each, quota) in enumerate(zip(options.consume, quotas, strict=True), 3)
            if not quota.finished
        )

    @property
    def stops_reading(self) -> bool:
        """Whether to stop reading: the only way to slow down a server that expects no acknowledgements."""
        return self._may_stop_reading and not self.inbound.going
