"""Channel: the state of one channel, and the message that is being received on it frame by frame.

There are two states.  ``state`` says whether the channel is open.  ``content_state`` says which frame comes
next: a method; after a method with content its header; after the header body frames, until ``remaining``
octets have come.  Frames of other channels may stand in between, so each channel has its own.
"""

from __future__ import annotations

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.errors import ConnectionFault
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.reply_codes import ReplyCode
from plugins.protocols.amqp091.states import CHANNEL, ChannelSignal, ChannelState, ContentState

_EXPECTED = {
    ContentState.METHOD: ("method frame", "method"),
    ContentState.HEADER: ("content header for class 60", "content header"),
    ContentState.BODY: ("content body", "content body"),
}


class Channel:
    """One channel of a connection.  It stays in the connection's table after it was closed."""

    __slots__ = (
        "content_state",
        "envelope",
        "method",
        "method_frame",
        "number",
        "parts",
        "remaining",
        "size",
        "state",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = ChannelState.CLOSED
        self.content_state = ContentState.METHOD
        self.method: Method | None = None
        """The method whose content is being received.  None: no content is expected."""
        self.method_frame = b""
        """The whole frame of ``method``: the key of its template."""
        self.envelope: Envelope | None = None
        self.parts: list[bytes] = []
        self.size = 0
        """Octets of the whole body, when its header has come."""
        self.remaining = 0
        """Octets of the body that have not come yet."""

    def __repr__(self) -> str:
        return f"<Channel {self.number} {self.state.name}, next {self.content_state.name}>"

    def received(self, signal: ChannelSignal) -> None:
        """Change the state for a method of the peer; raise ``ConnectionFault`` (504) if it is not allowed."""
        following = CHANNEL.get((self.state, signal))
        if following is None:
            # The texts are RabbitMQ's.
            if signal is ChannelSignal.OPEN:
                raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", 20, 10)
            raise ConnectionFault(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'")
        self._move(following)

    def sent(self, signal: ChannelSignal) -> None:
        """Change the state for a method of this side; raise ``LocalProtocolError`` if it is not allowed."""
        following = CHANNEL.get((self.state, signal))
        if following is None:
            raise LocalProtocolError(
                f"channel {self.number} is {self.state.name}: {signal.value} is not allowed"
            )
        self._move(following)

    def _move(self, following: ChannelState) -> None:
        self.state = following
        # A content does not outlive a change of state.  After a close its remaining frames are dropped, and
        # after a new open a content must begin with its method.
        self.forget_content()

    def begin_content(self, method: Method, frame: bytes) -> None:
        """Expect the content of this method."""
        self.method = method
        self.method_frame = frame
        self.content_state = ContentState.HEADER

    def unexpected(self, text: str = "") -> ConnectionFault:
        """Return the fault of a frame that is not the expected one, in RabbitMQ's words.

        ``text`` instead of them.
        """
        expected, other = _EXPECTED[self.content_state]
        # The method that is named is the one whose content is being received.
        cause = (self.method.class_id, self.method.method_id) if self.method else (0, 0)
        text = text or f"expected {expected}, got non {other} frame instead"
        return ConnectionFault(ReplyCode.UNEXPECTED_FRAME, text, *cause)

    def forget_content(self) -> None:
        """Expect a method again: the content is complete, or the channel has changed its state."""
        self.method = None
        self.envelope = None
        self.parts = []
        self.size = self.remaining = 0
        self.content_state = ContentState.METHOD

    def add_body(self, payload: bytes) -> bytes | None:
        """Add the payload of a body frame; return the body when it is complete, else None."""
        self.remaining -= len(payload)
        if self.remaining < 0:
            # "incomplete or badly-formatted content" is 505 (section 4.2.6.2).
            raise ConnectionFault(ReplyCode.UNEXPECTED_FRAME, "the body is longer than its header said")
        if self.remaining == 0:
            # The usual case: one body frame has the whole body, which is passed on without a copy.
            if not self.parts:
                return payload
            self.parts.append(payload)
            return b"".join(self.parts)
        self.parts.append(payload)
        return None
