"""Short and long strings (section 4.2.5.3), and the error for arguments of the wrong length.

Short strings are text.  The specification demands UTF-8, but RabbitMQ accepts any octets.  With
``surrogateescape`` octets that are not UTF-8 survive decoding and encoding unchanged.
"""

from __future__ import annotations

from struct import pack

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.amqp091.errors import MalformedField


def short_string(text: str) -> bytes:
    """Encode text of up to 255 octets.  Raises ``LocalProtocolError`` if it is longer."""
    # The limit is 255 octets and not 255 characters.
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise LocalProtocolError(f"{text[:40]!r}... has {len(octets)} octets; a short string has at most 255")
    return bytes((len(octets),)) + octets


def long_string(octets: bytes) -> bytes:
    """Encode octets behind their length (4 octets)."""
    return pack(">I", len(octets)) + octets


def wrong_length(what: str) -> MalformedField:
    """Return the error for a method frame that is shorter or longer than its fields."""
    return MalformedField(f"the arguments of {what} do not fill their frame exactly")
