"""Options of connections to AMQP servers, for client engines and federation links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the servers are, how to log in, and how to reconnect."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("amqp+tcp://127.0.0.1:5672",)
    """Servers, which are tried in this order: ``amqp+tcp://host:port``, ``amqp+tls://host:port``,
    ``amqp+unix:///path``, ``amqp+ws://host:port/path``, ``amqp+wss://host:port/path`` or ``host:port``."""
    user: str = "guest"
    """The user name."""
    password: str = "guest"
    """The password.  ``${NAME}`` takes it from the environment, so that it is not in the file."""
    mechanism: Literal["PLAIN", "AMQPLAIN", "EXTERNAL"] = "PLAIN"
    """The SASL mechanism.  ``EXTERNAL``: the server identifies the client by the certificate of ``tls``."""
    vhost: str = "/"
    """The virtual host."""
    heartbeat: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 60
    """Seconds, as proposed by this side; the lower value of both sides is used.  0: no heartbeats."""
    frame_max: Annotated[int, msgspec.Meta(ge=4096, le=0xFFFF_FFFF)] = 131072
    """Octets of the largest frame, as proposed by this side; the lower value of both sides is used."""
    max_body_bytes: Count = 134_217_728
    """Octets of the largest message that is accepted."""
    connect_timeout: Seconds = 10.0
    """Seconds for each of: an attempt to connect, the TLS handshake, the login."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits between attempts: to connect, after all addresses were tried; to declare, consume or publish
    again."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""

    def dials_to(self) -> Iterator[tuple[str, str]]:
        """``Dials``: the servers."""
        for text in self.addresses:
            yield "addresses", str(parse_address(text, WIRE_TRANSPORTS, "amqp"))

    def __post_init__(self) -> None:
        for text in self.addresses:
            try:
                parse_address(text, WIRE_TRANSPORTS, "amqp")
            except ValueError as error:
                raise ValueError(f"addresses: {error}") from None
