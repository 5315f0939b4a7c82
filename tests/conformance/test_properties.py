"""Every codec of ours carries a property of the table, drops it, or refuses the envelope; it never fails otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
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


CODECS: dict[str, Callable[[Envelope], Mapping[str, Any]]] = {
    "amqp091": _amqp,
    "backend": _backend,
    "journal": _journal,
    "store": _store,
}


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


@pytest.mark.parametrize("codec", sorted(CODECS))
@settings(max_examples=examples(80), deadline=None)
@given(properties=_properties())
def test_a_property_is_carried_dropped_or_refused(codec: str, properties: dict[str, Any]) -> None:
    try:
        carried = CODECS[codec](Envelope(key="k", properties=properties))
    except LocalProtocolError:
        assert codec == "amqp091", f"{codec} has a place for everything"
        return
    wanted = dict(properties)
    if codec == "amqp091" and (pairs := wanted.pop("user_properties", ())):
        # AMQP has headers only, and one of a name: a header, or the last of the user properties.
        wanted["headers"] = dict(pairs) | wanted.get("headers", {})
    for name, value in wanted.items():
        assert _plain(carried[name]) == _plain(value)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_name_that_nobody_knows_costs_nothing(codec: str) -> None:
    carried = CODECS[codec](Envelope(key="k", properties={"of_nobody": "x", "message_id": "1"}))
    assert carried["message_id"] == "1"
    assert carried.get("of_nobody", "x") == "x"


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("value", [object(), math.nan, {1: 2}, b"\xff", -1, 2**80])
@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_a_value_of_another_type_is_refused_and_breaks_nothing(codec: str, value: Any, name: str) -> None:
    try:
        CODECS[codec](Envelope(key="k", properties={name: value}))
    except (LocalProtocolError, ValueError, CannotStore):
        pass


def test_the_table_has_a_value_for_every_type() -> None:
    assert {kind for each in PROPERTIES.values() for kind in each.types} == set(VALUES)
