"""Notifications: what the operating system reports about an association (RFC 6458, 6).

They come between its messages, from the same socket.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

import msgspec

from plugins.engines.sctp.system.layout import address_of

_HEAD = Struct("=HHI")
_ASSOC_CHANGE = Struct("=8xHHHHi")
_PEER_ADDR_CHANGE = Struct("=8x128sii")
# Big-endian, unlike the others: the cause is copied from the chunk in network byte order (RFC 6458, 6.1.3).
_REMOTE_ERROR = Struct(">8xH2x4x")
_PARTIAL_DELIVERY = Struct("=8xIiII")
_SEND_FAILED = Struct("=8xIHH4sIii")


class Kind(IntEnum):
    """Types of notifications."""

    ASSOC_CHANGE = 0x8001
    PEER_ADDR_CHANGE = 0x8002
    REMOTE_ERROR = 0x8004
    SHUTDOWN_EVENT = 0x8005
    PARTIAL_DELIVERY_EVENT = 0x8006
    SENDER_DRY_EVENT = 0x8009
    SEND_FAILED_EVENT = 0x800D


class Change(IntEnum):
    """Changes of an association's state."""

    COMM_UP = 0
    COMM_LOST = 1
    RESTART = 2
    SHUTDOWN_COMP = 3
    CANT_STR_ASSOC = 4


class Reachability(IntEnum):
    """Changes of a peer address's state, as far as they matter here."""

    AVAILABLE = 0
    UNREACHABLE = 1


class AssociationChange(msgspec.Struct, frozen=True):
    """The association is up, or has ended."""

    change: int
    streams_out: int
    causes: bytes
    """The causes of an ABORT, encoded as in the chunk."""


class AddressChange(msgspec.Struct, frozen=True):
    """A path is up or down."""

    address: bytes
    state: int


class RemoteError(msgspec.Struct, frozen=True):
    """The peer has sent an ERROR."""

    cause: int


class Failed(msgspec.Struct, frozen=True):
    """A message was abandoned."""

    context: int


class PartialAborted(msgspec.Struct, frozen=True):
    """The rest of a message whose beginning was read will not arrive."""

    stream: int


class ShuttingDown(msgspec.Struct, frozen=True):
    """The peer has sent SHUTDOWN."""


class Dry(msgspec.Struct, frozen=True):
    """Everything that was sent is acknowledged."""


Notification = AssociationChange | AddressChange | RemoteError | Failed | PartialAborted | ShuttingDown | Dry


def decode(data: bytes) -> Notification | None:
    """Decode a notification; None for a kind that was not asked for.

    Raises ``struct.error`` if it is truncated.
    """
    kind, _, _ = _HEAD.unpack_from(data)
    if kind == Kind.ASSOC_CHANGE:
        change, _, streams, _, _ = _ASSOC_CHANGE.unpack_from(data)
        # The causes of an ABORT follow the structure. RFC 6458 (6.1.1) has the whole chunk there, Linux
        # leaves out its header.
        return AssociationChange(change, streams, data[_ASSOC_CHANGE.size :])
    if kind == Kind.PEER_ADDR_CHANGE:
        sockaddr, state, _ = _PEER_ADDR_CHANGE.unpack_from(data)
        return AddressChange(address_of(sockaddr), state)
    if kind == Kind.REMOTE_ERROR:
        return RemoteError(_REMOTE_ERROR.unpack_from(data)[0])
    if kind == Kind.PARTIAL_DELIVERY_EVENT:
        return PartialAborted(_PARTIAL_DELIVERY.unpack_from(data)[2])
    if kind == Kind.SEND_FAILED_EVENT:
        return Failed(_SEND_FAILED.unpack_from(data)[4])
    return _PLAIN.get(kind)


_PLAIN: dict[int, Notification] = {Kind.SHUTDOWN_EVENT: ShuttingDown(), Kind.SENDER_DRY_EVENT: Dry()}
