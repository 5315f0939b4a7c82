"""What can be set for an AMQP client engine."""

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

    name: str
    """Its name.  ``""``: the server invents one, a new one for each connection; bindings and consumers call it ``""``."""
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

    def __post_init__(self) -> None:
        if not self.name and not (self.exclusive or self.auto_delete):
            raise ValueError(
                'a queue that the server names (name = "") must be exclusive or auto_delete: '
                "each connection would leave one behind"
            )


class ClientBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to make after each login."""

    exchange: str
    """The exchange that it leads away from."""
    queue: str = ""
    """The queue that it leads to (``""``: the one that the server names), or:"""
    to_exchange: str = ""
    """The exchange that it leads to."""
    key: str = ""
    """The binding key or pattern."""
    arguments: dict[str, Any] = {}
    """What a headers exchange is to match."""


class ConsumeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to consume from."""

    queue: str
    """Its name; ``""``: the one that the server names, which must be among ``queues``."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """Messages that the server sends before it waits for acknowledgements: what may be on its way here."""
    no_ack: bool = False
    """The server forgets a message when it has sent it: faster, and lost if this process or its line dies."""
    exclusive: bool = False
    """Whether nobody else may consume from the queue."""
    stop_after: Count | Literal["queue-length"] | None = None
    """Finish after so many messages; ``queue-length``: as many as wait at the start; None: never."""
    arguments: dict[str, Any] = {}
    """``x-priority`` and others."""

    def __post_init__(self) -> None:
        if self.no_ack and self.stop_after is not None:
            raise ValueError("stop_after needs acknowledgements: what came too many goes back to the queue")


class AmqpClientOptions(ConnectOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An AMQP 0-9-1 client that publishes what routes bring, and hands on what it consumes."""

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
    confirm_timeout: Seconds = 30.0
    """Seconds in which the server answers for something while messages are in flight, unless it has said that it takes none for
    now; then the connection is given up, and all of them are sent again on the next."""
    when_refused: Literal["wait", "drop"] = "wait"
    """A message for an exchange that is missing or forbidden (404, 403): wait with it, and with all behind it, until
    the server takes it; or drop it, counted.  One that is too large for the server (406) is always dropped."""
    consume: tuple[ConsumeOptions, ...] = ()
    """Queues to consume from."""
    exchanges: tuple[ClientExchange, ...] = ()
    """Exchanges to declare after each login."""
    queues: tuple[ClientQueue, ...] = ()
    """Queues to declare after each login."""
    bindings: tuple[ClientBinding, ...] = ()
    """Bindings to make after each login."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = Counter(queue.name for queue in self.queues)
        if names[""] > 1:
            raise ValueError('one queue at the most can have name = "": nobody could tell them apart')
        bound = any(not (binding.queue or binding.to_exchange) for binding in self.bindings)
        if not names[""] and (bound or any(not each.queue for each in self.consume)):
            raise ValueError('no queue with name = "" is among the queues: declare it, exclusive = true')
