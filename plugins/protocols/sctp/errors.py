"""The protocol's own error."""

from __future__ import annotations

from kernel.contracts.errors import RemoteProtocolError


class MalformedPacket(RemoteProtocolError):
    """Bytes that are no SCTP packet, or a damaged one.  Never raised for what is merely unknown."""
