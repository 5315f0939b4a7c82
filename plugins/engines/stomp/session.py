"""Session: what a client has after CONNECT, and the queues that its destinations need."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from typing import Protocol as Interface

from kernel.contracts.message import Buffer, Envelope
from plugins.engines.broker.public import (
    BrokerEngine,
    Login,
    Publisher,
    Queue,
    VirtualHost,
    Window,
    check_properties,
    invent_name,
)
from plugins.engines.stomp.options import StompListenerOptions
from plugins.protocols.stomp.destinations import Destination
from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.properties import is_true
from plugins.protocols.stomp.versions import Version

SUBSCRIPTION_QUEUE = "stomp-subscription-"
"""How the names of queues begin that belong to a subscription."""
_TEXTS = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-overflow",
    "x-queue-mode",
    "x-queue-type",
)
_NUMBERS = (
    "x-delivery-limit",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
)
_LONGEST_NUMBER = 18
_MOST_DECLARED = 4096


class SessionClient(Interface):
    """What a session needs of the client that it belongs to: ``StreamClient`` has it."""

    engine: BrokerEngine
    is_busy: Callable[[], None]
    window: Window
    published: bool
    messages_in: int
    messages_out: int

    def send(self, data: Buffer) -> None:
        """Have bytes written at the end of this turn."""
        ...

    def fail(self, fault: Fault) -> None:
        """Send an ERROR frame, and close the connection."""
        ...


class StompPublisher(Publisher):
    """Publishes what a client sends."""

    def check(self, envelope: Envelope) -> Envelope:
        """Check the properties that the client has set."""
        check_properties(envelope, self.login.name)
        return envelope


class Session:
    """One client that is connected."""

    def __init__(
        self,
        client: SessionClient,
        login: Login,
        vhost: VirtualHost,
        version: Version,
        options: StompListenerOptions,
    ) -> None:
        self.client = client
        self.login = login
        self.vhost = vhost
        self.version = version
        self.options = options
        self.name = invent_name("session-", vhost.broker.random)
        """The header ``session``; identifiers of messages have it, too."""
        self.confirms = client.engine.feed.make_confirms()
        self.publisher = StompPublisher(vhost, login, client.engine.feed)
        self.publisher.confirms = self.confirms
        self._declared: set[str] = set()
        """Queues that this connection has declared."""

    def declare_queue(self, name: str, headers: Mapping[str, str], now: float) -> Queue:
        """Declare the queue of a destination /queue/NAME: a durable one, unless the headers say otherwise.

        A connection does so once, as in RabbitMQ: later frames need not repeat the headers of the first.
        """
        if name in self._declared and name in self.vhost.queues:
            return self.vhost.find_queue(name, self)
        queue = self._declare(name, headers, now, durable=_flag(headers, "durable", default=True))
        # A client may name any number of queues. One that is forgotten is only declared once more.
        if len(self._declared) >= _MOST_DECLARED:
            self._declared.clear()
        self._declared.add(name)
        return queue

    def declare_subscription_queue(
        self, destination: Destination, identifier: str, headers: Mapping[str, str], now: float
    ) -> Queue:
        """Declare the queue of one subscription to a topic or an exchange, and bind it."""
        durable = _flag(headers, "durable", default=False)
        name = headers.get("x-queue-name") or (
            _durable_name(destination.routing_key, identifier)
            if durable
            else invent_name(SUBSCRIPTION_QUEUE, self.vhost.broker.random)
        )
        # Everything is checked before anything is declared, so that a refusal leaves no queue behind.
        self.login.require("read", "queue", name, self.vhost.name)
        self.login.require_binding(destination.exchange, "queue", name, destination.routing_key, self.vhost)
        self.vhost.find_exchange(destination.exchange)
        # As RabbitMQ: the queue of a subscription to an exchange is exclusive, that of one to a topic is not.
        exclusive = destination.kind == "exchange"
        queue = self._declare(name, headers, now, durable=durable, exclusive=exclusive, auto_delete=True)
        self.vhost.bind(destination.exchange, queue, destination.routing_key)
        return queue

    def make_temporary_queue(self, now: float) -> Queue:
        """Declare a queue for replies to this connection alone."""
        name = invent_name("stomp.gen-", self.vhost.broker.random)
        return self._declare(name, {}, now, durable=False)

    def delete_queue(self, name: str, now: float) -> None:
        """Delete the queue of a durable subscription."""
        self.login.require("configure", "queue", name, self.vhost.name)
        self.vhost.delete_queue(name, self, now)

    def _declare(
        self,
        name: str,
        headers: Mapping[str, str],
        now: float,
        *,
        durable: bool,
        exclusive: bool | None = None,
        auto_delete: bool | None = None,
    ) -> Queue:
        arguments = _arguments(headers)
        self.login.require_queue(name, arguments, self.vhost)
        # RabbitMQ's defaults: what does not outlive the broker does not outlive its client either.
        temporary = not durable
        return self.vhost.declare_queue(
            name,
            self,
            now,
            durable=durable,
            exclusive=_flag(headers, "exclusive", default=temporary if exclusive is None else exclusive),
            auto_delete=_flag(
                headers, "auto-delete", default=temporary if auto_delete is None else auto_delete
            ),
            arguments=arguments,
        )


def _flag(headers: Mapping[str, str], name: str, *, default: bool) -> bool:
    found = is_true(headers, name)
    return default if found is None else found


def _arguments(headers: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {name: headers[name].strip() for name in _TEXTS if name in headers}
    for name in _NUMBERS:
        if name in headers:
            arguments[name] = number_of(headers, name)
    single = is_true(headers, "x-single-active-consumer")
    if single is not None:
        arguments["x-single-active-consumer"] = single
    return arguments


def number_of(headers: Mapping[str, str], name: str) -> int:
    """Return a header that has to be a number.  Raises ``Fault``."""
    text = headers[name].strip(" ")
    # ``isascii``: there are digits of other scripts.
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _LONGEST_NUMBER):
        raise Fault("Invalid header", f"{name} must be a number, and not {headers[name]!r:.80}\n")
    return int(text)


def _durable_name(key: str, identifier: str) -> str:
    """Return the same name for the same destination and subscription, in every connection."""
    # A digest, because key and identifier may be longer than the name of a queue. The NUL keeps different
    # pairs different when they are joined.
    digest = sha256(f"{key}\0{identifier}".encode()).digest()[:16]
    return SUBSCRIPTION_QUEUE + urlsafe_b64encode(digest).rstrip(b"=").decode()
