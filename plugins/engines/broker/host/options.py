"""Options of a broker, and those that every listener has, whatever its protocol."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import WEB_TRANSPORTS, WIRE_TRANSPORTS, Address, parse_address
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions

if TYPE_CHECKING:
    from plugins.engines.broker.policies import Policy

Hashing: TypeAlias = Literal["sha256", "sha512", "md5"]
"""How a password was hashed."""


class TopicPatterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys of a topic exchange are for a user: regular expressions that are searched in the key.

    ``{username}``, ``{vhost}`` and, for MQTT clients, ``{client_id}`` in them stand for what they name.
    Empty: no restriction.
    """

    write: str = ""
    """Keys with which the user may publish."""
    read: str = ""
    """Keys with which the user may bind, and MQTT topics to which the user may subscribe."""

    def __post_init__(self) -> None:
        for operation in ("write", "read"):
            _check_pattern(operation, getattr(self, operation))


class VhostPermissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may do in one virtual host, in patterns like the user's own.  Empty: no restriction."""

    configure: str = ""
    """Queues and exchanges that the user may declare and delete."""
    write: str = ""
    """Exchanges to which the user may publish, and queues that the user may bind."""
    read: str = ""
    """Queues that the user may consume and purge, and exchanges to which the user may bind."""
    topics: dict[str, TopicPatterns] = {}
    """By the name of a topic exchange: the keys that are for the user there."""

    def __post_init__(self) -> None:
        for operation in ("configure", "write", "read"):
            _check_pattern(operation, getattr(self, operation))


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user, with permissions.  The patterns are regular expressions, searched in a resource's name."""

    password: str = ""
    """In plain text.  ``${NAME}`` takes it from the environment.  Empty: the user cannot log in by
    password."""
    password_hash: str = ""
    """Instead of ``password``, as in RabbitMQ's definitions: base64 of four octets of salt and the digest of
    salt and password."""
    hashing: Hashing = "sha256"
    """The hash function of ``password_hash``."""
    vhosts: tuple[str, ...] = ()
    """The virtual hosts that the user may open; empty: all, or those that ``permissions`` names."""
    configure: str = ""
    """Queues and exchanges that the user may declare and delete."""
    write: str = ""
    """Exchanges to which the user may publish, and queues that the user may bind."""
    read: str = ""
    """Queues that the user may consume and purge, and exchanges to which the user may bind."""
    topics: dict[str, TopicPatterns] = {}
    """By the name of a topic exchange: the keys that are for the user there, in every virtual host."""
    permissions: dict[str, VhostPermissions] = {}
    """Other patterns for single virtual hosts, by name.  The user may open these, too."""
    tags: tuple[str, ...] = ()
    """RabbitMQ's tags, which tools show and definitions have.  ``monitoring`` and ``administrator`` let the
    user read the pages of an engine of kind ``web``; others allow nothing."""
    from_anywhere: bool = True
    """Whether the user may connect from another machine."""
    max_connections: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Connections that the user may have at the same time; 0: any number."""

    def __post_init__(self) -> None:
        if self.password and self.password_hash:
            raise ValueError("a user has a password or a password_hash, not both")
        if self.password_hash:
            # Imported here because hashlib takes 3 ms to import, and plugins import this module when they are
            # loaded.
            from plugins.engines.broker.host.passwords import Password

            Password.from_hash(self.password_hash, self.hashing)
        for operation in ("configure", "write", "read"):
            _check_pattern(operation, getattr(self, operation))


def _check_pattern(operation: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{operation} = {pattern!r} is no regular expression: {error}") from None


class ExchangeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange to declare at the start."""

    name: str
    """Its name."""
    type: str = "direct"
    """``direct``, ``fanout``, ``topic``, ``headers``, or a type that a plugin registers."""
    durable: bool = True
    """Whether it survives a restart."""
    auto_delete: bool = False
    """Whether it is deleted with its last binding."""
    internal: bool = False
    """Whether messages can only come from other exchanges, not from publishers."""
    arguments: dict[str, Any] = {}
    """``alternate-exchange`` and others."""
    vhost: str = "/"
    """The virtual host in which it is declared."""


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to declare at the start."""

    name: str
    """Its name."""
    durable: bool = True
    """Whether it survives a restart."""
    auto_delete: bool = False
    """Whether it is deleted after its last consumer."""
    arguments: dict[str, Any] = {}
    """``x-message-ttl``, ``x-max-length`` and others."""
    vhost: str = "/"
    """The virtual host in which it is declared."""


class BindingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to make at the start."""

    exchange: str
    """The source exchange."""
    queue: str = ""
    """The destination, if it is a queue."""
    to_exchange: str = ""
    """The destination, if it is an exchange."""
    key: str = ""
    """The binding key or pattern."""
    arguments: dict[str, Any] = {}
    """The headers that a headers exchange has to match, and other arguments."""
    vhost: str = "/"
    """The virtual host in which it is made."""


# As in RabbitMQ.  Everybody knows the password, so the user may connect from this machine only.
GUEST = User(password="guest", from_anywhere=False)


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy: arguments of all queues or exchanges whose names match.

    Of several that match, the one of the highest priority applies.  Where a queue has the argument itself,
    the lesser of two numbers counts, and otherwise its own.  An exchange's own argument counts first.
    """

    pattern: str
    """A regular expression, searched in the names of queues and exchanges."""
    definition: dict[str, Any]
    """``message-ttl``, ``expires``, ``max-length``, ``max-length-bytes``, ``overflow``,
    ``dead-letter-exchange``, ``dead-letter-routing-key``, ``delivery-limit`` and ``queue-mode``, with the
    values that the arguments ``x-...`` have; for exchanges ``alternate-exchange``."""
    apply_to: Literal["queues", "exchanges", "all"] = "queues"
    """To what it applies."""
    priority: int = 0
    """Of several policies that match, the one of the highest priority applies."""
    vhost: str = "/"
    """The virtual host in which it applies."""

    def __post_init__(self) -> None:
        from plugins.engines.broker.policies import check_policy, unknown_keys

        check_policy(self.as_policy(""))
        unknown = unknown_keys(self.definition)
        if unknown:
            raise ValueError(f"definition: {unknown[0]!r} is not supported in a policy")

    def as_policy(self, name: str) -> Policy:
        """Return it as the broker takes it."""
        from plugins.engines.broker.policies import Policy

        return Policy(
            name=name,
            vhost=self.vhost,
            pattern=self.pattern,
            definition=self.definition,
            priority=self.priority,
            apply_to=self.apply_to,
        )


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that do not depend on a protocol."""

    users: dict[str, User] = msgspec.field(default_factory=lambda: {"guest": GUEST})
    """The users, by name.  The default is the user ``guest`` with the password ``guest``, from this machine
    only.  A table of your own replaces it.  A change of the file takes effect while the broker runs."""
    cluster_name: str = ""
    """The name of this broker, which clients get.  Each federated broker needs a name of its own.  Never
    change it: queues on other brokers are named after it."""
    vhosts: tuple[str, ...] = ("/",)
    """The virtual hosts."""
    vhost: str = "/"
    """The virtual host to which messages from routes are published."""
    shards: dict[str, str] = {}
    """Virtual hosts that another thread has, and the name of that thread: ``prices = "second"``.  With
    threads of kind ``process`` the broker uses several cores.  The others are in the engine's own thread,
    which must be in the process of the kernel; it listens for all."""
    shard: str = ""
    """Set by the kernel: the thread, in an engine that has some of another one's virtual hosts."""
    default_exchange: str = ""
    """The exchange for messages from routes that name no exchange, or one that does not exist."""
    exchanges: tuple[ExchangeOptions, ...] = ()
    """Exchanges to declare at the start."""
    queues: tuple[QueueOptions, ...] = ()
    """Queues to declare at the start."""
    bindings: tuple[BindingOptions, ...] = ()
    """Bindings to make at the start."""
    policies: dict[str, PolicyOptions] = {}
    """Policies, by name.  A change of the file takes effect while the broker runs."""
    definitions: str = ""
    """A file with definitions as ``rabbitmqctl export_definitions`` writes it, which is imported at each
    start.  Empty: none."""
    data_dir: str = ""
    """The folder for durable queues, exchanges and bindings, and for persistent messages.  They survive a
    restart.  Bodies of long queues are on disk only.  No other broker may use the folder.  Empty:
    everything is in memory."""
    fsync: bool = True
    """Whether a publisher's confirm waits until the message is synced to the disk, in groups.  False:
    until the operating system has it."""
    queue_bytes: Annotated[int, msgspec.Meta(ge=0)] = 67_108_864
    """Bytes of bodies that a queue has in memory.  Further bodies are on disk only.  Needs ``data_dir``."""
    all_queues_bytes: int | str = "20%"
    """Memory of all queues together, in bytes or as a share of this machine's memory.  Beyond it, bodies
    of the longest queues are on disk only.  Needs ``data_dir``.  0: no limit."""
    memory_limit: int | str = "40%"
    """Memory of the process, in bytes or as a share of this machine's memory, beyond which publishers have to
    wait.  0: no limit."""
    queued_limit: int | str = 0
    """The same for the memory of all queues.  0: no limit."""
    disk_free_limit: Annotated[int, msgspec.Meta(ge=0)] = 50_000_000
    """Publishers have to wait while the disk of ``disk_watched`` has fewer free bytes than this.
    0: no limit."""
    disk_watched: str = ""
    """A folder on the disk that is watched.  Empty: ``data_dir``; if that is empty too, no disk is
    watched."""

    def __post_init__(self) -> None:
        from plugins.engines.broker.host.resources import octets

        for limit in ("memory_limit", "queued_limit", "all_queues_bytes"):
            try:
                octets(getattr(self, limit), whole=0)
            except ValueError as error:
                raise ValueError(f"{limit}: {error}") from None
        self._check_shards()
        if self.data_dir:
            # A program that changes its working directory later means the same folder.
            msgspec.structs.force_setattr(self, "data_dir", os.path.abspath(self.data_dir))
        # What is imported or was stored may have more of everything.
        if not (self.definitions or self.data_dir):
            self._look_for_unknown_names()

    def has(self, vhost: str) -> bool:
        """Whether a virtual host is this shard's own.  Those that nobody has named are the first one's."""
        return self.shards.get(vhost, "") == self.shard

    def of_this_shard(self) -> Self:
        """Return the options with what is this shard's own: the others declare the rest.

        ``users`` and ``vhosts`` stay whole: a user that is only for another virtual host is not for any.
        """
        if not self.shards:
            return self
        own = [vhost for vhost in self.vhosts if self.has(vhost)]
        changes: dict[str, Any] = {}
        # The first shard keeps the folder that it had before there were others.
        if self.shard:
            changes["vhost"] = own[0]
            if self.data_dir:
                changes["data_dir"] = f"{self.data_dir}-{self.shard}"
        for name in ("exchanges", "queues", "bindings"):
            changes[name] = tuple(each for each in getattr(self, name) if self.has(each.vhost))
        changes["policies"] = {name: each for name, each in self.policies.items() if self.has(each.vhost)}
        return msgspec.structs.replace(self, **changes)

    def _check_shards(self) -> None:
        for vhost in self.shards:
            if vhost not in self.vhosts:
                raise ValueError(f"shards: {vhost!r} is not in vhosts ({', '.join(self.vhosts)})")
        if not self.shard and self.vhost in self.shards:
            raise ValueError(
                f"shards: {self.vhost!r} is the virtual host of the routes (vhost), so it is in the engine's own thread"
            )

    def folders(self) -> Iterator[tuple[str, str]]:
        """``WritesFolders``: the folder of the store."""
        if self.data_dir:
            yield "data_dir", self.data_dir

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """``NeedsFiles``: the definitions."""
        if not self.definitions:
            return
        try:
            with open(self.definitions, "rb"):
                pass
        except OSError as error:
            yield (
                "definitions",
                f"{self.definitions}: {error.strerror}; name a file that exists, or remove the key",
            )

    def _look_for_unknown_names(self) -> None:
        """``ValueError`` for a virtual host, or an end of a binding, that this broker will not have."""
        for option, vhost in self._named_vhosts():
            if vhost not in self.vhosts:
                known = ", ".join(self.vhosts)
                raise ValueError(
                    f"{option}: {vhost!r} is not in vhosts ({known}); add it there, or name one of them"
                )
        queues = {(each.vhost, each.name) for each in self.queues}
        exchanges = {(each.vhost, each.name) for each in self.exchanges}
        for binding in self.bindings:
            if binding.queue and (binding.vhost, binding.queue) not in queues:
                raise ValueError(f"bindings: there is no queue {binding.queue!r} in queues")
            for name in filter(None, (binding.exchange, binding.to_exchange)):
                if not name.startswith("amq.") and (binding.vhost, name) not in exchanges:
                    raise ValueError(f"bindings: there is no exchange {name!r} in exchanges")

    def _named_vhosts(self) -> Iterator[tuple[str, str]]:
        """Return the virtual hosts that options name, each with its option."""
        yield "vhost", self.vhost
        for option in ("exchanges", "queues", "bindings"):
            for number, each in enumerate(getattr(self, option)):
                yield f"{option}[{number}].vhost", each.vhost
        for name, policy in self.policies.items():
            yield f"policies.{name}.vhost", policy.vhost
        for name, user in self.users.items():
            for vhost in user.vhosts:
                yield f"users.{name}.vhosts", vhost


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of each listener of a broker, whatever its protocol.  A front end adds its own to these."""

    address: str
    """Where to listen: ``host:port`` (port 0 takes a free one), ``tcp://host:port``, ``tls://host:port``,
    ``unix:///path``, or WebSocket: ``ws://host:port/path``, ``wss://host:port/path``.  Listeners for
    WebSocket may share a port: the path says which one a client means."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss``.  If client certificates are required, the name in a certificate may log in."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss``."""
    anonymous: str = ""
    """The user of clients that log in without a name.  Empty: such clients are refused."""
    handshake_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds that a client may take to log in."""
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Connections that the listener has at the same time.  Further ones are closed at once."""
    connections_per_second: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Connections that are accepted per second.  Further ones are closed at once.  0: any number."""
    publish_rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Messages per second that each connection may publish; it is not read faster.  0: any number."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1)] = 134_217_728
    """Bytes of the largest message that is accepted."""

    def __post_init__(self) -> None:
        try:
            address = self._parsed()
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        self.tls.check_listener(address.transport)

    def _parsed(self) -> Address:
        scheme, separator, _ = self.address.partition("://")
        protocol, plus, _ = scheme.partition("+")
        return listener_address(self.address, protocol if separator and plus else "protocol")

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: its address."""
        address = self._parsed()
        place = address.listening_place()
        if address.transport in WEB_TRANSPORTS:
            # Listeners of one broker share a port if their paths differ (``share_ports``).
            place = msgspec.structs.replace(place, path=address.path)
        yield "address", place


class ManyListenersOptions(BrokerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker that serves any number of protocols."""

    listeners: tuple[dict[str, Any], ...] = ()
    """Each table has ``protocol``, the name of a front end, and the options of this front end.  Without a
    listener only applications in this process can use the broker."""


class BrokerClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An application's own access to a broker of the same kernel, without a socket."""

    broker: str
    """The name of the broker's engine."""
    vhost: str = "/"
    """The virtual host."""
    user: str = ""
    """The user whose permissions are checked, without a password.  Empty: everything is allowed."""
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
