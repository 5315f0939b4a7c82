"""What can be set of PGM, apart from the engine that hosts it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Packets = Annotated[int, msgspec.Meta(ge=2, le=1 << 30)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class SourceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A source of PGM."""

    rate: Count = 12_500_000
    """Bytes a second, at the most, of all that is sent."""
    repair_share: Share = 0.5
    """The part of ``rate`` that repairs may take.  They go first, and new data has the rest for sure."""
    window_packets: Packets = 65_536
    """Packets that are kept to be sent again."""
    window_bytes: Count = 64 * 1024 * 1024
    """Bytes that are kept to be sent again."""
    window_seconds: Seconds = 10.0
    """Seconds that a packet is kept to be sent again."""
    ambient: Seconds = 2.0
    """Seconds between SPMs while data flows: what late-comers learn the way back from."""
    heartbeat_first: Seconds = 0.02
    """Seconds of silence after which an SPM tells how far the data went; doubled for each one more."""
    heartbeat_max: Seconds = 10.0
    """Seconds between heartbeats at the most."""
    late_join: bool = True
    """Allow those who come late to ask for all that is still in the window (OPT_JOIN)."""
    parity_group: Annotated[int, msgspec.Meta(ge=0, le=128)] = 0
    """Packets for which parity is computed together (a power of two); 0: no parity.  A lost packet is then worked out of others."""
    parity_packets: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Packets of parity that follow each group unasked: so many losses in a group need no repair."""
    parity_on_demand: bool = False
    """Answer requests with parity: one packet repairs different losses of many receivers."""
    congestion_control: bool = False
    """Send no faster than a TCP connection to the slowest receiver would (PGMCC), below ``rate``.  Receivers have to take part: without
    one that does, hardly anything is sent.  Not together with parity."""
    repeat_guard: Seconds = 0.002
    """Seconds during which a second request for the same packet is taken for one that crossed the answer."""

    def __post_init__(self) -> None:
        k = self.parity_group
        if k & k - 1 or k == 1:
            raise ValueError("parity_group: a power of two from 2 to 128, or 0")
        if bool(self.parity_packets or self.parity_on_demand) != bool(k):
            raise ValueError("parity_group: it takes parity_packets or parity_on_demand, and they take it")
        if k and self.congestion_control:
            raise ValueError("congestion_control: not together with parity")
        if self.parity_packets > k:
            raise ValueError("parity_packets: as many as parity_group at the most")


class ReceiverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A receiver of PGM."""

    window_packets: Packets = 65_536
    """Packets that are held, or waited for, while an earlier one is missing; beyond that the missing are given up."""
    window_bytes: Count = 64 * 1024 * 1024
    """Bytes that are held while an earlier packet is missing."""
    join: Literal["now", "window"] | Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = "now"
    """Where to begin with a source that is under way: ``now``, with what comes next; ``window``, with the oldest that it
    allows to ask for; or a sequence number, or what is nearest to it."""
    back_off: Seconds = 0.02
    """Seconds of which a random part is waited before a repair is asked for; shorter where the round trip is."""
    repeat: Seconds = 0.2
    """Seconds after which an unanswered request is repeated, until round trips were measured.  The wait doubles each time."""
    repeat_max: Seconds = 1.0
    """Seconds between repeated requests at the most."""
    ncf_tries: Count = 20
    """Requests for one packet that nobody confirms, after which it is given up."""
    data_tries: Count = 20
    """Requests for one packet that are confirmed and not fulfilled, after which it is given up."""
    max_naks: Count = 1000
    """Requests a second at the most, for all sources together; each may ask for 63 packets."""
    election_back_off: Seconds = 0.05
    """Seconds of which a random part is waited before offering to be a source's acker (PGMCC)."""
    source_expiry: Seconds = 300.0
    """Seconds without any packet after which a source is taken for gone."""
    max_sources: Count = 1000
    """Sources that are listened to at once; more are ignored, and counted."""
    max_unit: Count = 64 * 1024 * 1024
    """Bytes that fragments (OPT_FRAGMENT) may make together; larger units are dropped, and counted."""
