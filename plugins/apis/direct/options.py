"""Options of the direct API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions


class DirectOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One connection in the application's own thread (x-mode)."""

    address: str
    """``protocol+transport://place``, over tcp, tls, unix, ws or wss."""
    mode: Literal["dial", "listen"] = "dial"
    """``listen`` waits for one peer."""
    protocol: dict[str, Any] = {}
    """Options of the protocol.  The option ``heartbeat``, if the protocol has it, is 0 by default: nobody
    would send heartbeats between two calls."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses, and for protocols in which TLS begins later."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Seconds until there has to be a connection, and for each handshake on it; ``inf``: no limit."""
