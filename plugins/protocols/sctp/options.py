"""Options of SCTP, without those of the engine that hosts it.

Defaults are those of RFC 9260, section 16, where it has any.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Streams = Annotated[int, msgspec.Meta(ge=1, le=65535)]
PacketSize = Annotated[int, msgspec.Meta(ge=508, le=65487)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SctpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An SCTP endpoint and its associations."""

    packet_size: PacketSize = 1200
    """Bytes of a packet at most, SCTP's common header included: what every path carries."""
    packet_size_max: PacketSize = 1200
    """Bytes up to which each path is probed for larger packets (RFC 8899).

    If it is not above ``packet_size``, there is no probing.
    """
    burst: Count = 32
    """Packets with new data that are sent at once (``Max.Burst``).

    RFC 9260 has 4, for peers that acknowledge every second packet; peers that read many packets at once
    acknowledge them once.
    """
    streams_out: Streams = 64
    """Outbound streams to ask for; the peer may allow fewer."""
    streams_in: Streams = 65535
    """Inbound streams to allow."""
    receive_window: Annotated[int, msgspec.Meta(ge=4096, le=0x7FFF_FFFF)] = 1024 * 1024
    """Bytes that are stored until messages are complete and the host takes them.

    A peer that fills gaps may use up to twice as much.
    """
    send_buffer: Count = 4 * 1024 * 1024
    """Bytes that are not sent or not acknowledged, beyond which ``writable`` is false."""
    rto_initial: Seconds = 1.0
    """Retransmission timeout in seconds before a round trip was measured (RTO.Initial)."""
    rto_min: Seconds = 1.0
    """Smallest retransmission timeout in seconds (RTO.Min)."""
    rto_max: Seconds = 60.0
    """Largest retransmission timeout in seconds (RTO.Max)."""
    cookie_lifetime: Seconds = 60.0
    """Seconds within which a peer has to return its cookie (Valid.Cookie.Life)."""
    init_tries: Count = 8
    """Retransmissions of INIT or COOKIE ECHO before the association is given up (Max.Init.Retransmits)."""
    association_tries: Count = 10
    """Consecutive retransmissions on all paths after which the association has failed
    (Association.Max.Retrans)."""
    path_tries: Count = 5
    """Consecutive timeouts of data and heartbeats after which a path is inactive (Path.Max.Retrans)."""
    heartbeat: Seconds = 30.0
    """Seconds between heartbeats on an idle path, plus its RTO (HB.interval)."""
    sack_delay: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.2
    """Seconds that a SACK may be delayed, for a second packet or for data to share a packet with
    (SACK.Delay)."""
    partial_reliability: bool = True
    """Offer partial reliability (RFC 3758): messages may be abandoned after a time or a number of
    retransmissions."""
    interleaving: bool = True
    """Offer interleaving (RFC 8260): a large message does not delay other streams."""
    ecn: bool = False
    """Offer explicit congestion notification (RFC 4960, appendix A).

    The host has to mark packets as capable, and to report marks.
    """
    stream_reset: bool = True
    """Offer stream reconfiguration (RFC 6525): streams may be reset and added."""
    schedule: Literal["first-come", "round-robin", "priority", "fair"] = "round-robin"
    """The scheduler that decides which stream sends next."""
