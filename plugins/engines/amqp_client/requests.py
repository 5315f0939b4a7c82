"""Requests: the exchanges, queues and bindings of a client engine's options, as methods."""

from __future__ import annotations

from plugins.engines.amqp_client.declarations import Request
from plugins.engines.amqp_client.options import AmqpClientOptions, ClientBinding, ClientExchange, ClientQueue
from plugins.protocols.amqp091.methods import exchange, queue


def all_requests(options: AmqpClientOptions, server_named: str) -> list[Request]:
    """Return everything.  The queue that the server names comes last, unless it is there already.

    So a binding that does not know its name yet can leave it out: the server takes the queue declared last on the channel.
    """
    queues = sorted(options.queues, key=lambda item: not item.name)
    return [
        *map(_exchange, options.exchanges),
        *(_queue(item) for item in queues if item.name or not server_named),
        *(_binding(item, server_named) for item in options.bindings),
    ]


def shared_requests(options: AmqpClientOptions) -> list[Request]:
    """Return what a second connection can declare, too: nothing of queues that belong to the first."""
    own = {item.name for item in options.queues if item.exclusive or not item.name}
    return [
        *map(_exchange, options.exchanges),
        *(_queue(item) for item in options.queues if item.name not in own),
        *(_binding(item, "") for item in options.bindings if item.to_exchange or item.queue not in own),
    ]


def _exchange(item: ClientExchange) -> Request:
    declare = exchange.Declare(
        exchange=item.name,
        type=item.type,
        passive=item.passive,
        durable=item.durable,
        auto_delete=item.auto_delete,
        internal=item.internal,
        arguments=item.arguments,
    )
    return f"declaring exchange {item.name!r}", declare


def _queue(item: ClientQueue) -> Request:
    declare = queue.Declare(
        queue=item.name,
        passive=item.passive,
        durable=item.durable,
        exclusive=item.exclusive,
        auto_delete=item.auto_delete,
        arguments=item.arguments,
    )
    return f"declaring queue {item.name!r}", declare


def _binding(item: ClientBinding, server_named: str) -> Request:
    what = f"binding {item.queue or item.to_exchange!r} to exchange {item.exchange!r}"
    if item.to_exchange:
        return what, exchange.Bind(
            destination=item.to_exchange,
            source=item.exchange,
            routing_key=item.key,
            arguments=item.arguments,
        )
    return what, queue.Bind(
        queue=item.queue or server_named,
        exchange=item.exchange,
        routing_key=item.key,
        arguments=item.arguments,
    )
