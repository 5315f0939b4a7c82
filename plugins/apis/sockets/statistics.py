"""The figures of a socket."""

from __future__ import annotations

import msgspec


class PeerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The messages between a socket and one peer."""

    peer: str
    """The identity or the address of the peer, or the place that it is connected to."""
    sent: int
    waiting: int
    """Sent, and not yet written to the peer; of a PUB also what was not yet looked at for whom it is."""
    dropped: int
    """Not sent, because ``sndhwm`` was reached."""
    received: int
    unread: int
    """Come, and not yet received by the application."""


class SocketStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A socket at one moment."""

    name: str
    peers: tuple[PeerStatistics, ...]
    dropped: int
    """Dropped by a ROUTER: there was no such peer, or it had no room."""
