"""What can be set of SCTP, apart from the engine that hosts it.  The defaults are RFC 9260's (section 16) where it has any."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Streams = Annotated[int, msgspec.Meta(ge=1, le=65535)]
PacketSize = Annotated[int, msgspec.Meta(ge=508, le=65487)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SctpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An endpoint of SCTP and its associations."""

    packet_size: PacketSize = 1200
    """Bytes of a packet at the most, from SCTP's own header on: what every path carries."""
    packet_most: PacketSize = 1200
    """Bytes up to which each path is probed for larger packets (RFC 8899); no more than ``packet_size``: it is not."""
    burst: Count = 32
    """Packets with new data that go at once (``Max.Burst``).  RFC 9260 has 4, for peers that acknowledge every second packet; those that
    read many at once acknowledge once for them."""
    streams_out: Streams = 64
    """Streams that we ask for; the peer may allow fewer."""
    streams_in: Streams = 65535
    """Streams that we allow the peer."""
    receive_window: Annotated[int, msgspec.Meta(ge=4096, le=0x7FFF_FFFF)] = 1024 * 1024
    """Bytes that wait to be put together, or to be taken by the host."""
    send_buffer: Count = 4 * 1024 * 1024
    """Bytes that wait to be sent or acknowledged, beyond which ``writable`` is false."""
    rto_initial: Seconds = 1.0
    """Seconds until the first retransmission, before a round trip was measured."""
    rto_least: Seconds = 1.0
    """Seconds until a retransmission at the least."""
    rto_most: Seconds = 60.0
    """Seconds until a retransmission at the most."""
    cookie_lifetime: Seconds = 60.0
    """Seconds within which a peer has to come back with its cookie."""
    init_tries: Count = 8
    """Times that INIT or COOKIE ECHO is repeated before the association is given up."""
    association_tries: Count = 10
    """Retransmissions in a row, of all paths, after which the peer is taken for gone."""
    path_tries: Count = 5
    """Retransmissions and heartbeats in a row after which a path is taken for broken."""
    heartbeat: Seconds = 30.0
    """Seconds between heartbeats on a path without data, to which its time-out is added."""
    sack_delay: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.2
    """Seconds that an acknowledgement may wait for a second packet, or for data that takes it along."""
    partial_reliability: bool = True
    """Offer RFC 3758: messages may be given up when they have expired, or were repeated often enough."""
    interleaving: bool = True
    """Offer RFC 8260: large messages do not hold up other streams."""
    ecn: bool = False
    """Offer explicit congestion notification (RFC 4960, appendix A); the carrier has to mark packets, and to see marks."""
    stream_reset: bool = True
    """Offer RFC 6525: streams may count their messages from 0 again."""
    schedule: Literal["first-come", "round-robin", "priority", "fair"] = "round-robin"
    """Which stream sends next."""
