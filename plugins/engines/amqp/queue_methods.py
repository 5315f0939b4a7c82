"""What the methods of class queue do."""

from __future__ import annotations

from plugins.engines.amqp.channel import REPLY_TO, Channel, without_line_ends
from plugins.protocols.amqp091.methods import queue


def declare(channel: Channel, method: queue.Declare, now: float) -> None:
    """Declare a queue.  Passive: return its counts if it exists."""
    vhost = channel.vhost
    name = without_line_ends(method.queue)
    if name == REPLY_TO:
        # It is always there, declared or not, and has no messages (RabbitMQ's answer).
        channel.last_queue = name
        if not method.nowait:
            channel.reply(queue.DeclareOk(queue=REPLY_TO, message_count=0, consumer_count=1))
        return
    if method.passive:
        found = vhost.find_queue(channel.queue_name(name), channel.session)
        # To ask for a queue is a use of it, and begins its x-expires anew (RabbitMQ).
        found.plan_expiry(now)
    else:
        channel.login.require_queue(name, method.arguments, vhost)
        found = vhost.declare_queue(
            name,
            channel.session,
            now,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            arguments=method.arguments,
        )
    channel.last_queue = found.name
    if not method.nowait:
        # Consumers take first what they have room for, and messages that are due expire, so that the count is
        # right.
        found.process(now)
        channel.reply(
            queue.DeclareOk(
                queue=found.name, message_count=found.backlog.count, consumer_count=found.consumer_count
            )
        )


def bind(channel: Channel, method: queue.Bind, now: float) -> None:
    """Bind a queue to an exchange."""
    name, key = _name_and_key(channel, method.queue, method.routing_key)
    source = without_line_ends(method.exchange)
    channel.login.require_binding(source, "queue", name, key, channel.vhost)
    found = channel.vhost.find_queue(name, channel.session)
    channel.vhost.bind(source, found, key, method.arguments)
    if not method.nowait:
        channel.reply(queue.BindOk())


def unbind(channel: Channel, method: queue.Unbind, now: float) -> None:
    """Remove a binding of a queue."""
    name, key = _name_and_key(channel, method.queue, method.routing_key)
    source = without_line_ends(method.exchange)
    channel.login.require_binding(source, "queue", name, key, channel.vhost)
    # No error if it is gone: as for a binding that is not there.
    if name in channel.vhost.queues:
        found = channel.vhost.find_queue(name, channel.session)
        channel.vhost.unbind(source, found, key, method.arguments)
    # queue.unbind is the one method here that has no ``nowait``.
    channel.reply(queue.UnbindOk())


def purge(channel: Channel, method: queue.Purge, now: float) -> None:
    """Drop the ready messages of a queue."""
    name = channel.queue_name(method.queue)
    channel.login.require("read", "queue", name, channel.vhost.name)
    count = channel.vhost.find_queue(name, channel.session).purge(now)
    if not method.nowait:
        channel.reply(queue.PurgeOk(message_count=count))


def delete(channel: Channel, method: queue.Delete, now: float) -> None:
    """Delete a queue."""
    name = channel.queue_name(without_line_ends(method.queue))
    channel.login.require("configure", "queue", name, channel.vhost.name)
    found = channel.vhost.find_to_delete(
        name, channel.session, now, if_unused=method.if_unused, if_empty=method.if_empty
    )
    if not method.nowait:
        # Before the removal, which sends basic.cancel to this channel's own consumers.  RabbitMQ answers
        # first, and kombu takes a basic.cancel that comes before the answer for an error of the deletion.
        channel.reply(queue.DeleteOk(message_count=0 if found is None else found.backlog.count))
    if found is not None:
        channel.vhost.remove_queue(found, now)


def _name_and_key(channel: Channel, name: str, key: str) -> tuple[str, str]:
    """Return the queue that is meant, and the binding key.

    With neither name nor key the queue's name is the key, too (the specification, routing-key of queue.bind).
    """
    if not name and not key:
        key = channel.queue_name("")
    return channel.queue_name(without_line_ends(name)), key
