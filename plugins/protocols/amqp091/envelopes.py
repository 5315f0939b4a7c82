"""Envelopes of the flows of one connection: the same octets always give the same object."""

from __future__ import annotations

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.content import envelope_of
from plugins.protocols.amqp091.templates import MAXIMUM_TEMPLATES


class Envelopes:
    """A bounded table from exchange, key and raw properties to the envelope they make."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], Envelope] = {}

    def find(self, exchange: str, key: str, raw: bytes) -> Envelope | None:
        """Return the envelope if it was made before."""
        return self._known.get((exchange, key, raw))

    def make(self, exchange: str, key: str, raw: bytes) -> Envelope:
        """Return the envelope.  Raises as a method's ``decode`` does on malformed properties."""
        triple = (exchange, key, raw)
        envelope = self._known.get(triple)
        if envelope is None:
            if len(self._known) >= MAXIMUM_TEMPLATES:
                self._known.clear()
            envelope = self._known[triple] = envelope_of(exchange, key, raw)
        return envelope
