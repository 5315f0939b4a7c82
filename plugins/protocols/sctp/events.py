"""What an association tells its host besides messages."""

from __future__ import annotations

from enum import Enum

import msgspec


class What(Enum):
    """Sorts of events."""

    UP = "association up"
    RESTARTED = "peer restarted"
    SHUTTING_DOWN = "peer is shutting down"
    CLOSED = "association closed"
    LOST = "association lost"
    PATH_DOWN = "path down"
    PATH_UP = "path up"
    STREAMS_RESET = "streams reset"
    RESET_REFUSED = "reset of streams refused"
    STREAMS_ADDED = "streams added"
    ADDING_REFUSED = "adding of streams refused"
    PEER_ERROR = "peer reports an error"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    what: What
    detail: str = ""
    address: bytes = b""
    """Of a path."""
    streams: tuple[int, ...] = ()
    """That were reset or added, or were not: ours or the peer's, as ``detail`` says; of the peer's reset, none means all."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message that was received."""

    stream: int
    data: bytes
    protocol: int = 0
    """Payload protocol identifier, which is the application's own affair."""
    unordered: bool = False
