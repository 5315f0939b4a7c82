"""What can be set of the switch-over between TCP and multicast."""

from __future__ import annotations

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SwitchoverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a sender changes from TCP to multicast and back."""

    multicast_from: Annotated[int, msgspec.Meta(ge=1)] = 3
    """So many receivers that hear the group are reached by multicast, fewer by TCP."""
    window_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 16 * 1024 * 1024
    """Bytes that are kept for those who come back or miss something; as long as so many are unconfirmed nothing more is sent."""
    join_timeout: Seconds = 5.0
    """Seconds that a receiver has to say that multicast gets to it; then it stays on TCP."""
    retry: Seconds = 10.0
    """Seconds after which a receiver that multicast did not get to is asked again."""
    fall_back: Seconds = 1.0
    """Seconds without acknowledgement after which a receiver gets by TCP what it should have got by multicast."""
    stall_timeout: Seconds = 5.0
    """Seconds for which one receiver may hold up the others; then it is hung up on."""
