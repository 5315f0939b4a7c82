"""Declarations: which ones are refused, and the exchanges that every virtual host has from the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.engines.broker.arguments import (
    QUEUE_ARGUMENTS,
    require_equal_argument,
    require_equal_flag,
    type_name,
)
from plugins.engines.broker.errors import AccessRefused, PreconditionFailed, default_exchange_refused
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.matchers.default import DefaultMatcher
from plugins.engines.broker.matchers.kinds import EXCHANGE_TYPES
from plugins.engines.broker.queue import Queue

_SYSTEM_EXCHANGES = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


def make_system_exchanges(queues: Mapping[str, Queue]) -> dict[str, Exchange]:
    """Return the exchanges that every virtual host has from the start."""
    exchanges = {"": _system_exchange("", "direct", DefaultMatcher(queues))}
    for name, kind in _SYSTEM_EXCHANGES.items():
        exchanges[name] = _system_exchange(name, kind, EXCHANGE_TYPES[kind]())
    return exchanges


def _system_exchange(name: str, kind: str, matcher: Any) -> Exchange:
    return Exchange(name, kind, matcher, durable=True, auto_delete=False, internal=False, arguments={})


def check_exchange_name(name: str, existing: Mapping[str, Exchange]) -> None:
    """Refuse the default exchange, and new names with the reserved prefix.

    An exchange that exists may be declared again, so that clients can check for ``amq.topic`` and others.
    """
    if not name:
        raise default_exchange_refused()
    if name.startswith("amq.") and name not in existing:
        raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")


def check_queue_name(name: str) -> None:
    """Refuse names with the reserved prefix."""
    if name.startswith("amq."):
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")


def check_exchange_arguments(name: str, vhost: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an alternate exchange that is not a string."""
    alternate = arguments.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        raise PreconditionFailed(
            f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' "
            f"in exchange '{name}' in vhost '{vhost}'"
        )


def require_same_exchange(
    exchange: Exchange,
    vhost: str,
    *,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, Any],
) -> None:
    """Refuse to declare an existing exchange with other properties."""
    name = exchange.name
    require_equal_flag("exchange", name, vhost, "type", kind, exchange.kind)
    require_equal_flag("exchange", name, vhost, "durable", durable, exchange.durable)
    require_equal_flag("exchange", name, vhost, "auto_delete", auto_delete, exchange.auto_delete)
    require_equal_flag("exchange", name, vhost, "internal", internal, exchange.internal)
    require_equal_argument("exchange", name, vhost, "alternate-exchange", arguments, exchange.arguments)


def require_same_queue(
    queue: Queue, *, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
) -> None:
    """Refuse to declare an existing queue with other properties."""
    name, vhost = queue.name, queue.vhost.name
    # Arguments without an effect may differ: they are stored and ignored (RabbitMQ).
    require_equal_flag("queue", name, vhost, "durable", durable, queue.durable)
    require_equal_flag("queue", name, vhost, "auto_delete", auto_delete, queue.auto_delete)
    for argument in QUEUE_ARGUMENTS:
        require_equal_argument("queue", name, vhost, argument, arguments, queue.arguments)
