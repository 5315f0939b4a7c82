"""Counters: what is counted of all connections of one engine."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct, gc=False):
    """Sums over all connections so far."""

    messages_in: int = 0
    messages_out: int = 0
    messages_nacked: int = 0
    """Refused by the server for now, and sent again."""
    messages_returned: int = 0
    """Confirmed by the server although no queue wanted them."""
    messages_refused: int = 0
    """Dropped here: AMQP has no way to say their envelope, or the server will not have them."""
    messages_lost: int = 0
    """In flight when the connection or channel ended, from routes that do not confirm."""
    refusals: int = 0
    """Logins, declarations, consumers and publishers that the server refused."""
    bytes_in: int = 0
    bytes_out: int = 0
