"""The client engine's two sessions: one publishes, the other consumes.

Each has a connection of its own where both are used: a server that blocks a publisher stops reading its connection,
and with it the acknowledgements and heartbeats of whatever else it carried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kernel.contracts.engine import Port
from plugins.engines.amqp_client.consumer import Consumer
from plugins.engines.amqp_client.link import Link
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.engines.amqp_client.publisher import Publisher
from plugins.engines.amqp_client.quota import Quota
from plugins.engines.amqp_client.requests import all_requests, shared_requests
from plugins.engines.amqp_client.session import Session
from plugins.protocols.amqp091.connection import ClientConnection

_MOST_A_TURN = 10_000
"""Messages published before others have their turn."""


class PublishSession(Session):
    """Publishes what the routes bring."""

    def __init__(
        self,
        link: Link,
        connection: ClientConnection,
        finish: Callable[[], None],
        port: Port,
        options: AmqpClientOptions,
    ) -> None:
        # Where there is a consuming connection, it has declared what is exclusive to it.
        make = partial(all_requests, options) if not options.consume else lambda _: shared_requests(options)
        super().__init__(link, connection, finish, port, make)
        self.publisher = Publisher(self, 2, options)
        self.add([self.publisher])

    @property
    def unconfirmed(self) -> int:
        """Messages that the server has not answered for."""
        return self.publisher.unconfirmed

    def pump(self) -> bool:
        """Publish what there is; return whether there is more."""
        return self.publisher.pump(_MOST_A_TURN)


class ConsumeSession(Session):
    """Hands on what comes from queues."""

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
        self._reads_no_further = any(each.no_ack for each in options.consume)
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
            for channel, (each, quota) in enumerate(zip(options.consume, quotas, strict=True), 3)
            if not quota.finished
        )

    @property
    def holds_back(self) -> bool:
        """Whether to stop reading: there is no other way to hold back a consumer that does not acknowledge."""
        return self._reads_no_further and not self.intake.going
