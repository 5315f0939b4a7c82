"""What can be set of WebSocket.  Apart from ``web_socket.py``, so that describing an engine imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import msgspec


class WebOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """WebSocket (RFC 6455) of one engine."""

    subprotocols: tuple[str, ...] = ()
    """What a dialler offers and a listener takes, the best first (``mqtt``, ``v12.stomp``).  A listener that names some refuses
    clients that offer none of them; empty: any client, without a subprotocol."""
    origins: tuple[str, ...] = ()
    """Pages whose scripts a listener serves (``https://example.org``); empty: all.  Clients that are no browsers name no origin
    and are served in any case."""
    max_message: Annotated[int, msgspec.Meta(ge=1)] = 16 * 1024 * 1024
    """Bytes that one WebSocket message of the peer may have.  How bytes are cut into messages means nothing."""
