"""ZWS 2.0 (45/ZWS): a conversation over WebSocket.

The subprotocol of WebSocket stands for the greeting.  A frame is a message of WebSocket: an octet of flags
and the body, without a size.  With ``ZWS2.0/NULL`` and ``ZWS2.0/PLAIN`` the commands of the mechanism follow,
as in ZMTP 3.0; with ``ZWS2.0`` an identity, as in ZMTP 2.0.  Subscriptions are messages, and there is no
PING: who wants to know whether a peer lives has the pings of WebSocket, which are the host's.

A host passes each frame on behind its size in eight octets, and writes each buffer as one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Buffer
from kernel.contracts.protocol import Side
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.connection import Phase, RequestingConnection, ZmtpConnection
from plugins.protocols.zmtp.frames import COMMAND, MORE, RESERVED, Framing
from plugins.protocols.zmtp.options import ZmtpOptions, identity_of

BARE = "ZWS2.0"
"""The subprotocol without a mechanism."""

_SIZE = 8
_HEAD = _SIZE + 1
_FLAGS = {0: 0, 1: MORE, 2: COMMAND}
_LAST, _MORE, _COMMAND = (bytes((octet,)) for octet in _FLAGS)
_OCTETS = {0: _LAST, MORE: _MORE, COMMAND: _COMMAND}


def subprotocols_of(options: ZmtpOptions) -> tuple[str, ...]:
    """Return the names of what this side can speak, the best first."""
    named = f"{BARE}/{options.mechanism}"
    # Without a handshake nobody could decide on the peer.
    bare = options.mechanism == "NULL" and not options.zap_domain
    return (named, BARE) if bare else (named,)


def measure_message(data: bytes, at: int) -> tuple[int, int, int]:
    """Return flags as in ZMTP, size of what is before the body, and size of the body.

    The former has size 0 if it is not complete.  Flags that ZWS does not have are reserved ones.
    """
    if len(data) < at + _SIZE:
        return 0, 0, 0
    size = int.from_bytes(data[at : at + _SIZE], "big")
    if not size:
        raise RemoteProtocolError("a message of WebSocket without flags")
    if len(data) < at + _HEAD:
        return 0, 0, 0
    return _FLAGS.get(data[at + _SIZE], RESERVED), _HEAD, size - 1


class WebFraming(Framing):
    """Writes frames as messages of WebSocket, a buffer for each."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.measure = measure_message

    def frame(self, body: bytes, flags: int = 0) -> bytes:
        """Return one whole frame."""
        return _OCTETS[flags] + body

    def encode(self, bodies: Sequence[Any], width: int = 0, before: Sequence[bytes] = ()) -> list[Buffer]:
        """Return messages of one part each, each behind the parts ``before``."""
        if before:
            return self.encode_parts([(body,) for body in bodies], before)
        return [_LAST + body for body in bodies]

    def encode_parts(
        self, messages: Sequence[tuple[Buffer, ...]], before: Sequence[bytes] = ()
    ) -> list[Buffer]:
        """Return messages of several parts each, each behind the parts ``before``."""
        first = [_MORE + part for part in before]
        buffers: list[Buffer] = []
        for parts in messages:
            buffers += first
            buffers += [_MORE + part for part in parts[:-1]]
            buffers.append(_LAST + parts[-1])
        return buffers


_FRAMINGS = {version: WebFraming(version) for version in (2, 3)}
"""Without a mechanism, and with one: which version of ZMTP it is like."""


class WebConnection(ZmtpConnection):
    """``kernel.contracts.protocol.StreamProtocol`` for ZWS.

    ``subprotocol``: what both sides have agreed on.
    """

    def __init__(
        self,
        options: ZmtpOptions,
        side: Side,
        name_peer: Callable[[bytes], Naming] | None = None,
        subprotocol: str = BARE,
    ) -> None:
        super().__init__(options, side, name_peer)
        self.version = subprotocol
        # The signature of ZMTP: the subprotocol stands for the greeting.
        self._out.clear()
        # Both take subscriptions as messages: version 2 has no commands, and with 3 ``_minor`` stays 0, which
        # is ZMTP 3.0. So there is no PING either.
        self._framing = _FRAMINGS[2 if subprotocol == BARE else 3]
        self._use_decoder(self._decoder_of(self._framing))
        if subprotocol == BARE:
            self._out.append(self._framing.frame(identity_of(options) if self._type.identified else b""))
            self._awaits_identity = self._type.names_peers
            self._open()
        else:
            self.phase = Phase.HANDSHAKE
            self._mechanism.begin()


class RequestingWebConnection(RequestingConnection, WebConnection):
    """The same for REQ."""


def web_connection_of(
    options: ZmtpOptions, side: Side, name_peer: Callable[[bytes], Naming] | None, subprotocol: str
) -> WebConnection:
    """Return a new conversation over WebSocket."""
    kind = RequestingWebConnection if options.type == "REQ" else WebConnection
    return kind(options, side, name_peer, subprotocol)
