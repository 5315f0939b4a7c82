"""Listeners: where the broker and the pages can be reached, under RabbitMQ's names for protocols."""

from __future__ import annotations

from plugins.engines.web.management.call import Call
from plugins.engines.web.management.shapes import Row

AMQP, AMQP_TLS = "amqp", "amqp/ssl"


def listeners(call: Call, status: Row) -> list[Row]:
    """Return a row for each listener that has a port.

    ``status``: the broker's.  ``certfile`` and ``cacertfile`` are None for one without TLS.
    """
    rows = []
    for each in (*status["listeners"], call.listener):
        host, _, port = each["address"].rpartition(":")
        if port.isdigit():
            rows.append(
                {
                    "node": call.node,
                    "protocol": _spoken(each["protocol"], each["transport"]),
                    "ip_address": host.rpartition("/")[2].strip("[]"),
                    "port": int(port),
                    "certfile": each["certificate"],
                    "cacertfile": each["authorities"],
                }
            )
    return rows


def shown_listeners(call: Call, status: Row) -> list[Row]:
    """Return the same as the overview shows it: where certificates are is nobody else's concern."""
    rows = listeners(call, status)
    return [
        {key: row[key] for key in ("node", "protocol", "ip_address", "port")} | {"socket_opts": []}
        for row in rows
    ]


def _spoken(protocol: str, transport: str) -> str:
    """Return RabbitMQ's name for a protocol over a transport."""
    if protocol == "http":
        return "https" if transport == "tls" else protocol
    web = {"ws": "http", "wss": "https"}.get(transport)
    if web is not None:
        return f"{web}/web-{protocol}"
    return f"{protocol}/ssl" if transport == "tls" else protocol
