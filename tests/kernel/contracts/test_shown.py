"""What is shown of a message is bounded and safe, and a selection finds what it says."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest

from kernel.contracts.message import Batch, Envelope, batch_of
from kernel.contracts.shown import Selection, Selector, shown
from tests.notes import for_each


def test_text_is_shown_as_text_and_all_else_in_base64() -> None:
    row = shown(Envelope(key="a"), "Grüße".encode())
    assert (row["body"], row["body_encoding"], row["body_bytes"]) == ("Grüße", "text", 7)
    row = shown(Envelope(key="a"), b"\x00\xff")
    assert (b64decode(row["body"]), row["body_encoding"]) == (b"\x00\xff", "base64")


def test_a_large_body_is_cut_between_two_characters() -> None:
    row = shown(Envelope(), "aé€𝄞".encode() * 10, 7)
    assert (row["body"], row["truncated"], row["body_bytes"]) == ("aé€", True, 100)


@pytest.mark.parametrize("body", [b"ab", bytearray(b"ab"), memoryview(b"ab"), (b"a", memoryview(b"b"))])
def test_any_form_of_a_body_is_shown(body: Any) -> None:
    assert shown(Envelope(), body)["body"] == "ab"


def test_properties_are_bounded_and_have_a_form_in_json() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"in": [deep]}
    properties = {
        "headers": {
            "deep": deep,
            "many": list(range(10_000)),
            "long": "x" * 100_000,
            "number": 1 << 70,
            "raw": b"\xff",
        },
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "user_properties": (("a", "1"), ("a", "2")),
    }
    text = json.dumps(shown(Envelope(properties=properties), b""))
    assert len(text) < 10_000
    read = json.loads(text)["properties"]
    assert read["user_properties"] == [["a", "1"], ["a", "2"]]
    assert read["headers"]["number"] == str(1 << 70)
    assert read["headers"]["raw"] == "\\xff"


def selected(batch: Batch, **selection: Any) -> list[Any]:
    return list(Selector(Selection(**selection)).bodies(batch))


ORDER = Envelope(
    key="order.eu",
    properties={"headers": {"tenant": "a", "retry": 2, "urgent": True}, "content_type": "text/plain"},
)


@for_each(
    "selection, found",
    [
        ({}, True),
        ({"keys": ("order.*",)}, True),
        ({"keys": ("bill.#", "order.#")}, True),
        ({"keys": ("bill.#",)}, False),
        ({"headers": {"tenant": "a"}}, True),
        ({"headers": {"tenant": "b"}}, False),
        ({"headers": {"retry": "2", "urgent": "true"}}, True),
        ({"headers": {"none": ""}}, False),
        ({"headers": {"content_type": "text/plain"}}, True),
        ({"keys": ("order.*",), "headers": {"tenant": "b"}}, False),
    ],
)
def test_a_selection_by_key_and_header(selection: dict[str, Any], found: bool) -> None:
    assert selected(batch_of([b"1", b"2"], ORDER), **selection) == ([b"1", b"2"] if found else [])


def test_a_selection_by_body() -> None:
    bodies = [b"no", "größer".encode(), memoryview("größer".encode()), b"gr"]
    assert selected(batch_of(bodies, ORDER), contains="größ") == bodies[1:3]
    parts = [(b"gr", b"oss"), (b"a",)]
    assert selected(batch_of(parts, ORDER, multipart=True), contains="gros") == [parts[0]]
