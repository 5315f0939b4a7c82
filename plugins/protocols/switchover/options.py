"""Options of the switch-over between TCP and multicast."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SwitchoverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a sender changes from TCP to multicast and back."""

    multicast_from: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Receivers that can hear the group from which on multicast is used; below, TCP."""
    window_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 16 * 1024 * 1024
    """Bytes that are kept for receivers that reconnect or miss something.

    While so many are unconfirmed nothing more is sent.
    """
    join_timeout: Seconds = 5.0
    """Seconds within which a receiver must report that multicast reaches it; else it stays on TCP."""
    retry: Seconds = 10.0
    """Seconds after which a receiver that multicast did not reach is asked again."""
    fall_back: Seconds = 1.0
    """Seconds without acknowledgement after which a receiver is sent over TCP what multicast did not deliver.
    """
    stall_timeout: Seconds = 5.0
    """Seconds for which one receiver may hold up all others; then it is disconnected."""
