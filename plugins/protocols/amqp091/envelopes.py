"""Envelopes: a cache, so that equal octets on one connection give the same envelope object.

The kernel compares envelopes by identity.
"""

from __future__ import annotations

from msgspec.structs import replace

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.content import envelope_of
from plugins.protocols.amqp091.templates import MAXIMUM_OCTETS, MAXIMUM_TEMPLATES


class Envelopes:
    """Maps exchange, key and raw properties to their envelope.  Bounded; cleared when it is full."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], Envelope] = {}
        self._octets = 0

    def find(self, exchange: str, key: str, raw: bytes) -> Envelope | None:
        """Return the envelope if it is in the cache."""
        return self._known.get((exchange, key, raw))

    def make(self, exchange: str, key: str, raw: bytes) -> Envelope:
        """Return the envelope, from the cache or new.

        Raises ``MalformedField``, ``IndexError`` or ``struct.error`` for malformed properties.
        """
        triple = (exchange, key, raw)
        envelope = self._known.get(triple)
        if envelope is None:
            envelope = envelope_of(exchange, key, raw)
            # As ``Bounded``, without its call: requests come here with each message.  After clearing, the
            # same octets give a new object.  So one flow may have two envelopes, which costs a batch boundary
            # and nothing else.
            self._octets += len(raw)
            if len(self._known) >= MAXIMUM_TEMPLATES or self._octets > MAXIMUM_OCTETS:
                self._known.clear()
                self._octets = len(raw)
            self._known[triple] = envelope
        return envelope

    def under_another_key(self, other: Envelope, key: str, raw: bytes) -> Envelope:
        """Return what ``make`` returns, if ``other`` has the same exchange and properties.

        These are not decoded.
        """
        triple = (other.exchange, key, raw)
        envelope = self._known.get(triple)
        if envelope is None:
            envelope = replace(other, key=key)
            self._octets += len(raw)
            if len(self._known) >= MAXIMUM_TEMPLATES or self._octets > MAXIMUM_OCTETS:
                self._known.clear()
                self._octets = len(raw)
            self._known[triple] = envelope
        return envelope
