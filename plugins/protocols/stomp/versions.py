"""Versions of STOMP, and how client and server agree on one."""

from __future__ import annotations

from enum import StrEnum


class Version(StrEnum):
    """A version that is spoken here.  The order is that of the numbers."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


SUPPORTED = ",".join(Version)
"""All versions, as ``accept-version`` and ``version`` name them."""
SERVER = "messaging-kernel"
"""What the broker of this kernel says in the header ``server`` of CONNECTED."""
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
"""The names in WebSocket's handshake, the best first (registered with IANA)."""


def negotiate(accepted: str | None) -> Version | None:
    """Return the highest common version; None: there is none.

    ``accepted``: the header ``accept-version``; without it the client speaks 1.0 only (STOMP 1.2, Protocol
    Negotiation).
    """
    if accepted is None:
        return Version.V1_0
    offered = {version.strip() for version in accepted.split(",")}
    return max((version for version in Version if version in offered), default=None)
