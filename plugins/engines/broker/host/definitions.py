"""Definitions: the exchanges, queues and bindings that an engine's options ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kernel.contracts.errors import KernelError
from plugins.engines.broker.binding import Destination
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.host.options import BindingOptions, BrokerOptions, ExchangeOptions, QueueOptions
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.host.definition_forms import ExchangeDefinition, QueueDefinition


def declare_all(options: BrokerOptions, broker: Broker, now: float) -> None:
    """Declare what the options list.  ``KernelError`` names what is refused, and says why."""
    for option, number, name, declare in declarations(options, broker, now):
        try:
            declare()
        except BrokerError as error:
            raise KernelError(f"{option}[{number}] {name!r}: {error}") from error


def declarations(
    options: BrokerOptions, broker: Broker, now: float
) -> Iterator[tuple[str, int, str, Callable[[], object]]]:
    """Return the option, the number in it, the name and what declares it, for all that the options list.

    They have to be called in this order.  Each raises ``BrokerError`` for a mistake in it.
    """
    for number, exchange in enumerate(options.exchanges):
        yield "exchanges", number, exchange.name, partial(declare_exchange, broker, exchange)
    for number, queue in enumerate(options.queues):
        yield "queues", number, queue.name, partial(declare_queue, broker, queue, now)
    for number, binding in enumerate(options.bindings):
        yield "bindings", number, binding.exchange, partial(_bind, broker, binding)


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


def _bind(broker: Broker, binding: BindingOptions) -> None:
    vhost = broker.vhost(binding.vhost)
    destination = _destination(vhost, binding.queue, binding.to_exchange)
    vhost.bind(binding.exchange, destination, binding.key, binding.arguments)


def _destination(vhost: VirtualHost, queue: str, exchange: str) -> Destination:
    return vhost.find_queue(queue, None) if queue else vhost.find_destination(exchange)
