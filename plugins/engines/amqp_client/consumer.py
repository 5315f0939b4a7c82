"""Consumer: one subscription to a queue of the server, on a channel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class Subscription(msgspec.Struct, gc=False):
    """One life of a consumer's channel: its delivery tags mean nothing on the next."""

    channel: int
    no_ack: bool
    alive: bool = True


class Consumer(Role):
    """Consumes from one queue."""

    def __init__(
        self,
        session: Session,
        channel: int,
        queue: str,
        *,
        prefetch: int,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any],
    ) -> None:
        """``queue``: its name; empty for the one that the server has named."""
        super().__init__(session, channel, f"consuming from {queue!r}")
        self._queue = queue
        self._prefetch = prefetch
        self._exclusive = exclusive
        self._arguments = arguments
        self.subscription = Subscription(channel, no_ack)

    @property
    def tag(self) -> str:
        """Shown by the server's tools; told apart by the channel."""
        return self.session.link.name[:200]

    def opened(self) -> None:
        """Ask for the queue's messages."""
        no_ack = self.subscription.no_ack
        if not no_ack:
            self.send(basic.Qos(prefetch_count=self._prefetch))
        self.send(
            basic.Consume(
                queue=self._queue or self.session.declarations.server_named,
                consumer_tag=self.tag,
                no_ack=no_ack,
                exclusive=self._exclusive,
                arguments=self._arguments,
            )
        )

    def received(self, method: Method) -> None:
        """The server begins, or will deliver no more: the queue is gone, or has moved."""
        if isinstance(method, basic.ConsumeOk):
            self.up = True
            self.refusal = ""
        elif isinstance(method, basic.Cancel):
            self.up = False
            self._gone()
            if not method.nowait:
                self.send(basic.CancelOk(consumer_tag=method.consumer_tag))
            self.session.start_later(self, "cancelled", f"{self.name}: the server has cancelled it")

    def delivered(self, event: Delivered) -> None:
        """Messages have come."""
        self.works()
        last = event.first_delivery_tag + len(event.run.bodies) - 1
        self.session.intake.arrived(self.subscription, last, event.run)

    def refused(self, code: int) -> None:
        """The queue may be gone."""
        if code == ReplyCode.NOT_FOUND:
            self._gone()

    def _gone(self) -> None:
        if not self._queue:
            self.session.declarations.server_named = ""

    def lost(self) -> None:
        """What is not acknowledged will be delivered again."""
        super().lost()
        self.subscription.alive = False
        self.subscription = Subscription(self.channel, self.subscription.no_ack)
