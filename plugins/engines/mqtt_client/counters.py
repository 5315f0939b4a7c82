"""Counters of an MQTT client engine."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct, gc=False):
    """Sums over all connections of an engine."""

    messages_in: int = 0
    """New messages.  What is recognised as sent a second time with QoS 2 does not count."""
    messages_out: int = 0
    """PUBLISH packets sent, those that were sent again included."""
    messages_resent: int = 0
    """Those that were sent again on a later connection."""
    messages_unmatched: int = 0
    """Of which the broker has said that nobody has subscribed to them."""
    messages_refused: int = 0
    """Refused by the broker, or MQTT or this broker cannot carry them."""
    refusals: int = 0
    """Logins and subscriptions that the broker has refused."""
    bytes_in: int = 0
    bytes_out: int = 0
