"""What can be set for an AMQP server engine."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel.hosting.tls_options import TlsOptions


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may log in, and to do what.  The patterns are regular expressions searched in a resource's name."""

    password: str
    """In plain text; take it from the environment: ``${NAME}``."""
    vhosts: tuple[str, ...] = ()
    """The virtual hosts that the user may open; empty: all."""
    configure: str = ""
    """Queues and exchanges that may be declared and deleted."""
    write: str = ""
    """Exchanges that may be published to, queues that may be bound."""
    read: str = ""
    """Queues that may be read and purged, exchanges that may be bound to."""
    from_anywhere: bool = True
    """Whether the user may come from another machine."""


class ExchangeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange to declare at the start."""

    name: str
    """Its name."""
    type: str = "direct"
    """``direct``, ``fanout``, ``topic`` or ``headers``."""
    durable: bool = True
    """Whether it outlives a restart."""
    auto_delete: bool = False
    """Whether it goes with its last binding."""
    internal: bool = False
    """Whether only other exchanges may lead to it."""
    arguments: dict[str, Any] = {}
    """``alternate-exchange`` and others."""
    vhost: str = "/"
    """Where to declare it."""


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to declare at the start."""

    name: str
    """Its name."""
    durable: bool = True
    """Whether it outlives a restart."""
    auto_delete: bool = False
    """Whether it goes with its last consumer."""
    arguments: dict[str, Any] = {}
    """``x-message-ttl``, ``x-max-length`` and others."""
    vhost: str = "/"
    """Where to declare it."""


class BindingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to make at the start."""

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
    vhost: str = "/"
    """Where to make it."""


GUEST = User(password="guest", from_anywhere=False)  # the one that everybody knows


class AmqpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 server with its broker."""

    address: str = "127.0.0.1:5672"
    """Where to listen: ``host:port`` (port 0 takes a free one), ``amqp+tls://host:port``
    or ``amqp+unix:///path``."""
    tls: TlsOptions = TlsOptions()
    """For ``amqp+tls``.  Where client certificates are required, the name in one may log in (SASL EXTERNAL)."""
    users: dict[str, User] = msgspec.field(default_factory=lambda: {"guest": GUEST})
    """Who may log in, by name.  By default guest/guest, and only from this machine; a table of your own replaces it."""
    vhosts: tuple[str, ...] = ("/",)
    """The virtual hosts."""
    vhost: str = "/"
    """Where messages go that come over routes."""
    default_exchange: str = ""
    """Where messages from routes are published that name no exchange, or none that is there."""
    exchanges: tuple[ExchangeOptions, ...] = ()
    """Exchanges to declare at the start."""
    queues: tuple[QueueOptions, ...] = ()
    """Queues to declare at the start."""
    bindings: tuple[BindingOptions, ...] = ()
    """Bindings to make at the start."""
    frame_max: int = 131072
    """The largest frame; at least 4096."""
    channel_max: int = 2047
    """How many channels a connection may open."""
    heartbeat: int = 60
    """Seconds: what is proposed to clients; 0: none."""
    handshake_seconds: float = 10.0
    """How long a client may take to log in."""
    max_connections: int = 10_000
    """More are hung up on at once."""
    max_body_bytes: int = 134_217_728
    """The largest message that is taken."""
