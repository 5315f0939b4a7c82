"""Options of one side of an AMQP 0-9-1 conversation.  The defaults are those of RabbitMQ 3.10."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

SUBPROTOCOLS = ("amqp",)
"""The name in WebSocket's handshake.  No specification has one for AMQP 0-9-1; ``amqp`` is registered with
IANA for AMQP 1.0.  CloudAMQP's client for browsers offers none, so it must not be required."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class CommonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that are negotiated or enforced.  0 means no limit; for ``heartbeat`` it means no heartbeats."""

    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    """Seconds.  A peer that is silent for twice as long counts as lost."""
    handshake_timeout: float = 10.0
    """Seconds until the connection has to be open."""
    close_timeout: float = 5.0
    """Seconds to wait for the peer's close-ok."""
    max_body_size: int = 134217728
    """Octets of the largest message that is accepted."""
    product: str = "messaging-kernel"
    version: str = ""
    properties: Mapping[str, Any] = _NONE
    """More entries for the client or server properties."""


class ServerOptions(CommonOptions, frozen=True, kw_only=True):
    """The server's side."""

    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    locales: tuple[str, ...] = ("en_US",)


class ClientOptions(CommonOptions, frozen=True, kw_only=True):
    """The client's side.  Its limits are proposals: the lower one of both sides is used."""

    mechanism: str = "PLAIN"
    response: bytes = b"\0guest\0guest"
    locale: str = "en_US"
    virtual_host: str = "/"
