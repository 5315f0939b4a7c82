"""What the methods of class exchange do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.engines.amqp.channel import Channel, without_line_ends
from plugins.protocols.amqp091.methods import exchange


def declare(channel: Channel, method: exchange.Declare, now: float) -> None:
    """Declare an exchange.  Passive: check that it exists, which needs no permission."""
    name = without_line_ends(method.exchange)
    if method.passive:
        # Refused for the default exchange, although it is there (RabbitMQ).
        channel.vhost.find_destination(name)
    else:
        _require_declaration(channel, name, method.arguments)
        channel.vhost.declare_exchange(
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    if not method.nowait:
        channel.reply(exchange.DeclareOk())


def _require_declaration(channel: Channel, name: str, arguments: Mapping[str, Any]) -> None:
    """Check permissions on the exchange, and on its alternate exchange, which gets unroutable messages."""
    login, vhost = channel.login, channel.vhost
    login.require("configure", "exchange", name, vhost.name)
    # For a new one only, as in RabbitMQ: who declares an exchange again need not have the rights of its
    # creator.
    alternate = arguments.get("alternate-exchange")
    if isinstance(alternate, str) and name not in vhost.exchanges:
        login.require("read", "exchange", name, vhost.name)
        login.require("write", "exchange", alternate, vhost.name)


def delete(channel: Channel, method: exchange.Delete, now: float) -> None:
    """Delete an exchange."""
    name = without_line_ends(method.exchange)
    channel.login.require("configure", "exchange", name, channel.vhost.name)
    channel.vhost.delete_exchange(name, if_unused=method.if_unused)
    if not method.nowait:
        channel.reply(exchange.DeleteOk())


def bind(channel: Channel, method: exchange.Bind, now: float) -> None:
    """Bind an exchange to another one."""
    source, name = without_line_ends(method.source), without_line_ends(method.destination)
    channel.login.require_binding(source, "exchange", name, method.routing_key, channel.vhost)
    destination = channel.vhost.find_destination(name)
    channel.vhost.bind(source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        channel.reply(exchange.BindOk())


def unbind(channel: Channel, method: exchange.Unbind, now: float) -> None:
    """Remove a binding between exchanges."""
    source, name = without_line_ends(method.source), without_line_ends(method.destination)
    channel.login.require_binding(source, "exchange", name, method.routing_key, channel.vhost)
    # A binding that is not there is removed without an error, as in RabbitMQ; so is one of what is not there.
    destination = channel.vhost.exchanges.get(name)
    if destination is not None:
        channel.vhost.unbind(source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        channel.reply(exchange.UnbindOk())
