"""Consumer: one subscription to a queue of the server, on a channel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.message import Batch
from plugins.engines.amqp_client.quota import Quota
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods import queue as method_queue
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
        quota: Quota | None = None,
    ) -> None:
        """``queue``: its name; empty for the one that the server has named."""
        super().__init__(session, channel, f"consuming from {queue!r}")
        self._queue = queue
        self._prefetch = prefetch
        self._exclusive = exclusive
        self._arguments = arguments
        self._quota = quota or Quota()
        self._done_before = self._quota.acknowledged
        """Of the quota, before this life of the channel."""
        self._handed_on = 0
        """In this life of the channel."""
        self.subscription = Subscription(channel, no_ack)

    @property
    def tag(self) -> str:
        """Shown by the server's tools; told apart by the channel."""
        return self.session.link.name[:200]

    def opened(self) -> None:
        """Ask for the queue's messages, or first how many there are."""
        if self._quota.limit == "queue-length":
            self.send(method_queue.Declare(queue=self._name_of_queue(), passive=True))
        else:
            self._consume()

    def _consume(self) -> None:
        if self._quota.finished:
            self._finish()
            return
        no_ack = self.subscription.no_ack
        if not no_ack:
            self.send(basic.Qos(prefetch_count=self._prefetch))
        self.send(
            basic.Consume(
                queue=self._name_of_queue(),
                consumer_tag=self.tag,
                no_ack=no_ack,
                exclusive=self._exclusive,
                arguments=self._arguments,
            )
        )

    def _name_of_queue(self) -> str:
        return self._queue or self.session.declarations.server_named

    def received(self, method: Method) -> None:
        """The server begins, or will deliver no more: the queue is gone, or has moved."""
        if isinstance(method, basic.ConsumeOk):
            self.up = True
            self.refusal = ""
        elif isinstance(method, method_queue.DeclareOk):
            self._quota.limit = method.message_count
            self._consume()
        elif isinstance(method, basic.Cancel):
            self.up = False
            self._gone()
            if not method.nowait:
                self.send(basic.CancelOk(consumer_tag=method.consumer_tag))
            self.session.start_later(self, "cancelled", f"{self.name}: the server has cancelled it")

    def delivered(self, event: Delivered) -> None:
        """Messages have come."""
        self.works()
        batch = event.batch
        if isinstance(self._quota.limit, int):
            batch = self._within_quota(batch, self._quota.limit - self._done_before - self._handed_on)
            if not batch.bodies:
                return
        last = event.first_delivery_tag + len(batch.bodies) - 1
        self.session.intake.arrived(self.subscription, last, batch)

    def _within_quota(self, batch: Batch, left: int) -> Batch:
        """Return what is within the quota; the rest goes back to the queue when the channel is closed."""
        if len(batch.bodies) >= left > 0:
            self.send(basic.Cancel(consumer_tag=self.tag, nowait=True))
        batch = batch if len(batch.bodies) <= left else batch.slice(0, left)
        self._handed_on += len(batch.bodies)
        return batch

    def has_acknowledged(self, tag: int) -> None:
        """All up to this delivery tag are acknowledged; the tags of a channel begin with 1."""
        self._quota.acknowledged = self._done_before + tag
        if self._quota.finished:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self.refusal = ""
        self.session.report("finished", f"{self.name}: {self._quota.acknowledged} messages")
        self.session.connection.close_channel(self.channel, ReplyCode.SUCCESS, "finished")

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
        self._done_before, self._handed_on = self._quota.acknowledged, 0
        self.subscription.alive = False
        self.subscription = Subscription(self.channel, self.subscription.no_ack)
