"""The states of a connection, a channel and a content, as tables: (state, signal) to the next state.

A pair that is not in its table is not allowed: the peer gets a protocol error if it sent the signal, and the
owner gets ``LocalProtocolError`` if this side was to send it.

Server and client use the same tables.  START means "start was sent" on the server, and "start was received"
on the client.  The tests read the tables, too.
"""

from __future__ import annotations

from enum import Enum


class ConnectionState(Enum):
    """How far a connection has come (section 2.2.4)."""

    AWAITING_HEADER = "the client has sent nothing yet"
    AWAITING_START = "the protocol header is sent"
    AWAITING_START_OK = "the server has listed its mechanisms"
    LOGIN = "the server decides whether to let the client in"
    AWAITING_SECURE_OK = "the server has sent a challenge"
    AWAITING_TUNE_OK = "the server has proposed its limits"
    AWAITING_OPEN = "the limits are agreed"
    OPENING = "the server decides about the virtual host"
    OPEN = "channels may be opened"
    CLOSING = "this side has sent close"
    CLOSED = "nothing more is sent or received"


class ConnectionSignal(Enum):
    """What changes the state of a connection."""

    HEADER = "the protocol header"
    START = "connection.start"
    START_OK = "connection.start-ok"
    SECURE = "connection.secure"
    SECURE_OK = "connection.secure-ok"
    TUNE = "connection.tune"
    TUNE_OK = "connection.tune-ok"
    OPEN = "connection.open"
    OPEN_OK = "connection.open-ok"
    CLOSE_SENT = "connection.close, sent"
    CLOSE_RECEIVED = "connection.close, received"
    CLOSE_OK = "connection.close-ok"
    LOST = "the wire ended, or the peer is silent or speaks another protocol"


_C, _S = ConnectionState, ConnectionSignal
_BEFORE_CLOSE = tuple(state for state in _C if state not in (_C.CLOSING, _C.CLOSED))

CONNECTION: dict[tuple[ConnectionState, ConnectionSignal], ConnectionState] = {
    (_C.AWAITING_HEADER, _S.HEADER): _C.AWAITING_START,
    (_C.AWAITING_START, _S.START): _C.AWAITING_START_OK,
    (_C.AWAITING_START_OK, _S.START_OK): _C.LOGIN,
    (_C.LOGIN, _S.SECURE): _C.AWAITING_SECURE_OK,
    (_C.AWAITING_SECURE_OK, _S.SECURE_OK): _C.LOGIN,
    (_C.LOGIN, _S.TUNE): _C.AWAITING_TUNE_OK,
    (_C.AWAITING_TUNE_OK, _S.TUNE_OK): _C.AWAITING_OPEN,
    (_C.AWAITING_OPEN, _S.OPEN): _C.OPENING,
    (_C.OPENING, _S.OPEN_OK): _C.OPEN,
    # Either side may close in any state, also in the middle of the handshake.  The one that received close
    # has nothing to wait for after its close-ok.  The one that sent it waits for close-ok.
    **{(state, _S.CLOSE_SENT): _C.CLOSING for state in _BEFORE_CLOSE},
    **{(state, _S.CLOSE_RECEIVED): _C.CLOSED for state in _BEFORE_CLOSE},
    # Both sides may close at the same time: each answers the other's close (rule "stability" of
    # connection.close), and still waits for its own close-ok.
    (_C.CLOSING, _S.CLOSE_RECEIVED): _C.CLOSING,
    (_C.CLOSING, _S.CLOSE_OK): _C.CLOSED,
    # The wire may end in any state, and more than once: at the end of the wire and at a deadline.
    **{(state, _S.LOST): _C.CLOSED for state in _C},
}


class ChannelState(Enum):
    """How far the opening or closing of a channel has come."""

    CLOSED = "not open yet, or closed"
    OPENING = "the client has sent open"
    OPEN = "methods and messages pass"
    CLOSING = "this side has sent close: everything except close and close-ok is dropped"


class ChannelSignal(Enum):
    """What changes the state of a channel."""

    OPEN = "channel.open"
    OPEN_OK = "channel.open-ok"
    CLOSE_SENT = "channel.close, sent"
    CLOSE_RECEIVED = "channel.close, received"
    CLOSE_OK = "channel.close-ok"


_H, _T = ChannelState, ChannelSignal

CHANNEL: dict[tuple[ChannelState, ChannelSignal], ChannelState] = {
    (_H.CLOSED, _T.OPEN): _H.OPENING,
    (_H.OPENING, _T.OPEN_OK): _H.OPEN,
    # There is no row for CLOSED and CLOSE_RECEIVED: a close on a channel that is not open is 504.  There is
    # none for CLOSING and OPEN, so a number is free again only after close-ok.
    (_H.OPENING, _T.CLOSE_SENT): _H.CLOSING,
    (_H.OPENING, _T.CLOSE_RECEIVED): _H.CLOSED,
    (_H.OPEN, _T.CLOSE_SENT): _H.CLOSING,
    (_H.OPEN, _T.CLOSE_RECEIVED): _H.CLOSED,
    # Both sides may close at the same time, as with a connection: this side still waits for its close-ok.
    (_H.CLOSING, _T.CLOSE_RECEIVED): _H.CLOSING,
    (_H.CLOSING, _T.CLOSE_OK): _H.CLOSED,
}


class ContentState(Enum):
    """Which frame a channel expects next (section 4.2.6).  The values are frame types."""

    METHOD = 1
    HEADER = 2
    BODY = 3


# For what is done for each message: in Python 3.11 an access to a member through its class takes 60 ns
# (measured; EnumType has ``__getattr__``; decision 39).
CONNECTION_OPEN, CONNECTION_CLOSED = ConnectionState.OPEN, ConnectionState.CLOSED
CHANNEL_OPEN, CHANNEL_CLOSING = ChannelState.OPEN, ChannelState.CLOSING
EXPECTS_METHOD = ContentState.METHOD
