"""States of an association (RFC 9260, 4)."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of an association. The value is for messages to people."""

    CLOSED = "closed"
    COOKIE_WAIT = "INIT sent"
    COOKIE_ECHOED = "cookie sent back"
    ESTABLISHED = "established"
    SHUTDOWN_PENDING = "shutdown pending"
    SHUTDOWN_SENT = "shutdown sent"
    SHUTDOWN_RECEIVED = "shutdown received"
    SHUTDOWN_ACK_SENT = "shutdown answered"


# For what is done for each packet: in Python 3.11 an access to a member through its class takes 60 ns
# (measured; EnumType has ``__getattr__``; decision 39).
CLOSED, SHUTDOWN_SENT = State.CLOSED, State.SHUTDOWN_SENT

# Tuples, with the most likely state first: a tuple is searched by identity, a set would call Enum.__hash__
# for each message.

OPEN = (State.ESTABLISHED, State.COOKIE_WAIT, State.COOKIE_ECHOED)
"""The host may queue messages."""
SENDING = (State.ESTABLISHED, State.SHUTDOWN_PENDING, State.SHUTDOWN_RECEIVED)
"""Data is sent, and SACKs are processed."""
RECEIVING = (State.ESTABLISHED, State.SHUTDOWN_PENDING, State.SHUTDOWN_SENT)
"""Data is received."""
DRAINING = (State.SHUTDOWN_PENDING, State.SHUTDOWN_RECEIVED)
"""SHUTDOWN or SHUTDOWN ACK waits for the last acknowledgement."""
SHUTTING_DOWN = (State.SHUTDOWN_SENT, State.SHUTDOWN_ACK_SENT)
"""SHUTDOWN or SHUTDOWN ACK is repeated until it is answered (T2-shutdown)."""
