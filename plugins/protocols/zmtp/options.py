"""Options of ZMTP."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plugins.protocols.zmtp.socket_types import TypeName

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(max_length=63)]


class ZmtpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """ZMTP 3.1, the protocol of ØMQ; 3.0, 2.0 and 1.0 for older peers."""

    type: TypeName
    """The socket type of this side."""
    key_part: bool | None = None
    """Whether the first part of a message is its key (routing key, topic), and the rest its body.  Not set:
    true for PUB, SUB, XPUB and XSUB, false for all others."""
    subscribe: tuple[str, ...] = ()
    """For SUB and XSUB: prefixes to subscribe to.  ``[""]`` is everything.  What readers of the messages
    subscribe to here is subscribed to at the peer as well."""
    mechanism: Literal["NULL", "PLAIN"] = "NULL"
    """``PLAIN``: user name and password, in clear text.  Whoever connects shows them, and the one that listens
    has them decided on."""
    username: _Name = ""
    """For a dialler with PLAIN."""
    password: _Name = ""
    """For a dialler with PLAIN."""
    max_message: _Positive = 256 * 1024 * 1024
    """Bytes of the largest message that is accepted from the peer, all parts together."""
    max_parts: _Positive = 4096
    """Parts of a message that are accepted at most."""
    max_subscriptions: _Positive = 16384
    """Subscriptions that the peer may have at a time."""
    subscription_bytes: _Positive = 1024 * 1024
    """Bytes of these subscriptions together."""
    handshake: _Seconds = 10.0
    """Seconds that a peer may take from the connection to its READY."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0, le=2000)] = 10.0
    """Seconds without a byte of the peer after which it is sent a PING, if it speaks ZMTP 3.1.  It is given up
    after three times as long.  0: no heartbeats."""

    def __post_init__(self) -> None:
        if self.subscribe and self.type not in ("SUB", "XSUB"):
            raise ValueError(f"subscribe: {self.type} does not subscribe; SUB and XSUB do")
        if (self.username or self.password) and self.mechanism != "PLAIN":
            raise ValueError('username and password are for mechanism = "PLAIN"')
        if any(not value.isascii() or not value.isprintable() for value in (self.username, self.password)):
            raise ValueError("username and password are printable ASCII")
