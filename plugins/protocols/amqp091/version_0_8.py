"""AMQP 0-8 as RabbitMQ speaks it with clients that ask for it: 0-9-1, but for what is in this module."""

from __future__ import annotations

import struct

from plugins.protocols.amqp091 import frames
from plugins.protocols.amqp091.methods import basic, channel, connection
from plugins.protocols.amqp091.methods.method import Method

HEADER = b"AMQP\x01\x01\x08\x00"

_NO_TABLE = bytes(4)

_CLOSE, _CLOSE_OK = b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
"""0-9-1 has them ten lower, at the place of connection.redirect, and connection.blocked at this one."""


class _Consume(basic.Consume, frozen=True, kw_only=True):
    """basic.consume without arguments; Qpid's clients send a table nevertheless."""

    @classmethod
    def decode(cls, payload: bytes) -> basic.Consume:
        try:
            return basic.Consume.decode(payload)
        except (IndexError, struct.error):
            return basic.Consume.decode(payload + _NO_TABLE)


METHODS: dict[bytes, type[Method]] = {
    **{
        ids: kind
        for ids, kind in frames.METHODS.items()
        if kind not in (connection.Close, connection.CloseOk)
    },
    _CLOSE: connection.Close,
    _CLOSE_OK: connection.CloseOk,
    b"\x00\x3c\x00\x14": _Consume,
}
"""As ``frames.METHODS``."""


def encode(method: Method) -> bytes:
    """Return the payload of a method that a server sends."""
    payload = method.encode()
    match method:
        case connection.Close():
            return _CLOSE + payload[4:]
        case connection.CloseOk():
            return _CLOSE_OK
        case channel.OpenOk():
            return payload[:4]  # 0-9 has added an argument
        case _:
            return payload
