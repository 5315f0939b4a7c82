"""The methods of class basic, except publish, ack, nack and reject, which come as events of batches."""

from __future__ import annotations

from plugins.engines.amqp.channel import REPLY_TO, Channel
from plugins.engines.broker.public import NotAllowed, NotImplementedHere, invent_name
from plugins.protocols.amqp091.errors import CannotCarry
from plugins.protocols.amqp091.methods import basic


def qos(channel: Channel, method: basic.Qos, now: float) -> None:
    """Set how many unacknowledged messages a consumer, or with ``global`` the channel, may have."""
    # As RabbitMQ.  The field would limit the bytes that are unacknowledged.
    if method.prefetch_size:
        raise NotImplementedHere(f"prefetch_size!=0 ({method.prefetch_size})")
    # RabbitMQ's meaning, not the specification's: with ``global`` the limit is shared by the channel, and
    # without it is for each consumer that begins later.
    if method.global_:
        channel.receiver.prefetch = method.prefetch_count
        channel.receiver.wake()
    else:
        channel.prefetch = method.prefetch_count
    channel.reply(basic.QosOk())


def consume(channel: Channel, method: basic.Consume, now: float) -> None:
    """Start a consumer."""
    name = channel.queue_name(method.queue)
    tag = method.consumer_tag or invent_name("amq.ctag-", channel.vhost.broker.random)
    if tag in channel.receiver.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if name == REPLY_TO:
        channel.consume_replies(tag, method.arguments, auto_ack=method.no_ack, now=now)
    else:
        channel.login.require("read", "queue", name, channel.vhost.name)
        queue = channel.vhost.find_queue(name, channel.session)
        channel.start_consumer(
            tag, queue, method.arguments, auto_ack=method.no_ack, exclusive=method.exclusive, now=now
        )
    if not method.nowait:
        channel.reply(basic.ConsumeOk(consumer_tag=tag))


def cancel(channel: Channel, method: basic.Cancel, now: float) -> None:
    """End a consumer.  An unknown tag is no error."""
    channel.stop_consumer(method.consumer_tag, now)
    if not method.nowait:
        channel.reply(basic.CancelOk(consumer_tag=method.consumer_tag))


def cancel_ok(channel: Channel, method: basic.CancelOk, now: float) -> None:
    """Ignore it: the broker sends basic.cancel with ``nowait``, and expects no answer."""


def get(channel: Channel, method: basic.Get, now: float) -> None:
    """Deliver one message."""
    name = channel.queue_name(method.queue)
    channel.login.require("read", "queue", name, channel.vhost.name)
    queue = channel.vhost.find_queue(name, channel.session)
    connection = channel.session.connection
    # Again for each message that AMQP cannot carry, until one can be sent or the queue is empty.
    while (taken := channel.receiver.take_one(queue, now, auto_ack=method.no_ack)) is not None:
        tag, span = taken
        channel.send_deliveries()  # they have lower tags, so they are sent first
        try:
            connection.send_get_ok(
                channel.number, tag, span.redelivered, queue.backlog.count, span.as_batch()
            )
        except CannotCarry as refusal:
            channel.receiver.give_up(queue, tag, span, str(refusal), now, auto_ack=method.no_ack)
        else:
            channel.session.client.messages_out += 1
            return
    channel.reply(basic.GetEmpty())


def recover(channel: Channel, method: basic.Recover, now: float) -> None:
    """Requeue all unacknowledged messages."""
    _recover(channel, requeue=method.requeue)
    channel.reply(basic.RecoverOk())


def recover_async(channel: Channel, method: basic.RecoverAsync, now: float) -> None:
    """As ``recover``, without an answer."""
    _recover(channel, requeue=method.requeue)


def _recover(channel: Channel, *, requeue: bool) -> None:
    # It would deliver to the same consumer again.  RabbitMQ refuses it too.
    if not requeue:
        raise NotImplementedHere("requeue=false")
    channel.send_deliveries()  # deliveries that are requeued must be sent before the answer
    channel.receiver.recover()
