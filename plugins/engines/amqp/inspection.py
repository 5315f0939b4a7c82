"""Inspection: what an operator sees of AMQP clients, under the names that rabbitmqctl uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from plugins.engines.amqp.connection_host import ConnectionHost

Row: TypeAlias = dict[str, Any]


def inspect(what: str, connection: ConnectionHost) -> list[Row]:
    """Return a row for each thing of the sort ``what`` that a connection has."""
    rows = _SORTS.get(what)
    return [] if rows is None else list(rows(connection))


def _connection(connection: ConnectionHost) -> Iterator[Row]:
    session = connection.session
    # They are what the client says of itself, and empty until it has logged in.
    properties = session.client_properties if isinstance(session.client_properties, dict) else {}
    # Until connection.open the client has published nothing, so no other state can be hidden by this one.
    starting = {} if session.vhost else {"state": "starting"}
    yield connection.row(
        user=session.login.name if session.login else "",
        vhost=session.vhost.name if session.vhost else "",
        client_properties=properties,
        protocol="AMQP 0-9-1",
        channel_max=session.connection.channel_max,
        frame_max=session.connection.frame_max,
        timeout=session.connection.heartbeat,
        client=f"{properties.get('product', '')} {properties.get('version', '')}".strip(),
        certificate=session.certified or "",
        channels=len(session.channels),
        **starting,
    )


def _channels(connection: ConnectionHost) -> Iterator[Row]:
    session = connection.session
    for channel in session.channels.values():
        receiver, confirms = channel.receiver, channel.confirms
        yield {
            "connection": connection.peer,
            "number": channel.number,
            "user": session.login.name if session.login else "",
            "vhost": session.vhost.name if session.vhost else "",
            "consumer_count": len(receiver.consumers),
            "messages_unacknowledged": receiver.unacked.count,
            "messages_unconfirmed": 0 if confirms is None else confirms.published - confirms.told,
            "confirm": confirms is not None,
            "transactional": channel.transaction is not None,
            "prefetch_count": channel.prefetch,
            "global_prefetch_count": receiver.prefetch,
        }


def _consumers(connection: ConnectionHost) -> Iterator[Row]:
    for channel in connection.session.channels.values():
        for consumer in channel.receiver.consumers.values():
            yield consumer.row(connection.peer, channel=channel.number)


_SORTS: dict[str, Callable[[ConnectionHost], Iterator[Row]]] = {
    "connections": _connection,
    "channels": _channels,
    "consumers": _consumers,
}
