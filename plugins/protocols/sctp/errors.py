"""The protocol's own errors."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError


class MalformedPacket(RemoteProtocolError):
    """Bytes that are no SCTP packet, or a damaged one.  Never raised for what is merely unknown."""


class NoUserData(RemoteProtocolError):
    """A DATA chunk without any data, which has a cause of its own (RFC 9260, 3.3.10.9)."""
