"""The options of WebSocket.

They are not in ``web_socket.py``: registering an engine must not import wsproto.
"""

from __future__ import annotations

from typing import Annotated

import msgspec


class WebOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """WebSocket (RFC 6455) of one engine."""

    subprotocols: tuple[str, ...] = ()
    """The subprotocols that a dialler offers or a listener accepts, the best first (``mqtt``, ``v12.stomp``).
    A listener refuses clients that offer none of them, and a dialler servers that choose none.  Empty: the
    protocol's own names, if it has any; then peers that do without a subprotocol are accepted too."""
    origins: tuple[str, ...] = ()
    """The origins of web pages from which a listener accepts connections (``https://example.org``); empty:
    all.  Clients that are not browsers send no origin, and are always accepted."""
    max_message: Annotated[int, msgspec.Meta(ge=1)] = 16 * 1024 * 1024
    """The largest WebSocket message that the peer may send, in bytes."""
