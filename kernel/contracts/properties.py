"""Properties: the names and types of what only some protocols know, in ``Envelope.properties``.

A protocol that has such a property uses the name and the type in this table, so that other protocols find it.
For each property of an envelope an encoder does one of three things (a test checks this for the codecs of
this distribution):

1. It carries the property with the same value.
2. It drops the property, if its protocol has no field for it.
3. It refuses the whole envelope with ``LocalProtocolError``, if its protocol has the field and the value does
   not fit.

An encoder that refuses does so before any byte of the message is sent.  So the message can become a dead
letter, and the connection goes on.  (A ``StreamProtocol`` catches the exception of its encoder and reports a
``Refusal``; see ``send_batches``.)  Names that are not in this table belong to single protocols: other
protocols carry them or drop them, and must not fail because of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class Property(msgspec.Struct, frozen=True):
    """One property."""

    types: tuple[str, ...]
    """The types of its value, the usual one first: ``str``, ``bytes``, ``int``, ``datetime`` (aware),
    ``Timestamp`` (``kernel.contracts.timestamp``), ``mapping`` (of text to any value), ``pairs`` (a tuple of
    pairs of text, in order; a name may be in it several times)."""
    meaning: str


PROPERTIES: Mapping[str, Property] = MappingProxyType(
    {
        "content_type": Property(("str",), "the MIME type of the body"),
        "content_encoding": Property(("str",), "how the body is packed: gzip"),
        "headers": Property(("mapping",), "what applications add, by name"),
        "user_properties": Property(("pairs",), "what applications add, where order and repetition count"),
        "correlation_id": Property(("str", "bytes"), "which request this answers"),
        "message_id": Property(("str",), "what the application calls the message"),
        "timestamp": Property(("datetime", "Timestamp"), "when the message was made, to the second"),
        "type": Property(("str",), "what the application calls the kind of message"),
        "user_id": Property(("str",), "who published, as a broker has checked it"),
        "app_id": Property(("str",), "which application published"),
    }
)
"""By name.  ``reply_to``, ``persistent``, ``priority`` and ``expiration`` are not here: they are fields of
the envelope."""
