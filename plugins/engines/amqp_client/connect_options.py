"""What can be set for connections to AMQP servers: of a client engine, of a federation link."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kernel.hosting.address import SOCKET_TRANSPORTS, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the servers are, and how to log in and stay connected."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("amqp+tcp://127.0.0.1:5672",)
    """Servers, tried in turn: ``amqp+tcp://host:port``, ``amqp+tls://host:port``, ``amqp+unix:///path`` or ``host:port``."""
    user: str = "guest"
    """Who logs in."""
    password: str = "guest"
    """In plain text; take it from the environment: ``${NAME}``."""
    mechanism: Literal["PLAIN", "AMQPLAIN", "EXTERNAL"] = "PLAIN"
    """The SASL mechanism.  ``EXTERNAL``: the server goes by the client certificate of ``tls``, not by user and password."""
    vhost: str = "/"
    """The virtual host."""
    heartbeat: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 60
    """Seconds: what this side wishes, the lower of both holds; 0: none."""
    frame_max: Annotated[int, msgspec.Meta(ge=4096)] = 131072
    """The largest frame that this side wishes."""
    max_body_bytes: Count = 134_217_728
    """The largest message that is taken."""
    connect_timeout: Seconds = 10.0
    """Seconds that an attempt to connect, a TLS handshake and the login may take, each."""
    reconnect: BackoffOptions = BackoffOptions()
    """How attempts are spaced: to connect once all addresses were tried, to declare, consume or publish again."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` addresses."""

    def __post_init__(self) -> None:
        for text in self.addresses:
            try:
                parse_address(text, SOCKET_TRANSPORTS, "amqp")
            except ValueError as error:
                raise ValueError(f"addresses: {error}") from None
