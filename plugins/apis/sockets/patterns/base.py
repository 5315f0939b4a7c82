"""What all patterns have: sending to all peers alike, and receiving what comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of, batch_of_one
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import NotSupported
from plugins.apis.sockets.options import Values


class Pattern:
    """The rules of one type of socket."""

    kind: ClassVar[str] = ""
    """The type of the socket."""
    gives: ClassVar[bool] = True
    takes: ClassVar[bool] = True
    publishes: ClassVar[bool] = False
    """Whether its peers subscribe."""
    router: str = "fan-out"
    """The router of the route to its peers."""
    when_full: str = "block"
    """What happens when the pipe to a peer is full."""
    relayed: bool = False
    """Whether the thread of the engine chooses the peers, and not that of the application.  Known when the
    engine's options are."""
    alike: ClassVar[bool] = True
    """Whether messages are sent without a look at what is in them: then they take the shortest way."""
    turns: ClassVar[bool] = False
    """Whether it sends and receives in turn: each message that is received changes what may be done."""

    asks: ClassVar[bool] = False
    answers: ClassVar[bool] = False
    """Whether each message that it sends is a question, or an answer to one."""
    lends: ClassVar[bool] = False
    """Whether lone messages may pass between the application's thread and the socket of the only peer."""

    def __init__(self, end: End, values: Values, engine: str) -> None:
        self.end = end
        self.open: Envelope | None = None
        """Of the question that has no answer yet, for those that ask or answer."""
        self.values = values
        self.engine = engine
        """The name of the socket's engine, which is the beginning of the names of peers."""

    def engine_options(self) -> Mapping[str, Any]:
        """Return options of the engine that only this pattern has."""
        return {}

    def before_sending(self) -> None:
        """Raise ``WrongState`` if it is not the turn to send."""

    def next_question(self) -> Envelope:
        """Return the envelope of the questions that are sent with a lease.

        Only one of them is open at a time.
        """
        return PLAIN

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send one message."""
        self.end.send(batch_of_parts(parts), timeout)

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send messages."""
        self.end.send(batch, timeout)

    def may_send(self) -> bool:
        """Whether a message could be sent now."""
        return self.end.room_for(batch_of([b""]))

    def before_receiving(self) -> None:
        """Raise ``WrongState`` if it is not the turn to receive."""

    def received(self, envelope: Envelope) -> None:
        """Take notice that a message of this envelope was received."""
        self.open = self.opens(envelope)

    def opens(self, envelope: Envelope) -> Envelope | None:
        """Return what is ``open`` when a message of this envelope was received."""
        return None

    def subscribe(self, prefix: bytes) -> None:
        """Ask for messages that begin with ``prefix``."""
        raise NotSupported(f"{self.kind} does not subscribe; SUB and XSUB do")

    def unsubscribe(self, prefix: bytes) -> None:
        """Take a subscription back."""
        raise NotSupported(f"{self.kind} does not subscribe; SUB and XSUB do")

    def subscribers(self, topic: bytes | None) -> int:
        """Return how many peers have subscribed."""
        raise NotSupported(f"{self.kind} has no subscribers; PUB and XPUB have")

    def topics(self) -> int:
        """Return how many prefixes there are, of peers or of this side."""
        raise NotSupported(f"{self.kind} has no subscriptions; PUB, SUB, XPUB and XSUB have")


class ReceivingPattern(Pattern):
    """A type that only receives."""

    gives: ClassVar[bool] = False
    instead: ClassVar[str] = ""
    """Which type sends, for the error."""

    def before_sending(self) -> None:
        """Refuse."""
        raise NotSupported(f"{self.kind} does not send; {self.instead}")

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Refuse."""
        self.before_sending()

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        self.before_sending()

    def may_send(self) -> bool:
        """Return False."""
        return False


def batch_of_parts(parts: Sequence[Buffer], envelope: Envelope = PLAIN) -> Batch:
    """Return a batch of one message."""
    if len(parts) == 1:
        return batch_of_one(parts[0], envelope)
    return batch_of([tuple(parts)], envelope, multipart=True)
