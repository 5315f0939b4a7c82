"""The two kinds of string of section 4.2.5.3, and the fault that a method's arguments can have.

Short strings are text.  The specification wants UTF-8, RabbitMQ takes any octets: ``surrogateescape``
carries those that are not UTF-8 through unchanged.
"""

from __future__ import annotations

from struct import pack

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.amqp091.errors import MalformedField


def short_string(text: str) -> bytes:
    """Encode up to 255 octets of text."""
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise LocalProtocolError(f"{text[:40]!r}... has {len(octets)} octets; a short string has at most 255")
    return bytes((len(octets),)) + octets


def long_string(octets: bytes) -> bytes:
    """Encode octets with their length in front."""
    return pack(">I", len(octets)) + octets


def wrong_length(what: str) -> MalformedField:
    """The fault of a frame that is shorter or longer than its fields."""
    return MalformedField(f"the arguments of {what} do not fill their frame exactly")
