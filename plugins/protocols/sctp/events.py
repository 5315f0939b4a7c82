"""Events of an association, and messages it has received."""

from __future__ import annotations

from enum import Enum

import msgspec


class What(Enum):
    """Kinds of events."""

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
    """An event of an association."""

    what: What
    detail: str = ""
    address: bytes = b""
    """Address of the path, for PATH_UP and PATH_DOWN."""
    streams: tuple[int, ...] = ()
    """Streams that were reset or added, or were refused: ours or the peer's, as ``detail`` says.

    For a reset of the peer's, none means all.
    """


class Message(msgspec.Struct, frozen=True, gc=False):
    """A received message."""

    stream: int
    data: bytes
    protocol: int = 0
    """Payload protocol identifier (PPID): its meaning is the application's."""
    unordered: bool = False
