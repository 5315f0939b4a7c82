"""What a conversation needs of an association, whoever keeps it: our own protocol, or the operating system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plugins.protocols.sctp.events import Event, Message
from plugins.protocols.sctp.schedule import Outgoing, Terms
from plugins.protocols.sctp.states import State


class Path(Protocol):
    """A way to the peer."""

    @property
    def address(self) -> bytes:
        """The peer's, 4 or 16 bytes."""
        ...


class Paths(Protocol):
    """All of them."""

    @property
    def all(self) -> Sequence[Path]:
        """The first is the one that the peer is named after."""
        ...


class Sender(Protocol):
    """What was agreed on, as far as our data goes."""

    @property
    def streams(self) -> int:
        """How many we may use."""
        ...

    @property
    def peer_window(self) -> int:
        """Bytes that the peer has room for."""
        ...


class AnyAssociation(Protocol):
    """An association, from the handshake to the end."""

    @property
    def state(self) -> State: ...

    @property
    def events(self) -> list[Event]:
        """What has happened, until it is taken out."""
        ...

    @property
    def left(self) -> list[Message]:
        """What had come and was not taken when the peer restarted, until it is taken out."""
        ...

    @property
    def peer_port(self) -> int: ...

    @property
    def paths(self) -> Paths: ...

    @property
    def sender(self) -> Sender: ...

    def send(self, stream: int, data: bytes, protocol: int = 0, terms: Terms = ...) -> Outgoing:
        """Queue a message; the answer tells later whether the peer has it."""
        ...

    def receive(self, now: float) -> list[Message]:
        """Take the messages that have come; that makes room for others."""
        ...

    def rank_stream(self, stream: int, *, priority: int = 0) -> None:
        """Tell what a stream is worth: lower goes first."""
        ...

    def close(self, now: float) -> None:
        """Say good-bye when the peer has everything."""
        ...

    def abort(self, reason: str = "") -> None:
        """End it at once."""
        ...
