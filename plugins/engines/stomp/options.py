"""Options of the STOMP front end."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plugins.engines.broker.contract import ListenerOptions


class StompListenerOptions(ListenerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listener for STOMP 1.0, 1.1 and 1.2."""

    vhost: str = "/"
    """The virtual host of clients that name none in the header ``host``."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 1.0
    """The shortest interval of heart-beats in seconds.  Clients get the interval that they ask for, but no
    shorter one.  0: no heart-beats."""
    max_headers: Annotated[int, msgspec.Meta(ge=1)] = 256
    """Header lines that a frame may have."""
    header_line_bytes: Annotated[int, msgspec.Meta(ge=64)] = 16_384
    """Bytes of the longest header line that is accepted."""
    header_block_bytes: Annotated[int, msgspec.Meta(ge=64)] = 65_536
    """Bytes that all header lines of a frame may have."""
    max_subscriptions: Annotated[int, msgspec.Meta(ge=1)] = 2047
    """Subscriptions that a connection may have."""
    max_transactions: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Transactions that a connection may have open."""
