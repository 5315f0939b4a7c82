"""What can be wrong with a peer's bytes, and which reply code says so."""

from __future__ import annotations

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError


class CannotCarry(LocalProtocolError):
    """An envelope has something that AMQP has no room or no type for; nothing of it was encoded."""


class MalformedField(RemoteProtocolError):
    """A field is too short, too long, nested too deeply or of a type that does not exist (502)."""


class ConnectionFault(RemoteProtocolError):
    """The peer did what ends the connection; the text and codes go into connection.close."""

    def __init__(self, reply_code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text)
        self.reply_code = reply_code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
