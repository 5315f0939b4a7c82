"""What can be set for a federation link."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plugins.engines.amqp_client.connect_options import ConnectOptions

Milliseconds = Annotated[int, msgspec.Meta(ge=1)]


class FederationOptions(ConnectOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link from a broker elsewhere (upstream) to one of this kernel (downstream), to which a route must lead."""

    broker: str
    """The engine of kind ``amqp`` that is downstream; it needs a ``cluster_name``.  Its ``vhost`` is the one that is federated."""
    exchanges: tuple[str, ...] = ()
    """Exchanges that get what is published to those of the same names upstream, as far as they have bindings for it."""
    queues: tuple[str, ...] = ()
    """Queues that get messages from those of the same names upstream while they are empty and have consumers."""
    upstream_name: str = ""
    """What the upstream is called in the trace that messages keep, if it does not tell its own name (``cluster_name``)."""
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=127)] = 1
    """Over how many links a message of a federated exchange may go, this one included."""
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """Messages on their way over the link at the most, for each exchange and queue."""
    no_ack: bool = False
    """The upstream forgets a message when it has sent it: faster, and lost if the link is cut."""
    expires: Milliseconds | None = None
    """After so many milliseconds without the link the upstream gives up what it kept for it; None: never."""
    message_ttl: Milliseconds | None = None
    """For how many milliseconds the upstream keeps a message for the link; None: as long as it takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.exchanges or self.queues):
            raise ValueError("a federation link needs exchanges or queues")
