"""Every codec of ours carries a property of the table, drops it, or refuses the envelope; it never fails otherwise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Envelope
from kernel.contracts.properties import PROPERTIES
from kernel.contracts.timestamp import Timestamp
from plugins.engines.broker.storage.envelopes import Codecs, Envelopes
from plugins.engines.broker.storage.values import CannotStore
from plugins.protocols.amqp091.content import decode_properties, raw_properties
from plugins.protocols.amqp091.stored import StoredProperties
from plugins.protocols.backend.greeting import decode_envelope, encode_readable_envelope
from plugins.protocols.journal_format.envelopes import fields_of, row_of
from plugins.protocols.journal_format.schema import ENVELOPE_FIELDS
from plugins.protocols.mqtt import properties as mqtt_properties
from plugins.protocols.mqtt.messages import envelope_of as mqtt_envelope_of
from plugins.protocols.mqtt.messages import properties_of as mqtt_properties_of
from plugins.protocols.stomp.escapes import header_line
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.properties import envelope_of, headers_of
from plugins.protocols.stomp.versions import Version
from tests.notes import about, for_each
from tests.seeds import examples

_TEXT = st.text(max_size=300)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=20), inner, max_size=2),
    max_leaves=4,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": _TEXT,
    "bytes": st.binary(max_size=300),
    "datetime": st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    "Timestamp": st.integers(253402300800, 2**40).map(Timestamp),
    "mapping": st.dictionaries(st.text(max_size=20), _ANYTHING, max_size=3),
    "pairs": st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple),
}


def _amqp(envelope: Envelope) -> Mapping[str, Any]:
    return decode_properties(raw_properties(envelope))


def _backend(envelope: Envelope) -> Mapping[str, Any]:
    return decode_envelope(encode_readable_envelope(envelope)).properties


def _journal(envelope: Envelope) -> Mapping[str, Any]:
    names = [field.name for field in ENVELOPE_FIELDS]
    properties: Mapping[str, Any] = fields_of(dict(zip(names, row_of(envelope), strict=True))).get(
        "properties", {}
    )
    return properties


def _store(envelope: Envelope) -> Mapping[str, Any]:
    envelopes = Envelopes(Codecs([StoredProperties()]))
    return Envelopes(Codecs([StoredProperties()])).decode(envelopes.encode(envelope)).properties


def _stomp(envelope: Envelope) -> Mapping[str, Any]:
    lines = b"".join([header_line(name, value, Version.V1_2) for name, value in headers_of(envelope)])
    reader = FrameReader()
    reader.version = Version.V1_2
    reader.feed(b"MESSAGE\n" + lines + b"\n\0")
    (frames,) = reader.read()
    return envelope_of("", "", frames.headers).properties


def _mqtt(envelope: Envelope) -> Mapping[str, Any]:
    properties = mqtt_properties_of(envelope)
    assert isinstance(properties, mqtt_properties.Properties)
    return mqtt_envelope_of("", "k", properties, 0, retain=False).properties


CODECS: dict[str, Callable[[Envelope], Mapping[str, Any]]] = {
    "amqp091": _amqp,
    "backend": _backend,
    "journal": _journal,
    "mqtt": _mqtt,
    "stomp": _stomp,
    "store": _store,
}
REFUSING = {"amqp091", "stomp"}
"""Codecs that may refuse an envelope."""
DROPPED = {
    "amqp091": {"user_properties"},
    "mqtt": {"app_id", "content_encoding", "headers", "message_id", "timestamp", "type", "user_id"},
    "stomp": {"user_properties"},
}
"""Properties that do not come out under their own name.  Some of them are carried as others (``_wanted``)."""


def _plain(value: Any) -> Any:
    """What a codec may make of a value: a list of a tuple, text of octets."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value


@st.composite
def _properties(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(PROPERTIES)), unique=True, max_size=4))
    return {name: draw(VALUES[draw(st.sampled_from(PROPERTIES[name].types))]) for name in names}


def _text_of(value: Any) -> str | None:
    """The text of a header, where a protocol has nothing else: text, truth and numbers have one."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else None


def _wanted(codec: str, properties: dict[str, Any]) -> dict[str, Any]:
    """What comes out of a codec, by the rules of docs/properties.md."""
    wanted = {name: value for name, value in properties.items() if name not in DROPPED.get(codec, ())}
    pairs, headers = properties.get("user_properties", ()), properties.get("headers", {})
    if codec == "amqp091" and pairs:
        # Headers only, and one of a name: a header, or the last of the user properties.
        wanted["headers"] = dict(pairs) | headers
    if codec == "stomp" and (pairs or headers):
        texts = {name: _text_of(value) for name, value in (dict(pairs) | headers).items()}
        wanted["headers"] = {name: text for name, text in texts.items() if text is not None}
    if codec == "mqtt":
        every = [(name, _text_of(value)) for name, value in [*pairs, *headers.items()]]
        found = [(name, text) for name, text in every if text is not None and "\0" not in name + text]
        wanted["user_properties"] = found
        if "\0" in wanted.get("content_type", ""):
            del wanted["content_type"]
    return {
        name: value for name, value in wanted.items() if value or name in ("content_type", "correlation_id")
    }


@pytest.mark.parametrize("codec", sorted(CODECS))
@settings(max_examples=examples(80), deadline=None)
@given(properties=_properties())
def test_a_property_is_carried_dropped_or_refused(codec: str, properties: dict[str, Any]) -> None:
    try:
        carried = CODECS[codec](Envelope(key="k", properties=properties))
    except LocalProtocolError:
        assert codec in REFUSING, f"{codec} has a place for everything"
        return
    for name, value in _wanted(codec, properties).items():
        assert _plain(carried[name]) == _plain(value)
    assert not DROPPED.get(codec, set()) & carried.keys()


@for_each("codec", sorted(CODECS))
def test_a_name_that_nobody_knows_costs_nothing(codec: str) -> None:
    carried = CODECS[codec](Envelope(key="k", properties={"of_nobody": "x", "content_type": "1"}))
    assert carried["content_type"] == "1"
    assert carried.get("of_nobody", "x") == "x"


@for_each("codec", sorted(CODECS))
def test_a_value_of_another_type_is_refused_and_breaks_nothing(codec: str) -> None:
    for name, value in product(sorted(PROPERTIES), (object(), math.nan, {1: 2}, b"\xff", -1, 2**80)):
        with about(name, value), suppress(LocalProtocolError, ValueError, CannotStore):
            CODECS[codec](Envelope(key="k", properties={name: value}))


def test_the_table_has_a_value_for_every_type() -> None:
    assert {kind for each in PROPERTIES.values() for kind in each.types} == set(VALUES)


# The page for users

EXAMPLES: dict[str, Any] = {
    "str": "text",
    "mapping": {"a": "b"},
    "pairs": (("a", "b"),),
    "datetime": datetime(2026, 1, 2, tzinfo=UTC),
}
PAGE = (Path(__file__).parents[2] / "docs" / "properties.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_the_page_has_the_properties_of_the_table_with_their_types_and_meanings() -> None:
    rows = {name: (types, meaning) for name, types, meaning, *_ in _ROW.findall(PAGE)}
    for name, each in PROPERTIES.items():
        assert rows[name] == (", ".join(f"`{kind}`" for kind in each.types), each.meaning)


@for_each("column, codec", [(0, "amqp091"), (1, "stomp"), (2, "mqtt")])
@for_each("name", sorted(PROPERTIES))
def test_a_protocol_carries_what_the_page_says(column: int, codec: str, name: str) -> None:
    """A dash means that nothing of the property comes out."""
    (row,) = [cells for each, _, _, *cells in _ROW.findall(PAGE) if each == name]
    value = EXAMPLES[PROPERTIES[name].types[0]]
    carried = CODECS[codec](Envelope(key="k", properties={name: value}))
    assert (row[column] != "\N{EN DASH}") == bool(carried)
