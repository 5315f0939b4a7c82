"""How a broker's store keeps AMQP properties: as the octets of the content header, unchanged."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.content import ContentProperties, envelope_of
from plugins.protocols.amqp091.field_tables import decode_table


class StoredProperties:
    """Codec for messages whose properties are ``ContentProperties``.  It also reads format 1 of the store."""

    name = "amqp091"
    properties_type = ContentProperties

    def encode(self, properties: ContentProperties) -> bytes:
        """Return the raw octets.  Nothing is decoded."""
        return properties.raw

    def decode(self, octets: bytes) -> ContentProperties:
        """Return the properties.  They are decoded on first access."""
        return ContentProperties(octets)

    def decode_envelope(self, exchange: str, key: str, properties: bytes) -> Envelope:
        """Return the envelope of a record of format 1, which has exchange, key and AMQP properties only."""
        return envelope_of(exchange, key, properties)

    def decode_table(self, octets: bytes, position: int) -> tuple[dict[str, Any], int]:
        """Return the field table at ``position``, as in format 1, and the position behind it."""
        return decode_table(octets, position)
