"""Options of the PGM engine."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plugins.engines.pgm.location import parse_pgm_address
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions

# setsockopt(2) takes an int of C.
Size = Annotated[int, msgspec.Meta(ge=256 * 1024, le=0x7FFF_FFFF)]
"""Bytes of a socket's buffer.

On one machine, what was sent in one call arrives as one item of up to 64 KiB plus overhead.
"""


class GroupOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of sources and receivers of a group, whatever the framing."""

    ttl: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    """How many routers packets may pass, plus one."""
    loop: bool = True
    """Whether receivers on the same machine hear a source."""
    gsi: Annotated[str, msgspec.Meta(pattern="^([0-9a-fA-F]{12})?$")] = ""
    """Global source identifier (GSI) in hexadecimal; empty: six random bytes."""
    mtu: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """The largest IP packet that is sent.

    0: the interface's MTU, but 1500 at most, which is what libzmq expects.
    """
    linger: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Seconds that a source keeps answering NAKs after its last data, when it stops."""
    receive_buffer: Size = 16 * 1024 * 1024
    """SO_RCVBUF in bytes: packets wait there while the thread is busy.

    If the system grants less, that is reported.
    """
    send_buffer: Size = 4 * 1024 * 1024
    """SO_SNDBUF in bytes."""
    max_message: Annotated[int, msgspec.Meta(ge=1)] = 64 * 1024 * 1024
    """The largest message, in bytes, that is accepted.

    After a larger one reception continues with the next message.
    """
    report_repairs: bool = False
    """Whether every gap and every recovery is reported, and not only losses."""
    source: SourceOptions = SourceOptions()
    """Rates, windows and timers of ``mode = "send"``."""
    receiver: ReceiverOptions = ReceiverOptions()
    """Windows and timers of ``mode = "receive"``."""


class PgmOptions(GroupOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Reliable multicast: PGM (RFC 3208) over IP or UDP, with libzmq, OpenPGM and other kernels."""

    address: str
    """``zmtp1+epgm://eth0;239.192.1.1:5555``: over UDP, like libzmq's ``epgm://``.

    ``zmtp1+pgm://``: over IP, which needs the right to open raw sockets; ``backend+epgm://`` and
    ``backend+pgm://``: between kernels, with envelopes. The interface is a name, an address or a network
    (``10.0.0.0/8``); empty: the system's choice.
    """
    mode: Literal["send", "receive"]
    """PGM has one direction:

    ``send`` is a source, a target of routes; ``receive`` hears all sources of the group.
    """
    keys: Literal["none", "part"] = "none"
    """With ``zmtp1``:

    ``part`` sends a message's key as its first part, for subscribers to filter by, and takes the first of
    several parts as the key; ``none``: keys are not sent.
    """

    def __post_init__(self) -> None:
        try:
            parse_pgm_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
