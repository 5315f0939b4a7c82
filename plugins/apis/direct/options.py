"""Options of the direct API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class DirectOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One connection in the application's own thread (x-mode)."""

    address: str
    """``protocol+transport://place``; the transport is tcp or unix."""
    mode: Literal["dial", "listen"] = "dial"
    """``listen`` waits for one peer."""
    protocol: dict[str, Any] = {}
    """Options of the protocol.  Heartbeats are off unless they are set here: nobody would send them between
    two calls."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds within which the connection has to be made, and then again its handshake."""
