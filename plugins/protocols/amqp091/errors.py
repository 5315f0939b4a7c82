"""Errors of AMQP 0-9-1: in what a peer has sent, and in what this side was asked to send."""

from __future__ import annotations

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from plugins.protocols.amqp091.reply_codes import ReplyCode


class CannotCarry(LocalProtocolError):
    """A value of an envelope is too long for AMQP or has no AMQP type.  Nothing of the batch was encoded."""


class MalformedField(RemoteProtocolError):
    """A field is too short, too long, nested too deeply or of an unknown type (reply code 502)."""


class ConnectionFault(RemoteProtocolError):
    """A protocol error of the peer that ends the connection.  Text and codes go into connection.close."""

    def __init__(self, reply_code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text)
        self.reply_code = reply_code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id


class BoundariesLost(ConnectionFault):
    """A frame has a wrong type, size or end octet (501), so that nobody knows where the next one begins."""

    def __init__(self, text: str) -> None:
        super().__init__(ReplyCode.FRAME_ERROR, text)
