"""What can be set for a broker, whatever protocols it serves."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from kernel.hosting.address import WIRE_TRANSPORTS, Address, parse_address
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions

Hashing: TypeAlias = Literal["sha256", "sha512", "md5"]
"""How a password was hashed."""


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may log in, and to do what.  The patterns are regular expressions searched in a resource's name."""

    password: str = ""
    """In plain text; take it from the environment: ``${NAME}``.  Empty: no password lets this user in."""
    password_hash: str = ""
    """Instead of it: as RabbitMQ's definitions have it, base64 of four octets of salt and the digest of
    both."""
    hashing: Hashing = "sha256"
    """What made ``password_hash``."""
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
    max_connections: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many connections the user may have open at a time; 0: any number."""

    def __post_init__(self) -> None:
        if self.password and self.password_hash:
            raise ValueError("a user has a password or a password_hash, not both")
        if self.password_hash:
            # Imported here because hashlib takes 3 ms to import, and plugins import this module when they are
            # loaded.
            from plugins.engines.broker.host.passwords import Password

            Password.from_hash(self.password_hash, self.hashing)
        for operation in ("configure", "write", "read"):
            pattern = getattr(self, operation)
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{operation} = {pattern!r} is no regular expression: {error}") from None


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


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all front ends of a broker share."""

    users: dict[str, User] = msgspec.field(default_factory=lambda: {"guest": GUEST})
    """Who may log in, by name.  By default guest/guest, and only from this machine; a table of your own
    replaces it."""
    cluster_name: str = ""
    """The broker's name among others, told to clients; brokers that are federated need one each.  Keep it for
    ever."""
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
    definitions: str = ""
    """A file with definitions as ``rabbitmqctl export_definitions`` writes them, to import at each start;
    empty: none."""
    data_dir: str = ""
    """A folder for what is durable: queues, exchanges, bindings and their persistent messages outlive the
    process, and long queues do not fill the memory.  Of this broker alone.  Empty: all is in memory."""
    fsync: bool = True
    """Whether a publisher's confirm waits until the disk has the message (a group at a time), not only the
    operating system."""
    queue_bytes: Annotated[int, msgspec.Meta(ge=0)] = 67_108_864
    """Bodies that a queue holds in memory, where there is a ``data_dir``; what is more waits on the disk."""
    all_queues_bytes: int | str = "20%"
    """Bytes, or a share of this machine's memory, that all queues together may take where there is a
    ``data_dir``, before the longest of them wait on the disk; 0: any amount."""
    memory_limit: int | str = "40%"
    """Bytes, or a share of this machine's memory, that the process may have before publishers have to wait;
    0: any amount."""
    queued_limit: int | str = 0
    """The same for what the queues hold; 0: any amount."""
    disk_free_limit: int = 50_000_000
    """Bytes that have to stay free on the disk of ``disk_watched``, or publishers have to wait."""
    disk_watched: str = ""
    """A folder; empty: ``data_dir``, and if there is none, no disk is watched."""

    def __post_init__(self) -> None:
        from plugins.engines.broker.host.resources import octets

        for limit in ("memory_limit", "queued_limit", "all_queues_bytes"):
            try:
                octets(getattr(self, limit), whole=0)
            except ValueError as error:
                raise ValueError(f"{limit}: {error}") from None


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each listener of a broker has, whatever its protocol.  A front end adds its own to these."""

    address: str
    """Where to listen: ``host:port`` (port 0 takes a free one), ``tcp://host:port``, ``tls://host:port``,
    ``unix:///path``, or WebSocket: ``ws://host:port/path``, ``wss://host:port/path``."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss``.  Where client certificates are required, the name in one may log in."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss``."""
    anonymous: str = ""
    """The user that clients are who log in without a name; empty: nobody may."""
    handshake_seconds: float = 10.0
    """Seconds that a client may take to log in."""
    max_connections: int = 10_000
    """Connections that the listener has at once; more are closed at once."""
    connections_per_second: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Connections that are accepted a second; more are closed at once.  0: any number."""
    publish_rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Messages a second that each connection may publish: it is read no faster.  0: any number."""
    max_body_bytes: int = 134_217_728
    """The largest message that is taken."""

    def __post_init__(self) -> None:
        scheme, separator, _ = self.address.partition("://")
        protocol, plus, _ = scheme.partition("+")
        try:
            listener_address(self.address, protocol if separator and plus else "protocol")
        except ValueError as error:
            raise ValueError(f"address: {error}") from None


class ManyListenersOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker that serves any number of protocols."""

    listeners: tuple[dict[str, Any], ...] = ()
    """Each has a ``protocol``, which is a front end, and the options of that.  None: only applications in
    this process can use the broker."""


class BrokerClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application's own access to a broker of the same kernel, without a socket."""

    broker: str
    """The engine."""
    vhost: str = "/"
    """The virtual host."""
    user: str = ""
    """Whose permissions count; no password is asked for.  Empty: everything is allowed."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """Seconds that a call may wait for the broker's thread."""


def listener_address(text: str, protocol: str) -> Address:
    """Read the address of a listener; ``ValueError`` says what is wrong with it.

    The protocol is known, so that it may be left out: ``tcp://127.0.0.1:5672`` and ``127.0.0.1:5672`` will
    do.
    """
    scheme, separator, _ = text.partition("://")
    if separator and scheme in WIRE_TRANSPORTS:
        text = f"{protocol}+{text}"
    return parse_address(text, WIRE_TRANSPORTS, protocol)
