"""Options of an AMQP client engine."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

import msgspec

from plugins.engines.amqp_client.connect_options import ConnectOptions, Count, Seconds


class ClientExchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange to declare after each login."""

    name: str
    """Its name."""
    type: str = "direct"
    """``direct``, ``fanout``, ``topic``, ``headers``, or another type that the server has."""
    durable: bool = True
    """Whether it outlives a restart of the server."""
    auto_delete: bool = False
    """Whether the server deletes it after its last binding."""
    internal: bool = False
    """Whether messages can only come from other exchanges, not from publishers."""
    passive: bool = False
    """Only look whether it is there."""
    arguments: dict[str, Any] = {}
    """``alternate-exchange`` and others."""


class ClientQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to declare after each login."""

    name: str
    """Its name.  ``""``: the server makes a name, a new one for each connection; bindings and consumers refer
    to the queue as ``""``."""
    durable: bool = True
    """Whether it outlives a restart of the server."""
    exclusive: bool = False
    """Whether only this connection may use it; the server deletes it when the connection ends."""
    auto_delete: bool = False
    """Whether the server deletes it after its last consumer."""
    passive: bool = False
    """Only look whether it is there."""
    arguments: dict[str, Any] = {}
    """``x-message-ttl``, ``x-max-length`` and others."""

    def __post_init__(self) -> None:
        if not self.name and not (self.exclusive or self.auto_delete):
            raise ValueError(
                'a queue that the server names (name = "") must be exclusive or auto_delete: '
                "each connection would leave one behind"
            )


class ClientBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to declare after each login."""

    exchange: str
    """The source exchange."""
    queue: str = ""
    """The destination, if it is a queue.  ``""``: the queue that the server names."""
    to_exchange: str = ""
    """The destination, if it is an exchange."""
    key: str = ""
    """The binding key or pattern."""
    arguments: dict[str, Any] = {}
    """The headers that a headers exchange has to match, and other arguments."""


class ConsumeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to consume from."""

    queue: str
    """Its name; ``""``: the one that the server names, which must be among ``queues``."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """Unacked messages at most: the server sends no more before it gets acknowledgements."""
    no_ack: bool = False
    """The server expects no acknowledgements.  This is faster; messages are lost if this process or the
    connection dies."""
    exclusive: bool = False
    """Whether nobody else may consume from the queue."""
    stop_after: Count | Literal["queue-length"] | None = None
    """Finish after this many messages.  ``queue-length``: as many as the queue has at the start.  None:
    never."""
    arguments: dict[str, Any] = {}
    """``x-priority`` and others."""

    def __post_init__(self) -> None:
        if self.no_ack and self.stop_after is not None:
            raise ValueError(
                "stop_after needs acknowledgements, because messages beyond it go back to the queue"
            )


class AmqpClientOptions(ConnectOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 client: it publishes messages from routes, and sends what it consumes to routes."""

    exchange: str | None = None
    """The exchange to which all messages are published.  None: the exchange of each message's envelope, or
    the default exchange if that is empty."""
    key: str | None = None
    """The routing key of all messages.  None: each keeps its own."""
    persistent: bool = False
    """Whether all messages are published as persistent.  False: only those that are persistent already."""
    mandatory: bool = True
    """Whether the server returns messages that no queue gets.  They are counted and reported."""
    in_flight: Count = 10_000
    """Messages that are published and not yet confirmed by the server, at most."""
    confirm_timeout: Seconds = 30.0
    """Seconds without any confirmation while messages are in flight, after which the connection is closed;
    all these messages are then sent again on the next one.  The time during which the server blocks
    publishers does not count."""
    when_refused: Literal["wait", "drop"] = "wait"
    """What to do with a message for an exchange that does not exist or is forbidden (404, 403).  ``wait``:
    try again until the server accepts it; all messages behind it wait, too.  ``drop``: drop and count it.  A
    message that is too large for the server (406) is always dropped."""
    consume: tuple[ConsumeOptions, ...] = ()
    """Queues to consume from."""
    exchanges: tuple[ClientExchange, ...] = ()
    """Exchanges to declare after each login."""
    queues: tuple[ClientQueue, ...] = ()
    """Queues to declare after each login."""
    bindings: tuple[ClientBinding, ...] = ()
    """Bindings to declare after each login."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = Counter(queue.name for queue in self.queues)
        if names[""] > 1:
            raise ValueError(
                'only one queue can have name = "": bindings and consumers could not tell them apart'
            )
        bound = any(not (binding.queue or binding.to_exchange) for binding in self.bindings)
        if not names[""] and (bound or any(not each.queue for each in self.consume)):
            raise ValueError(
                'a binding or consumer names no queue: add one with name = "" and exclusive = true to queues'
            )
