"""What the methods of class exchange do."""

from __future__ import annotations

from plugins.engines.amqp.channel import Channel
from plugins.protocols.amqp091.methods import exchange


def declare(channel: Channel, method: exchange.Declare, now: float) -> None:
    """Declare an exchange.  Passive: check that it exists, which needs no permission."""
    if method.passive:
        channel.vhost.find_exchange(method.exchange)
    else:
        _require_declaration(channel, method)
        channel.vhost.declare_exchange(
            method.exchange,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    if not method.nowait:
        channel.reply(exchange.DeclareOk())


def _require_declaration(channel: Channel, method: exchange.Declare) -> None:
    """Check permissions on the exchange, and on its alternate exchange, which gets unroutable messages."""
    login, vhost = channel.login, channel.vhost
    login.require("configure", "exchange", method.exchange, vhost.name)
    # For a new one only, as in RabbitMQ: who declares an exchange again need not have the rights of its
    # creator.
    alternate = method.arguments.get("alternate-exchange")
    if isinstance(alternate, str) and method.exchange not in vhost.exchanges:
        login.require("read", "exchange", method.exchange, vhost.name)
        login.require("write", "exchange", alternate, vhost.name)


def delete(channel: Channel, method: exchange.Delete, now: float) -> None:
    """Delete an exchange."""
    channel.login.require("configure", "exchange", method.exchange, channel.vhost.name)
    channel.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    if not method.nowait:
        channel.reply(exchange.DeleteOk())


def bind(channel: Channel, method: exchange.Bind, now: float) -> None:
    """Bind an exchange to another one."""
    _require_both(channel, method.source, method.destination)
    destination = channel.vhost.find_destination(method.destination)
    channel.vhost.bind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        channel.reply(exchange.BindOk())


def unbind(channel: Channel, method: exchange.Unbind, now: float) -> None:
    """Remove a binding between exchanges."""
    _require_both(channel, method.source, method.destination)
    # A binding that is not there is removed without an error, as in RabbitMQ; so is one of what is not there.
    destination = channel.vhost.exchanges.get(method.destination)
    if destination is not None:
        channel.vhost.unbind(method.source, destination, method.routing_key, method.arguments)
    if not method.nowait:
        channel.reply(exchange.UnbindOk())


def _require_both(channel: Channel, source: str, destination: str) -> None:
    # RabbitMQ's rule: a binding reads from its source and writes to its destination.
    channel.login.require("write", "exchange", destination, channel.vhost.name)
    channel.login.require("read", "exchange", source, channel.vhost.name)
