"""What can be set for an AMQP client engine."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class ClientExchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange to declare after each login."""

    name: str
    """Its name."""
    type: str = "direct"
    """``direct``, ``fanout``, ``topic``, ``headers``, or what the server has besides."""
    durable: bool = True
    """Whether it outlives a restart of the server."""
    auto_delete: bool = False
    """Whether it goes with its last binding."""
    internal: bool = False
    """Whether only other exchanges may lead to it."""
    passive: bool = False
    """Only look whether it is there."""
    arguments: dict[str, Any] = {}
    """``alternate-exchange`` and others."""


class ClientQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to declare after each login."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """Its name."""
    durable: bool = True
    """Whether it outlives a restart of the server."""
    exclusive: bool = False
    """Whether it is for this connection only and goes with it."""
    auto_delete: bool = False
    """Whether it goes with its last consumer."""
    passive: bool = False
    """Only look whether it is there."""
    arguments: dict[str, Any] = {}
    """``x-message-ttl``, ``x-max-length`` and others."""


class ClientBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to make after each login."""

    exchange: str
    """The exchange that it leads away from."""
    queue: str = ""
    """The queue that it leads to, or:"""
    to_exchange: str = ""
    """The exchange that it leads to."""
    key: str = ""
    """The binding key or pattern."""
    arguments: dict[str, Any] = {}
    """What a headers exchange is to match."""


class ConsumeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to consume from."""

    queue: Annotated[str, msgspec.Meta(min_length=1)]
    """Its name."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """Messages that the server sends before it waits for acknowledgements: what may be on its way here."""
    no_ack: bool = False
    """The server forgets a message when it has sent it: faster, and lost if this process or its line dies."""
    exclusive: bool = False
    """Whether nobody else may consume from the queue."""
    arguments: dict[str, Any] = {}
    """``x-priority`` and others."""


class AmqpClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 client that publishes what routes bring, and hands on what it consumes."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("amqp+tcp://127.0.0.1:5672",)
    """Servers, tried in turn: ``amqp+tcp://host:port``, ``amqp+tls://host:port``, ``amqp+unix:///path`` or ``host:port``."""
    user: str = "guest"
    """Who logs in (SASL PLAIN)."""
    password: str = "guest"
    """In plain text; take it from the environment: ``${NAME}``."""
    vhost: str = "/"
    """The virtual host."""
    exchange: str | None = None
    """Where all messages from routes are published; None: to the exchange that each came from, or the default one."""
    key: str | None = None
    """The routing key of all messages from routes; None: each keeps its own."""
    persistent: bool = False
    """Whether all messages are published as persistent; false: those that came so."""
    mandatory: bool = True
    """Whether the server tells of messages that no queue wanted: they are counted and reported."""
    in_flight: Count = 10_000
    """Messages published and not yet confirmed by the server, at the most."""
    consume: tuple[ConsumeOptions, ...] = ()
    """Queues to consume from."""
    exchanges: tuple[ClientExchange, ...] = ()
    """Exchanges to declare after each login."""
    queues: tuple[ClientQueue, ...] = ()
    """Queues to declare after each login."""
    bindings: tuple[ClientBinding, ...] = ()
    """Bindings to make after each login."""
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
