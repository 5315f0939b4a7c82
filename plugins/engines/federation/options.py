"""The options of a federation link."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plugins.engines.amqp_client.connect_options import ConnectOptions

Milliseconds = Annotated[int, msgspec.Meta(ge=1)]


class FederationOptions(ConnectOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link from a broker elsewhere (upstream) to one of this kernel (downstream).

    A route must lead from the link to the downstream broker.
    """

    broker: str
    """The engine of kind ``amqp`` or ``broker`` that is downstream; it needs a ``cluster_name``.  Its
    ``vhost`` is the one that is federated."""
    exchanges: tuple[str, ...] = ()
    """Exchanges that receive what is published to the exchanges of the same names upstream and matches a
    binding here."""
    queues: tuple[str, ...] = ()
    """Queues that receive messages from the queues of the same names upstream, while they are empty and have
    consumers."""
    upstream_name: str = ""
    """The name of the upstream in the trace that messages carry, if it does not tell its own
    (``cluster_name``)."""
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=127)] = 1
    """How many links a message of a federated exchange may pass, this one included."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """The most messages that may be unacked on the link, for each exchange and queue."""
    no_ack: bool = False
    """The upstream forgets a message as soon as it has sent it: faster, but lost if the connection is
    lost."""
    expires: Milliseconds | None = None
    """Milliseconds without the link after which the upstream deletes what it keeps for it; None: never."""
    message_ttl: Milliseconds | None = None
    """Milliseconds that the upstream keeps a message for the link; None: without limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.exchanges or self.queues):
            raise ValueError("a federation link needs exchanges or queues")
