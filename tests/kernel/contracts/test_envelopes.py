"""What an application gives as a key or an envelope is looked at before it is used."""

from __future__ import annotations

from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from kernel.contracts.envelopes import checked_envelope, checked_text, envelope_with
from kernel.contracts.message import PLAIN, Envelope


class Topic(StrEnum):
    WEATHER = "weather"


class Old(str, Enum):  # noqa: UP042 - as programs for Python 3.10 have it
    WEATHER = "weather"


@pytest.mark.parametrize("text", ["weather", Topic.WEATHER, Old.WEATHER])
def test_a_text_becomes_a_plain_one(text: str) -> None:
    checked = checked_text(text, "a key")
    assert checked == "weather"
    assert type(checked) is str


@pytest.mark.parametrize("wrong", [3, b"weather", None, ["weather"]])
def test_what_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"a key is text, not {type(wrong).__name__}"):
        checked_text(wrong, "a key")


def test_a_key_and_headers_make_an_envelope() -> None:
    assert envelope_with(None, None) is PLAIN
    assert envelope_with(Topic.WEATHER, None).key == "weather"
    assert type(envelope_with(Topic.WEATHER, {"a": 1}).key) is str
    with pytest.raises(TypeError, match="a key is text, not bytes"):
        envelope_with(b"weather", {"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "envelope",
    [
        PLAIN,
        Envelope(key="a", exchange="b", reply_to="c", persistent=True, priority=1, expiration=2),
        Envelope(properties={"headers": {}}),
        Envelope(properties=MappingProxyType({})),
    ],
)
def test_a_sound_envelope_stays_itself(envelope: Envelope) -> None:
    assert checked_envelope(envelope) is envelope


def test_an_envelope_gets_plain_texts() -> None:
    checked = checked_envelope(Envelope(key=Topic.WEATHER, exchange="x", priority=3))
    assert (checked.key, checked.exchange, checked.priority) == ("weather", "x", 3)
    assert type(checked.key) is str


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ("weather", "an envelope is a kernel.Envelope, .* not str"),
        (Envelope(key=3), "an envelope's key is text, not int"),  # type: ignore[arg-type]
        (Envelope(exchange=b"x"), "an envelope's exchange is text, not bytes"),  # type: ignore[arg-type]
        (Envelope(persistent=1), "persistent is True or False, not 1"),  # type: ignore[arg-type]
        (Envelope(priority="high"), "priority is a whole number, not 'high'"),  # type: ignore[arg-type]
        (Envelope(expiration=0.5), "expiration is a whole number of milliseconds, not 0.5"),  # type: ignore[arg-type]
        (Envelope(properties=[1]), "properties are a mapping, not list"),  # type: ignore[arg-type]
    ],
)
def test_an_envelope_with_a_mistake_is_refused(wrong: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        checked_envelope(wrong)
