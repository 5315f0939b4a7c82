"""PLAIN and AMQPLAIN: the two SASL mechanisms with user name and password in connection.start-ok."""

from __future__ import annotations

import struct

from plugins.protocols.amqp091.errors import MalformedField
from plugins.protocols.amqp091.field_tables import decode_table, encode_table


def credentials_of(mechanism: str, response: bytes) -> tuple[str, str] | None:
    """Return user name and password from a PLAIN or AMQPLAIN response; None if it is malformed."""
    if mechanism == "PLAIN":
        # RFC 4616: authorization identity, NUL, name, NUL, password.  The identity is ignored: a user acts
        # for itself only.
        parts = response.split(b"\0")
        if len(parts) != 3:
            return None
        return parts[1].decode("utf-8", "surrogateescape"), parts[2].decode("utf-8", "surrogateescape")
    if mechanism != "AMQPLAIN":
        return None
    try:
        # AMQPLAIN is not in the specification.  RabbitMQ and its clients send a field table without its
        # length prefix.
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
    except (MalformedField, IndexError, struct.error):
        return None
    name, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(name, str) or not isinstance(password, str):
        return None
    return name, password


def plain_response(name: str, password: str) -> bytes:
    """Return the response of mechanism PLAIN."""
    return b"\0" + name.encode() + b"\0" + password.encode()


def amqplain_response(name: str, password: str) -> bytes:
    """Return the response of mechanism AMQPLAIN: a field table without its length prefix."""
    return encode_table({"LOGIN": name, "PASSWORD": password})[4:]
