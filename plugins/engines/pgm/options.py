"""What can be set of the PGM engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plugins.engines.pgm.location import parse_pgm_address
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions

Size = Annotated[int, msgspec.Meta(ge=256 * 1024)]
"""Of a socket's buffer: on one machine, what left in one call arrives in one piece, up to 64 KiB and the system's overhead."""


class GroupOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A group's sources and receivers, whatever they carry."""

    ttl: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    """How many routers packets may pass, plus one."""
    loop: bool = True
    """Receivers on the same machine hear a source, too."""
    gsi: Annotated[str, msgspec.Meta(pattern="^([0-9a-fA-F]{12})?$")] = ""
    """Global identifier of a source, in hexadecimal; empty: six random bytes."""
    mtu: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """The largest IP packet that is sent; 0: what the interface takes, and 1500 at the most, as libzmq expects it."""
    linger: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Seconds that a source stays after its last data, at the end, for those who miss some of it."""
    receive_buffer: Size = 16 * 1024 * 1024
    """SO_RCVBUF in bytes: what comes while this thread is busy waits there.  A smaller one is reported."""
    send_buffer: Size = 4 * 1024 * 1024
    """SO_SNDBUF in bytes."""
    max_message: Annotated[int, msgspec.Meta(ge=1)] = 64 * 1024 * 1024
    """The largest message, in bytes, that is accepted; a source that sends larger ones is listened to again after them."""
    tell_repairs: bool = False
    """Report every gap and every recovery, too, not only what was lost."""
    source: SourceOptions = SourceOptions()
    """Rates, windows and timers of ``mode = "send"``."""
    receiver: ReceiverOptions = ReceiverOptions()
    """Windows and timers of ``mode = "receive"``."""


class PgmOptions(GroupOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Reliable multicast: PGM (RFC 3208) over IP or UDP, to and from libzmq, OpenPGM and other kernels."""

    address: str
    """``zmtp1+epgm://eth0;239.192.1.1:5555``: over UDP, as libzmq's ``epgm://``; ``zmtp1+pgm://`` over IP itself, which takes the
    right to open raw sockets; ``backend+epgm://`` and ``backend+pgm://`` between kernels, with envelopes.  The interface is a name, an
    address or a network (``10.0.0.0/8``); empty: the system's choice."""
    mode: Literal["send", "receive"]
    """PGM goes one way: ``send`` is a source, to which routes lead, ``receive`` hears all sources of the group."""
    keys: Literal["none", "part"] = "none"
    """With ``zmtp1``: ``part`` sends a message's key as a part before it, for subscribers to choose by, and takes the first of
    several parts for the key.  ``none``: keys do not travel."""

    def __post_init__(self) -> None:
        try:
            parse_pgm_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
