"""Options of the AMQP front end, and of the engine kind ``amqp``: a broker with one listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions
from plugins.engines.broker.contract import BrokerOptions, ListenerOptions, listener_address

# What connection.tune can hold, and the smallest frame that a peer must be able to read (AMQP 0-9-1, 1.4.2.5
# and 4.2.3).
FrameSize = Annotated[int, msgspec.Meta(ge=4096, le=0xFFFF_FFFF)]
Short = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class AmqpListenerOptions(ListenerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 listener of a broker."""

    frame_max: FrameSize = 131072
    """Bytes of the largest frame."""
    channel_max: Short = 2047
    """Channels that a connection may open.  0: as many as AMQP can number, 65,535."""
    heartbeat: Short = 60
    """Seconds, as proposed to clients.  0: no heartbeats."""
    product: str = "RabbitMQ"
    """What the server says it is.  Clients decide by it how to use prefetch and other extensions, and this
    one behaves as RabbitMQ does.  ``broker`` in the server's properties says ``messaging-kernel``."""
    product_version: str = "3.10.8"
    """The version of that product: clients compare it."""


class AmqpOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 server with its broker.

    The fields of its one listener are repeated here, since a Struct can have only one base class with fields.
    """

    address: str = "127.0.0.1:5672"
    """Where to listen: ``host:port`` (port 0 takes a free one), ``amqp+tls://host:port``,
    ``amqp+unix:///path``, or WebSocket: ``amqp+ws://host:port/path``, ``amqp+wss://host:port/path``."""
    tls: TlsOptions = TlsOptions()
    """For ``amqp+tls`` and ``amqp+wss``.  If client certificates are required, the name in a certificate
    may log in (SASL EXTERNAL)."""
    web: WebOptions = WebOptions()
    """For ``amqp+ws`` and ``amqp+wss``."""
    anonymous: str = ""
    """The user of clients that log in without a name (SASL ANONYMOUS).  Empty: such clients are refused."""
    frame_max: FrameSize = 131072
    """Bytes of the largest frame."""
    channel_max: Short = 2047
    """Channels that a connection may open.  0: as many as AMQP can number, 65,535."""
    heartbeat: Short = 60
    """Seconds, as proposed to clients.  0: no heartbeats."""
    product: str = "RabbitMQ"
    """What the server says it is.  Clients decide by it how to use prefetch and other extensions, and this
    one behaves as RabbitMQ does.  ``broker`` in the server's properties says ``messaging-kernel``."""
    product_version: str = "3.10.8"
    """The version of that product: clients compare it."""
    handshake_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that a client may take to log in."""
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Connections at the same time.  Further ones are closed at once."""
    connections_per_second: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Connections that are accepted per second.  Further ones are closed at once.  0: any number."""
    publish_rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Messages per second that each connection may publish; it is not read faster.  0: any number."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1)] = 134_217_728
    """Bytes of the largest message that is accepted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            address = listener_address(self.address, "amqp")
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        self.tls.check_listener(address.transport)
        if self.anonymous and self.anonymous not in self.users:
            raise ValueError(
                f"anonymous = {self.anonymous!r} is none of the users: {', '.join(self.users) or 'none'}"
            )

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: its address."""
        yield "address", listener_address(self.address, "amqp").listening_place()

    def listener(self) -> AmqpListenerOptions:
        """Return the options of the one listener."""
        names = AmqpListenerOptions.__struct_fields__
        return AmqpListenerOptions(**{name: getattr(self, name) for name in names})
