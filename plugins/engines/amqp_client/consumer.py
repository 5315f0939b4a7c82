"""Consumer: one subscription to a queue of the server, on a channel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kernel.contracts.counts import counted
from kernel.contracts.message import Batch
from plugins.engines.amqp_client.channel_handler import ChannelHandler
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods import queue as method_queue
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class Quota(msgspec.Struct):
    """How many messages a consumer takes before it has finished, over all its connections.

    It counts acknowledged messages: a message that was not acknowledged before a connection was lost is
    delivered again, and counts once.
    """

    limit: int | Literal["queue-length"] | None = None
    """``queue-length``: as many as the queue has when the consumer starts.  None: no limit."""
    acknowledged: int = 0

    @property
    def finished(self) -> bool:
        """Whether the limit is reached."""
        return isinstance(self.limit, int) and self.acknowledged >= self.limit


class Subscription(msgspec.Struct, gc=False):
    """A consumer's channel from its opening to its end.  Its delivery tags are not valid on the next one."""

    channel: int
    no_ack: bool
    alive: bool = True


class Consumer(ChannelHandler):
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
        """``queue``: its name; empty: the one that the server has named.  ``prefetch``: unacked messages."""
        super().__init__(session, channel, f"consuming from {queue!r}")
        self._queue = queue
        self._prefetch = prefetch
        self._exclusive = exclusive
        self._arguments = arguments
        self._quota = quota or Quota()
        self._done_before = self._quota.acknowledged
        """Messages acknowledged before this channel was opened."""
        self._handed_on = 0
        """Messages passed on since this channel was opened."""
        self.subscription = Subscription(channel, no_ack)

    @property
    def tag(self) -> str:
        """The consumer tag, for the server's tools.  It need not be unique: each consumer has a channel."""
        return self.session.link.name[:200]

    def opened(self) -> None:
        """Start consuming; if the quota is the queue's length, ask for that first."""
        if self._quota.limit == "queue-length":
            # A passive declaration changes nothing, and its answer has the number of messages.
            self.send(method_queue.Declare(queue=self._name_of_queue(), passive=True))
        else:
            self._consume()

    def _consume(self) -> None:
        if self._quota.finished:
            self._finish()
            return
        no_ack = self.subscription.no_ack
        # basic.qos, field prefetch-count: it is ignored for a consumer without acknowledgements.
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
        """The server has started the consumer, said how long the queue is, or cancelled the consumer."""
        if isinstance(method, basic.ConsumeOk):
            self.up = True
            self.refusal = ""
        elif isinstance(method, method_queue.DeclareOk):
            self._quota.limit = method.message_count
            self._consume()
        elif isinstance(method, basic.Cancel):
            self.up = False
            self._queue_gone()
            # basic.cancel from a server is RabbitMQ's extension consumer_cancel_notify; RabbitMQ sets nowait.
            if not method.nowait:
                self.send(basic.CancelOk(consumer_tag=method.consumer_tag))
            self.session.start_later(self, "cancelled", f"{self.name}: the server has cancelled it")

    def delivered(self, event: Delivered) -> None:
        """Pass messages on, as far as the quota allows."""
        self.works()
        batch = event.batch
        if isinstance(self._quota.limit, int):
            batch = self._within_quota(batch, self._quota.limit - self._done_before - self._handed_on)
            if not batch.bodies:
                return
        last = event.first_delivery_tag + len(batch.bodies) - 1
        self.session.inbound.arrived(self.subscription, last, batch)

    def _within_quota(self, batch: Batch, left: int) -> Batch:
        """Return the messages within the quota.  The others go back to the queue with the channel's end."""
        # Cancel once, with the batch that uses up the quota.  ``nowait``: nobody waits for cancel-ok.  What
        # the server sends before it reads this is not taken.
        if len(batch.bodies) >= left > 0:
            self.send(basic.Cancel(consumer_tag=self.tag, nowait=True))
        batch = batch if len(batch.bodies) <= left else batch.slice(0, left)
        self._handed_on += len(batch.bodies)
        return batch

    def has_acknowledged(self, tag: int) -> None:
        """All messages up to ``tag`` are acknowledged; the tags of a channel begin with 1."""
        # Tags are acknowledged with ``multiple``, and the tags of a channel count its messages.
        self._quota.acknowledged = self._done_before + tag
        if self._quota.finished:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self.refusal = ""
        self.session.report("finished", f"{self.name}: {counted(self._quota.acknowledged, 'message')}")
        # The server puts what it has delivered beyond the quota back into the queue.
        self.session.connection.close_channel(self.channel, ReplyCode.SUCCESS, "finished")

    def refused(self, code: int) -> None:
        """The server has closed the channel, maybe because the queue does not exist any more."""
        if code == ReplyCode.NOT_FOUND:
            self._queue_gone()

    def _queue_gone(self) -> None:
        """The queue does not exist any more.  A federation link overrides this."""
        if not self._queue:
            self.session.declarations.server_named = ""

    def lost(self) -> None:
        """The channel has ended: the server will deliver again what was not acknowledged."""
        super().lost()
        # What was handed on and not acknowledged comes again on the next channel, so it must not count.
        self._done_before, self._handed_on = self._quota.acknowledged, 0
        # Batches in the buffer keep the old object, which tells that their tags are not valid any more.
        self.subscription.alive = False
        self.subscription = Subscription(self.channel, self.subscription.no_ack)
