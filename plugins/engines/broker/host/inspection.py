"""Inspection: what an operator sees of the broker, under the names that rabbitmqctl uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.front_end import Client, FrontEnd
from plugins.engines.broker.host.users import Users
from plugins.engines.broker.queue import Queue

Row: TypeAlias = dict[str, Any]


def inspect(what: str, broker: Broker, users: Users, others: Iterable[Client | FrontEnd]) -> list[Row]:
    """Return a row for each thing of the sort ``what``.

    ``others``: those who are asked for what neither the broker nor the users have, such as consumers.
    """
    of_users = _OF_USERS.get(what)
    if of_users is not None:
        return list(of_users(users, broker))
    of_broker = _OF_BROKER.get(what)
    if of_broker is not None:
        return list(of_broker(broker))
    return [row for other in others for row in other.inspect(what)]


def _queues(broker: Broker) -> Iterator[Row]:
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            yield queue_row(queue)


def queue_row(queue: Queue) -> Row:
    """Return the row of a queue."""
    policy = queue.operator_policy
    return {
        "vhost": queue.vhost.name,
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "arguments": dict(queue.arguments),
        "policy": "" if policy is None else policy.name,
        "effective_policy_definition": {} if policy is None else dict(policy.definition),
        "messages": queue.backlog.count + queue.outstanding,
        "messages_ready": queue.backlog.count,
        "messages_unacknowledged": queue.outstanding,
        "message_bytes_ready": queue.backlog.size,
        "message_bytes_paged_out": queue.backlog.paged,
        "consumers": queue.consumer_count,
        "messages_in": queue.messages_in,
        "messages_out": queue.messages_out,
    }


def _exchanges(broker: Broker) -> Iterator[Row]:
    for vhost in broker.vhosts.values():
        for exchange in vhost.exchanges.values():
            yield exchange_row(vhost.name, exchange)


def exchange_row(vhost: str, exchange: Exchange) -> Row:
    """Return the row of an exchange."""
    return {
        "vhost": vhost,
        "name": exchange.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": dict(exchange.arguments),
        "policy": "" if exchange.operator_policy is None else exchange.operator_policy.name,
        "bindings": len(exchange.bindings),
    }


def _bindings(broker: Broker) -> Iterator[Row]:
    for vhost in broker.vhosts.values():
        for name in vhost.queues:
            yield default_binding_row(vhost.name, name)
        for exchange in vhost.exchanges.values():
            for binding in exchange.bindings.values():
                yield binding_row(vhost.name, binding)


def default_binding_row(vhost: str, queue: str) -> Row:
    """Return the row of the binding that the default exchange has to a queue.

    The exchange has none in fact, since its key is the queue's name.  rabbitmqctl shows them.
    """
    return _binding(vhost, "", queue, "queue", queue, {})


def binding_row(vhost: str, binding: Binding) -> Row:
    """Return the row of a binding."""
    to = binding.destination
    return _binding(vhost, binding.source.name, to.name, _kind_of(to), binding.key, dict(binding.arguments))


def _kind_of(destination: Destination) -> str:
    if isinstance(destination, Exchange):
        return "exchange"
    return "queue" if isinstance(destination, Queue) else "sink"


def _binding(vhost: str, source: str, destination: str, kind: str, key: str, arguments: Row) -> Row:
    return {
        "vhost": vhost,
        "source_name": source,
        "source_kind": "exchange",
        "destination_name": destination,
        "destination_kind": kind,
        "routing_key": key,
        "arguments": arguments,
    }


def _policies(broker: Broker) -> Iterator[Row]:
    for policy in broker.policies:
        yield {
            "vhost": policy.vhost,
            "name": policy.name,
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "definition": dict(policy.definition),
            "priority": policy.priority,
        }


def _global_parameters(broker: Broker) -> Iterator[Row]:
    for name, value in broker.global_parameters.items():
        yield {"name": name, "value": value}


def _users(users: Users, broker: Broker) -> Iterator[Row]:
    for name, account in users.accounts.items():
        yield {
            "name": name,
            "tags": list(account.tags),
            "connections": account.connections,
            "max_connections": account.max_connections,
            "changed_at_run_time": account.imported,
        }


def _accounts(users: Users, broker: Broker) -> Iterator[Row]:
    for row in _users(users, broker):
        password = users.accounts[row["name"]].password
        yield {**row, "password_hash": password.as_hash(), "hashing": password.hashing}


def _permissions(users: Users, broker: Broker) -> Iterator[Row]:
    for name, account in users.accounts.items():
        for vhost in broker.vhosts:
            allowed = account.allowed_in(vhost)
            if allowed is not None:
                yield {"user": name, "vhost": vhost, **allowed._asdict()}


def _topic_permissions(users: Users, broker: Broker) -> Iterator[Row]:
    for name, account in users.accounts.items():
        for vhost in broker.vhosts:
            if account.allowed_in(vhost) is None:
                continue
            exchanges = {exchange for of, exchange in account.topics if of == vhost}
            for exchange in sorted(exchanges | account.topics_everywhere.keys()):
                allowed = account.allowed_topics(vhost, exchange)
                if allowed is not None:
                    yield {"user": name, "vhost": vhost, "exchange": exchange, **allowed._asdict()}


_OF_BROKER: dict[str, Callable[[Broker], Iterator[Row]]] = {
    "queues": _queues,
    "exchanges": _exchanges,
    "bindings": _bindings,
    "policies": _policies,
    "global-parameters": _global_parameters,
}
_OF_USERS: dict[str, Callable[[Users, Broker], Iterator[Row]]] = {
    "users": _users,
    "accounts": _accounts,
    "permissions": _permissions,
    "topic-permissions": _topic_permissions,
}
