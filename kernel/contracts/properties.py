"""Properties: the names under which envelopes carry what only some protocols know, and the types of their values.

A protocol that has such a thing uses the name and the type that are here, so that another protocol finds it.  An encoder
goes by three rules, and a test holds the codecs of this distribution to them:

1. It carries a property of this table with the same value; or
2. it drops it, if its protocol has no place for it; or
3. it refuses the whole envelope with ``LocalProtocolError``, if its protocol has the place, and the value does not fit.

What refuses is asked before a message is on its way, so that the message can be laid aside and the connection lives on.
Names that are not here are a protocol's own: others carry them or drop them, and never fail because of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class Property(msgspec.Struct, frozen=True):
    """One property."""

    types: tuple[str, ...]
    """The types of its value, the usual one first: ``str``, ``bytes``, ``int``, ``datetime`` (aware), ``Timestamp``
    (``kernel.contracts.timestamp``), ``mapping`` (of text to any value), ``pairs`` (a tuple of pairs of text, in order, a
    name as often as it comes)."""
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
"""By name.  What every protocol is to know is a field of the envelope itself and not among these: ``reply_to``,
``persistent``, ``priority``, ``expiration``."""
