"""What can be set of the SCTP engine."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

import msgspec

from kernel.hosting.backoff import BackoffOptions
from plugins.engines.sctp.location import parse_sctp_address
from plugins.protocols.sctp.options import PacketSize, SctpOptions, Seconds

Count = Annotated[int, msgspec.Meta(ge=1)]
BufferSize = Annotated[int, msgspec.Meta(ge=64 * 1024)]


class HostedSctp(SctpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An association of the engine's.  It notices sooner than RFC 9260 would have it that a peer is gone."""

    rto_initial: Seconds = 0.5
    """Seconds until the first retransmission, before a round trip was measured; 1.0 in the RFC."""
    rto_least: Seconds = 0.2
    """Seconds until a retransmission at the least; 1.0 in the RFC.  More than the peer's ``sack_delay``."""
    rto_most: Seconds = 5.0
    """Seconds until a retransmission at the most; 60.0 in the RFC."""
    association_tries: Count = 6
    """Retransmissions in a row, of all paths, after which the peer is taken for gone; 10 in the RFC."""
    path_tries: Count = 3
    """Retransmissions and heartbeats in a row after which a path is taken for broken; 5 in the RFC."""
    packet_most: PacketSize = 8952
    """Bytes up to which each path is probed for larger packets (RFC 8899), what Ethernet's large frames carry; no more than
    ``packet_size``: it is not.  Links that carry less are noticed."""
    heartbeat: Seconds = 5.0
    """Seconds between heartbeats on a path without data, to which its time-out is added; 30.0 in the RFC."""
    sack_delay: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.02
    """Seconds that an acknowledgement may wait for a second packet, or for data that takes it along; 0.2 in the RFC."""


class SctpEngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SCTP (RFC 9260) over UDP or IP, or the system's, dialling or listening: many streams, none of which holds up another."""

    address: str
    """``backend+sctp://10.0.0.1:5000`` between kernels, ``plain+sctp://...`` to other programs, a message of SCTP for each
    message.  Several addresses of a side stand with commas between: ``10.0.0.1,10.1.0.1:5000``.  Behind the port of SCTP that of UDP,
    if it is not 9899: ``10.0.0.1:5000/9900``."""
    mode: Literal["dial", "listen"] = "dial"
    transport: Literal["udp", "raw", "system"] = "udp"
    """``udp``: RFC 6951; ``raw``: IP itself (protocol 132), which takes the right to open raw sockets; ``system``: the operating
    system's own SCTP, over IP, or over UDP if the address names a port of it."""
    addresses: tuple[str, ...] = ()
    """A dialler's own IP addresses, if it is to be reached by more than one; empty: the system's choice."""
    streams: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    """Streams each way: of a dialler as many, of a listener at the most.  Each source (a port, by a route) has one of them,
    the one with the fewest sources."""
    stream_window: BufferSize = 256 * 1024
    """Bytes that a stream may hold here for a destination that takes nothing, before the peer stops sending on it."""
    stream_buffer: BufferSize = 256 * 1024
    """Bytes of a stream that may be sent or queued and not acknowledged, before nothing more is taken from its pipes."""
    max_message: Annotated[int, msgspec.Meta(ge=1, le=(1 << 56) - 1)] = 256 * 1024 * 1024
    """The largest message, in bytes, that is accepted from the peer."""
    subscriptions: tuple[str, ...] = ()
    """With ``backend``: patterns that are subscribed to at the peer once connected (routes there need ``router = "by-key"``)."""
    protocol_id: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 0
    """With ``plain``: the payload protocol identifier of what is sent."""
    sctp: HostedSctp = HostedSctp()
    """The association itself; its ``streams_out`` is ``streams``."""
    reconnect: BackoffOptions = BackoffOptions()
    """How a dialler spaces its attempts."""
    connect_timeout: Seconds = 10.0
    """Seconds that one attempt to connect, and to greet, may take."""
    max_associations: Count = 10_000
    """Associations that a listener has at once; more are ended at once, and counted."""
    send_buffer: BufferSize = 4 * 1024 * 1024
    """SO_SNDBUF in bytes."""
    receive_buffer: BufferSize = 4 * 1024 * 1024
    """SO_RCVBUF in bytes: what comes while this thread is busy waits there.  A smaller one is reported."""

    def __post_init__(self) -> None:
        try:
            _, location = parse_sctp_address(self.address)
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if self.mode == "dial" and not (location.port and all(location.hosts)):
            raise ValueError(f"address: {self.address!r}: a dialler takes the host and the port of its peer")
        for address in self.addresses:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"addresses: {address!r} is no IP address") from None
