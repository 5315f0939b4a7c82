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

Who changes properties calls ``changed``.  Properties that are still the octets of a protocol then stay so,
but for what is changed: a protocol may have several types of numbers, and Python has one for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

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
        "user_properties": Property(
            ("pairs",),
            "the same, where order and repetition count; a protocol that has headers only carries the last of a name",
        ),
        "correlation_id": Property(("str", "bytes"), "which request this answers"),
        "message_id": Property(("str",), "what the application calls the message"),
        "timestamp": Property(("datetime", "Timestamp"), "when the message was made, to the second"),
        "type": Property(("str",), "what the application calls the kind of message"),
        "user_id": Property(("str",), "who published, as a broker has checked it"),
        "app_id": Property(("str",), "which application published"),
    }
)
"""By name.  ``reply_to``, ``persistent``, ``priority`` and ``expiration`` are not here: they are fields of
the envelope.  ``docs/properties.md`` says which protocol carries what; a test compares it with the
codecs."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Changeable(Mapping[str, Any]):
    """Properties that know themselves how to change some of them and leave the others as they came."""

    # A class to derive from, and no interface: dead letters ask for it one by one, and to look for a method
    # takes 10 us.
    __slots__ = ()

    @abstractmethod
    def changed(
        self, changes: Mapping[str, Any], headers: Mapping[str, Any], without: Collection[str]
    ) -> Mapping[str, Any]:
        """Return what the function ``changed`` returns."""


def changed(
    properties: Mapping[str, Any],
    changes: Mapping[str, Any] = _NOTHING,
    *,
    headers: Mapping[str, Any] = _NOTHING,
    without: Collection[str] = (),
) -> Mapping[str, Any]:
    """Return properties with some of them changed.

    ``changes``: values by name; None removes a property.  ``headers``: the headers to set.  ``without``:
    names of headers to remove.
    """
    if isinstance(properties, Changeable):
        return properties.changed(changes, headers, without)
    return changed_values(properties, changes, headers, without)


def changed_values(
    properties: Mapping[str, Any],
    changes: Mapping[str, Any],
    headers: Mapping[str, Any],
    without: Collection[str],
) -> dict[str, Any]:
    """Do as ``changed``, for any mapping: the result is a new one."""
    values = {**properties, **changes}
    before = values.get("headers")
    if headers or without:
        # A protocol may have let something else through than a mapping.
        kept = before if isinstance(before, Mapping) else {}
        values["headers"] = {name: value for name, value in kept.items() if name not in without} | dict(
            headers
        )
    return {name: value for name, value in values.items() if value is not None}
