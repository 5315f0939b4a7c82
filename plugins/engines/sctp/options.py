"""Options of the SCTP engine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from kernel.contracts.options import ListeningPlace
from kernel.hosting.backoff import BackoffOptions
from plugins.engines.sctp.location import UDP_PORT, parse_sctp_address
from plugins.protocols.sctp.options import PacketSize, SctpOptions, Seconds

Count = Annotated[int, msgspec.Meta(ge=1)]
BufferSize = Annotated[int, msgspec.Meta(ge=64 * 1024)]
# setsockopt(2) takes an int of C.
SocketBufferSize = Annotated[int, msgspec.Meta(ge=64 * 1024, le=0x7FFF_FFFF)]


class HostedSctp(SctpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of an association. Failures are noticed sooner than with the defaults of RFC 9260."""

    rto_initial: Seconds = 0.5
    """Retransmission timeout in seconds before a round trip was measured; 1.0 in the RFC."""
    rto_min: Seconds = 0.2
    """Smallest retransmission timeout in seconds; 1.0 in the RFC.

    It must be larger than the peer's ``sack_delay``.
    """
    rto_max: Seconds = 5.0
    """Largest retransmission timeout in seconds; 60.0 in the RFC."""
    association_tries: Count = 6
    """Consecutive retransmissions on all paths after which the association has failed; 10 in the RFC."""
    path_tries: Count = 3
    """Consecutive timeouts of data and heartbeats after which a path is inactive; 5 in the RFC."""
    packet_size_max: PacketSize = 8952
    """Bytes up to which each path is probed for larger packets (RFC 8899): what jumbo frames of Ethernet
    carry. If it is not above ``packet_size``, there is no probing."""
    heartbeat: Seconds = 5.0
    """Seconds between heartbeats on an idle path, plus its timeout; 30.0 in the RFC."""
    receive_window: Annotated[int, msgspec.Meta(ge=4096, le=0x7FFF_FFFF)] = 4 * 1024 * 1024
    """Bytes that are stored until messages are complete and the host takes them.

    A peer that fills gaps may use up to twice as much.
    """
    sack_delay: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
    """Seconds that an acknowledgement may be delayed, for a second packet or for data to share a packet with;
    0.2 in the RFC."""


class SctpEngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SCTP (RFC 9260) over UDP or IP, or the system's own: many streams, none of which delays another."""

    address: str
    """``backend+sctp://10.0.0.1:5000`` between kernels.

    ``plain+sctp://...`` to other programs, one SCTP message per message. Several addresses of a side are
    separated by commas: ``10.0.0.1,10.1.0.1:5000``. A UDP port other than 9899 follows the SCTP port:
    ``10.0.0.1:5000/9900``.
    """
    mode: Literal["dial", "listen"] = "dial"
    transport: Literal["udp", "raw", "system"] = "udp"
    """``udp``: over UDP (RFC 6951).

    ``raw``: over IP (protocol 132), which needs the right to open raw sockets; ``system``: the operating
    system's SCTP, over IP, or over UDP if the address names a UDP port.
    """
    addresses: tuple[str, ...] = ()
    """A dialler's own IP addresses, if the peer is to use several; empty: the system's choice."""
    streams: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    """Streams each way: a dialler uses this number, a listener allows up to it.

    Each source (a port, by a route) is assigned to the stream with the fewest sources.
    """
    stream_window: BufferSize = 4 * 1024 * 1024
    """Bytes of a stream that may wait here for a slow destination before the peer must stop sending on it.

    The window begins with 256 KiB, and grows up to this while the path carries more than half
    of it in a round trip.
    """
    stream_buffer: BufferSize = 4 * 1024 * 1024
    """Bytes of a stream that may be queued or unacknowledged before nothing more is taken from its pipes.

    The buffer begins with 256 KiB, and grows like ``stream_window``.
    """
    max_message: Annotated[int, msgspec.Meta(ge=1, le=(1 << 56) - 1)] = 256 * 1024 * 1024
    """The largest message, in bytes, that is accepted from the peer."""
    subscriptions: tuple[str, ...] = ()
    """With ``backend``: patterns to subscribe to at the peer once connected (routes there need ``router =
    "by-key"``)."""
    protocol_id: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 0
    """With ``plain``: the payload protocol identifier of sent messages."""
    sctp: HostedSctp = HostedSctp()
    """The association; its ``streams_out`` is ``streams``."""
    reconnect: BackoffOptions = BackoffOptions()
    """The times between a dialler's attempts."""
    connect_timeout: Seconds = 10.0
    """Seconds that one attempt to connect and to exchange greetings may take."""
    max_associations: Count = 10_000
    """Associations that a listener has at the same time; more are aborted and counted."""
    send_buffer: SocketBufferSize = 4 * 1024 * 1024
    """SO_SNDBUF in bytes."""
    receive_buffer: SocketBufferSize = 4 * 1024 * 1024
    """SO_RCVBUF in bytes: packets wait there while the thread is busy.

    If the system grants less, that is reported.
    """

    def listens_at(self) -> Iterator[tuple[str, ListeningPlace]]:
        """``Listens``: the UDP port of a listener, at each of its addresses."""
        if self.mode == "listen" and self.transport == "udp":
            _, location = parse_sctp_address(self.address)
            port = UDP_PORT if location.udp_port is None else location.udp_port
            for host in location.hosts:
                yield "address", ListeningPlace("udp", host, port)

    def __post_init__(self) -> None:
        try:
            _, location = parse_sctp_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if self.mode == "dial" and not (location.port and all(location.hosts)):
            raise ValueError(f"address: {self.address!r}: a dialler needs the host and the port of its peer")
        for address in self.addresses:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"addresses: {address!r} is not an IP address") from None
