"""Definitions: the exchanges, queues and bindings that an engine's options ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.engines.broker.binding import Destination
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.options import BrokerOptions, ExchangeOptions, QueueOptions
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.host.definition_forms import ExchangeDefinition, QueueDefinition


def declare_all(options: BrokerOptions, broker: Broker, now: float) -> None:
    """Declare what the options list.  Raises ``BrokerError`` for a mistake in them."""
    for exchange in options.exchanges:
        declare_exchange(broker, exchange)
    for queue in options.queues:
        declare_queue(broker, queue, now)
    for binding in options.bindings:
        vhost = broker.vhost(binding.vhost)
        destination = _destination(vhost, binding.queue, binding.to_exchange)
        vhost.bind(binding.exchange, destination, binding.key, binding.arguments)


def declare_exchange(broker: Broker, exchange: ExchangeOptions | ExchangeDefinition) -> None:
    """Declare what is described, or refuse it."""
    broker.vhost(exchange.vhost).declare_exchange(
        exchange.name,
        exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=exchange.arguments,
    )


def declare_queue(broker: Broker, queue: QueueOptions | QueueDefinition, now: float) -> None:
    """Declare what is described, or refuse it."""
    broker.vhost(queue.vhost).declare_queue(
        queue.name,
        None,
        now,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        arguments=queue.arguments,
    )


def _destination(vhost: VirtualHost, queue: str, exchange: str) -> Destination:
    return vhost.find_queue(queue, None) if queue else vhost.find_destination(exchange)
