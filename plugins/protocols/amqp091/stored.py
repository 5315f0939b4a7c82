"""AMQP's properties in a broker's store: the octets of the content header, as they came."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import Envelope
from plugins.protocols.amqp091.content import ContentProperties, envelope_of
from plugins.protocols.amqp091.field_tables import decode_table


class StoredProperties:
    """The codec of messages whose properties are ``ContentProperties``; reads a store's format 1, too."""

    name = "amqp091"
    properties_type = ContentProperties

    def encode(self, properties: ContentProperties) -> bytes:
        """Return the raw octets: nothing is decoded."""
        return properties.raw

    def decode(self, octets: bytes) -> ContentProperties:
        """Return the properties; they are decoded on first access."""
        return ContentProperties(octets)

    def decode_envelope(self, exchange: str, key: str, properties: bytes) -> Envelope:
        """Return an envelope of format 1, which had nothing but AMQP's properties beside exchange and key."""
        return envelope_of(exchange, key, properties)

    def decode_table(self, octets: bytes, position: int) -> tuple[dict[str, Any], int]:
        """Return the field table at a position, and the position behind it: arguments in format 1."""
        return decode_table(octets, position)
