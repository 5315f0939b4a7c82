"""Makes the methods that declare the exchanges, queues and bindings of a client engine's options."""

from __future__ import annotations

from plugins.engines.amqp_client.declarations import Request
from plugins.engines.amqp_client.options import AmqpClientOptions, ClientBinding, ClientExchange, ClientQueue
from plugins.protocols.amqp091.methods import exchange, queue


def all_requests(options: AmqpClientOptions, server_named: str) -> list[Request]:
    """Return all declarations.

    ``server_named``: the name that the server has given to a queue on this connection; empty: none yet.  In
    that case this queue is declared last.  Its bindings then name no queue, for which the server takes the
    one that was declared last on the channel.
    """
    queues = sorted(options.queues, key=lambda item: not item.name)
    return [
        *map(_exchange, options.exchanges),
        *(_queue(item) for item in queues if item.name or not server_named),
        *(_binding(item, server_named) for item in options.bindings),
    ]


def shared_requests(options: AmqpClientOptions) -> list[Request]:
    """Return the declarations that a second connection can repeat: not those of exclusive queues."""
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
