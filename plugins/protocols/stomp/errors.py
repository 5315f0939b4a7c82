"""Errors of STOMP: in what a peer has sent, and in what this side was asked to send."""

from __future__ import annotations

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError


class CannotCarry(LocalProtocolError):
    """A header of a message has no form in this version of STOMP.  Nothing of the message was encoded."""


class Fault(RemoteProtocolError):
    """A frame cannot be read or obeyed.  It ends the connection, with an ERROR frame from a server."""

    def __init__(self, message: str, detail: str = "", receipt: str | None = None) -> None:
        """``message`` and ``detail`` are the header ``message`` and the body of the ERROR frame.

        ``receipt``: what the frame had in its header ``receipt``, if it has come so far.
        """
        super().__init__(f"{message}: {detail}" if detail else message)
        self.message = message
        self.detail = detail
        self.receipt = receipt
