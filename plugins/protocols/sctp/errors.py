"""Errors of SCTP."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError


class MalformedPacket(RemoteProtocolError):
    """The bytes are no SCTP packet, or a damaged one. Chunks of unknown types are no error."""


class NoUserData(RemoteProtocolError):
    """A DATA chunk without user data, for which there is a cause of its own (RFC 9260, 3.3.10.9)."""
