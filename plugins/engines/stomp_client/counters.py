"""Counters of a STOMP client engine."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct, gc=False):
    """Sums over all connections of an engine."""

    messages_in: int = 0
    """Messages of the broker, those that it has sent again included."""
    messages_out: int = 0
    """SEND frames, those that were sent again included."""
    messages_resent: int = 0
    """Those that were sent again on a later connection."""
    messages_refused: int = 0
    """Refused by the broker, or STOMP cannot carry them."""
    messages_nacked: int = 0
    """Messages of the broker that were refused here."""
    refusals: int = 0
    """Logins and subscriptions that the broker has refused."""
    errors: int = 0
    """ERROR frames."""
    bytes_in: int = 0
    bytes_out: int = 0
