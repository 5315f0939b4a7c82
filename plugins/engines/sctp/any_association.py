"""What a conversation needs of an association, whether our own protocol or the operating system runs it.

These are protocols in the sense of ``typing``: neither side derives from them, mypy compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plugins.protocols.sctp.events import Event, Message
from plugins.protocols.sctp.schedule import Outgoing, Terms
from plugins.protocols.sctp.states import State


class Path(Protocol):
    """A path to the peer."""

    @property
    def address(self) -> bytes:
        """The peer's address, 4 or 16 bytes."""
        ...


class Paths(Protocol):
    """All paths."""

    @property
    def all(self) -> Sequence[Path]:
        """The paths; the peer is named after the first."""
        ...


class Sender(Protocol):
    """What was negotiated for the sending direction."""

    @property
    def streams(self) -> int:
        """Number of outbound streams."""
        ...

    @property
    def peer_window(self) -> int:
        """Bytes that fit into the peer's receive window."""
        ...


class AnyAssociation(Protocol):
    """An association, from the handshake to the end."""

    @property
    def state(self) -> State: ...

    @property
    def events(self) -> list[Event]:
        """Events that were not taken yet; the conversation empties the list."""
        ...

    @property
    def left(self) -> list[Message]:
        """Messages that had arrived and were not taken when the peer restarted.

        The conversation empties the list.
        """
        ...

    @property
    def peer_port(self) -> int: ...

    @property
    def paths(self) -> Paths: ...

    @property
    def sender(self) -> Sender: ...

    def send(self, stream: int, data: bytes, protocol: int = 0, terms: Terms = ...) -> Outgoing:
        """Queue a message. The returned object tells later whether it was acknowledged."""
        ...

    def receive(self, now: float) -> list[Message]:
        """Return the messages that have arrived, and free their room."""
        ...

    def rank_stream(self, stream: int, *, priority: int = 0) -> None:
        """Set a stream's priority: lower goes first."""
        ...

    def close(self, now: float) -> None:
        """Shut down gracefully when the peer has everything."""
        ...

    def round_trip(self) -> float | None:
        """Seconds of a round trip, if that is known."""
        ...

    def shutdown_time(self) -> float:
        """Seconds in which a shutdown is complete unless the path has failed."""
        ...

    def buffered(self) -> int:
        """Bytes that the peer has not acknowledged, if that is known."""
        ...

    def abort(self, reason: str = "") -> None:
        """Abort at once."""
        ...
