"""States of an association, and what is done in which (RFC 9260, 4)."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """One of them."""

    CLOSED = "closed"
    COOKIE_WAIT = "INIT sent"
    COOKIE_ECHOED = "cookie sent back"
    ESTABLISHED = "established"
    SHUTDOWN_PENDING = "closing when the peer has everything"
    SHUTDOWN_SENT = "good-bye said"
    SHUTDOWN_RECEIVED = "the peer has said good-bye"
    SHUTDOWN_ACK_SENT = "good-bye answered"


# Tuples: looked up by identity, the likeliest first, where a set would hash names for each message.

OPEN = (State.ESTABLISHED, State.COOKIE_WAIT, State.COOKIE_ECHOED)
"""The host may queue messages."""
SENDING = (State.ESTABLISHED, State.SHUTDOWN_PENDING, State.SHUTDOWN_RECEIVED)
"""Data goes out, and acknowledgements of it come in."""
RECEIVING = (State.ESTABLISHED, State.SHUTDOWN_PENDING, State.SHUTDOWN_SENT)
"""Data comes in."""
DRAINING = (State.SHUTDOWN_PENDING, State.SHUTDOWN_RECEIVED)
"""The good-bye waits for the last acknowledgement."""
SHUTTING_DOWN = (State.SHUTDOWN_SENT, State.SHUTDOWN_ACK_SENT)
"""The good-bye is repeated until it is answered (T2-shutdown)."""
