"""Options of PGM, without those of the engine that hosts it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Packets = Annotated[int, msgspec.Meta(ge=2, le=1 << 30)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class SourceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a source."""

    rate: Count = 12_500_000
    """Bytes per second of everything that is sent."""
    repair_share: Share = 0.5
    """The part of ``rate`` that repairs may take. Repairs go first; the rest is always left for new data."""
    window_packets: Packets = 65_536
    """Packets that are kept for repairs."""
    window_bytes: Count = 64 * 1024 * 1024
    """Bytes that are kept for repairs."""
    window_seconds: Seconds = 10.0
    """Seconds that a packet is kept for repairs."""
    ambient: Seconds = 2.0
    """Seconds between SPMs while data flows. New receivers learn from them where to send NAKs."""
    heartbeat_first: Seconds = 0.02
    """Seconds of silence after which an SPM announces the last packet.

    The interval doubles with each further one.
    """
    heartbeat_max: Seconds = 10.0
    """Seconds between heartbeats at most."""
    late_join: bool = True
    """Allow new receivers to request everything that is still in the window (OPT_JOIN)."""
    parity_group: Annotated[int, msgspec.Meta(ge=0, le=128)] = 0
    """Packets of a parity group (a power of two); 0: no parity.

    A lost packet can then be reconstructed from the others.
    """
    parity_packets: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Parity packets that are sent after each group without request: so many losses in a group need no
    repair."""
    parity_on_demand: bool = False
    """Answer requests with parity: one packet repairs different losses of many receivers."""
    congestion_control: bool = False
    """Send no faster than a TCP connection to the slowest receiver would (PGMCC), and never above ``rate``.

    Receivers must take part: without one that does, hardly anything is sent. Cannot be combined with parity.
    """
    repeat_guard: Seconds = 0.002
    """Seconds within which a second request for a packet is assumed to have crossed the answer to the first.

    It becomes longer where requests take longer to come.
    """

    def __post_init__(self) -> None:
        k = self.parity_group
        if k & k - 1 or k == 1:
            raise ValueError("parity_group must be a power of two from 2 to 128, or 0")
        if bool(self.parity_packets or self.parity_on_demand) != bool(k):
            raise ValueError(
                "parity_group needs parity_packets or parity_on_demand, and each of them needs it"
            )
        if k and self.congestion_control:
            raise ValueError("congestion_control cannot be combined with parity")
        if self.parity_packets > k:
            raise ValueError("parity_packets: at most parity_group")


class ReceiverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a receiver."""

    window_packets: Packets = 65_536
    """Packets that are stored or waited for while an earlier one is missing.

    Beyond that, missing ones are given up.
    """
    window_bytes: Count = 64 * 1024 * 1024
    """Bytes that are stored while an earlier packet is missing."""
    join: Literal["now", "window"] | Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = "now"
    """Where to begin with a source that is already sending:

    ``now``, with the next packet; ``window``, with the oldest that it allows to request; or with a sequence
    number, or the nearest one possible.
    """
    back_off: Seconds = 0.02
    """Seconds of which a random part passes before a repair is requested.

    It is less where round trips are shorter, and more where many receivers request the same packets.
    """
    repeat: Seconds = 0.2
    """Seconds after which an unanswered request is repeated, until round trips were measured.

    The wait doubles each time.
    """
    repeat_max: Seconds = 1.0
    """Seconds between repeated requests at most."""
    ncf_tries: Count = 50
    """Requests for one packet without confirmation after which it is given up (NAK_NCF_RETRIES)."""
    data_tries: Count = 50
    """Requests for one packet that were confirmed and not repaired after which it is given up
    (NAK_DATA_RETRIES)."""
    max_naks: Count = 1000
    """NAKs per second for all sources together; each can request 63 packets."""
    election_back_off: Seconds = 0.05
    """Seconds of which a random part passes before this receiver offers to be a source's acker (PGMCC)."""
    source_silence: Seconds = 10.0
    """Seconds of silence after data, without the heartbeat that follows data, after which what the source
    sent last is reported as lost: it was killed, or the network is cut."""
    source_expiry: Seconds = 300.0
    """Seconds without any packet after which a source is forgotten."""
    max_sources: Count = 1000
    """Sources that are received at the same time; more are ignored and counted."""
    max_unit: Count = 64 * 1024 * 1024
    """Bytes of a unit in fragments (OPT_FRAGMENT) at most; larger units are dropped and counted."""
