"""Faults of a peer in the handshake, by the names that monitors tell.

libzmq has a number for most of them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kernel.contracts.errors import RemoteProtocolError

Fault: TypeAlias = Literal[
    "closed",
    "cryptographic",
    "invalid-metadata",
    "invalid-sequence",
    "key-exchange",
    "malformed-command",
    "malformed-ERROR",
    "malformed-HELLO",
    "malformed-INITIATE",
    "malformed-READY",
    "malformed-WELCOME",
    "mechanism-mismatch",
    "timed-out",
    "unexpected-command",
    "unspecified",
]
"""What may be wrong.  ``closed``: the connection has ended; ``timed-out``: the peer has said too little."""

MALFORMED: dict[str, Fault] = {
    "ERROR": "malformed-ERROR",
    "HELLO": "malformed-HELLO",
    "INITIATE": "malformed-INITIATE",
    "READY": "malformed-READY",
    "WELCOME": "malformed-WELCOME",
}
"""By the names of commands."""


class HandshakeFault(RemoteProtocolError):
    """A fault that has a name."""

    def __init__(self, text: str, fault: Fault) -> None:
        super().__init__(text)
        self.fault: Fault = fault


def fault_of(error: RemoteProtocolError) -> Fault:
    """Return the name of what has ended a handshake."""
    return error.fault if isinstance(error, HandshakeFault) else "unspecified"
