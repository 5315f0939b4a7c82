"""Options of a STOMP client engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions
from plugins.protocols.stomp.errors import CannotCarry
from plugins.protocols.stomp.escapes import header_line
from plugins.protocols.stomp.properties import OF_FRAMES
from plugins.protocols.stomp.versions import Version

Seconds = Annotated[float, msgspec.Meta(gt=0)]
VersionName = Literal["1.0", "1.1", "1.2"]

_OF_SUBSCRIBE = frozenset(("ack", "destination", "id", "prefetch-count", "receipt", "selector"))


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to get from the broker."""

    destination: str
    """As the broker names it: ``/queue/orders``, ``/topic/readings.#``."""
    id: str = ""
    """The identifier of the subscription.  A durable subscription has the same one each time.  ``""``: the
    destination."""
    ack: Literal["client", "client-individual"] = "client"
    """``client``: one ACK for all messages up to one; ``client-individual``: one for each message.  STOMP 1.0
    has only ``client``, with an ACK for each."""
    prefetch: Annotated[int, msgspec.Meta(ge=0)] = 1000
    """Messages that the broker may send before the first of them is confirmed by the routes (header
    ``prefetch-count``, which RabbitMQ and the broker of this kernel know).  0: the broker decides."""
    selector: str = ""
    """Which messages, in the broker's language; ``""``: all.  RabbitMQ and the broker of this kernel have
    none."""
    headers: dict[str, str] = {}
    """More headers of SUBSCRIBE: ``{ durable = "true", auto-delete = "false" }``."""

    def __post_init__(self) -> None:
        _check_value("destination", self.destination)
        _check_value("id", self.identifier)
        _check_value("selector", self.selector)
        _check_headers("headers", self.headers, _OF_SUBSCRIBE)
        if not self.destination:
            raise ValueError("destination: it is empty; name what to subscribe to, as in /queue/orders")

    @property
    def identifier(self) -> str:
        """The identifier of the subscription."""
        return self.id or self.destination


class StompClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A STOMP client: it publishes messages from routes, and sends what it has subscribed to on routes."""

    address: str = "stomp+tcp://127.0.0.1:61613"
    """The broker: ``stomp+tcp://host:port``, ``stomp+tls://host:port``, ``stomp+unix:///path``,
    ``stomp+ws://host:port/path``, ``stomp+wss://host:port/path`` or ``host:port``."""
    versions: tuple[VersionName, ...] = ("1.0", "1.1", "1.2")
    """The versions that are offered; the broker chooses the highest that it knows."""
    login: str = ""
    """The user name; ``""``: the client does not log in."""
    passcode: str = ""
    """The password.  ``${NAME}`` takes it from the environment, so that it is not in the file."""
    host: str = "/"
    """The virtual host."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 10.0
    """Seconds between heart-beats, in both directions; the broker may want longer intervals.  A broker that
    is silent for two intervals is given up.  0: no heart-beats.  STOMP 1.0 has none."""
    subscriptions: tuple[SubscriptionOptions, ...] = ()
    """What to get from the broker."""
    exchange: str | None = None
    """The exchange of the messages that come from the broker.  None: the one in their destination
    (``/exchange/NAME/KEY``, ``amq.topic`` for ``/topic/KEY``, none for ``/queue/NAME``)."""
    destination: str | None = None
    """The destination of all messages that are published; ``{key}`` in it stands for the key of each.  None:
    ``/queue/KEY``, ``/topic/KEY`` for the exchange ``amq.topic``, ``/exchange/NAME/KEY`` for others."""
    send_headers: dict[str, str] = {}
    """More headers of SEND."""
    persistent: bool = False
    """Whether all messages are published as persistent ones (``persistent:true``), or only those that are."""
    receipts: Literal["auto", "each", "batch"] = "auto"
    """Which SEND frames ask for a receipt.  ``each``: all.  ``batch``: the last one of a batch, which is
    quicker.  It is safe if the broker sends a receipt only when all messages before it are safe, too; STOMP
    does not demand that.  ``auto``: ``batch`` if the broker is of this kernel, otherwise ``each``."""
    in_flight: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Messages that are published and have no receipt yet, at most."""
    confirm_timeout: Seconds = 30.0
    """Seconds without any receipt while messages are in flight, after which the connection is closed; all
    these messages are then sent again on the next one."""
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 134_217_728
    """Bytes of the largest body that is accepted.  A larger one ends the connection."""
    connect_timeout: Seconds = 10.0
    """Seconds for each of: an attempt to connect, the TLS handshake, the login, a subscription."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits between attempts: to connect, and to subscribe again to what the broker has refused."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""

    def dials_to(self) -> Iterator[tuple[str, str]]:
        """``Dials``: the broker's address."""
        yield "address", str(parse_address(self.address, WIRE_TRANSPORTS, "stomp"))

    def __post_init__(self) -> None:
        try:
            parse_address(self.address, WIRE_TRANSPORTS, "stomp")
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if not self.versions:
            raise ValueError("versions: name one at least")
        if self.passcode and not self.login:
            raise ValueError("passcode: there is no passcode without a user name: set login")
        for name in ("login", "passcode", "host"):
            # CONNECT has no escapes in any version.
            if "\n" in getattr(self, name) or "\0" in getattr(self, name):
                raise ValueError(f"{name}: CONNECT cannot carry a line feed or NUL")
        if self.destination is not None:
            _check_value("destination", self.destination)
            if not self.destination:
                raise ValueError("destination: it is empty; name where to publish, as in /queue/orders")
        _check_headers("send_headers", self.send_headers, OF_FRAMES)
        counts = Counter(each.identifier for each in self.subscriptions)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise ValueError(
                f"subscriptions: {twice[0]!r} is there twice: remove one, or give each an id of its own"
            )


def _check_value(name: str, value: str) -> None:
    try:
        header_line(name, value, Version.V1_2)
    except CannotCarry as error:
        raise ValueError(f"{name}: {error}") from None


def _check_headers(option: str, headers: dict[str, str], taken: frozenset[str]) -> None:
    for name, value in headers.items():
        if name in taken:
            raise ValueError(f"{option}: {name!r} is set by the engine: remove it here")
        try:
            header_line(name, value, Version.V1_2)
        except CannotCarry as error:
            raise ValueError(f"{option}: {error}") from None
