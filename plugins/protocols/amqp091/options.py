"""What can be set for one side of an AMQP 0-9-1 conversation.  The defaults are RabbitMQ 3.10's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

_NONE: Mapping[str, Any] = MappingProxyType({})


class CommonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides negotiate or limit.  Zero means: no limit (or for ``heartbeat``: none)."""

    channel_max: int = 2047
    frame_max: int = 131072
    heartbeat: int = 60
    """Seconds after which a silent peer is half given up; it is given up after twice as long."""
    handshake_timeout: float = 10.0
    close_timeout: float = 5.0
    """How long to wait for the peer's close-ok."""
    max_body_size: int = 134217728
    product: str = "messaging-kernel"
    version: str = ""
    properties: Mapping[str, Any] = _NONE
    """More entries for the properties that the peers tell each other."""


class ServerOptions(CommonOptions, frozen=True, kw_only=True):
    """The server's side."""

    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    locales: tuple[str, ...] = ("en_US",)


class ClientOptions(CommonOptions, frozen=True, kw_only=True):
    """The client's side.  Its limits are wishes: the lower of both sides holds."""

    mechanism: str = "PLAIN"
    response: bytes = b"\0guest\0guest"
    locale: str = "en_US"
    virtual_host: str = "/"
