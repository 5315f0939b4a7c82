"""Messages, runs and lent buffers."""

from __future__ import annotations

import array
import copy
import gc
import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from kernel.contracts.loan import lend
from kernel.contracts.message import PLAIN, Envelope, Message, batch_of, messages_of


def test_a_batch_knows_its_size_in_bytes() -> None:
    assert batch_of([b"ab", b"c"]).size == 3
    assert batch_of([(b"ab", b"c"), (b"d",)], multipart=True).size == 4
    assert len(batch_of([b"ab", b"c"])) == 2


def test_a_slice_is_a_batch_of_its_own() -> None:
    envelope = Envelope(key="k")
    part = batch_of([b"a", b"bb", b"ccc"], envelope).slice(1, 3)
    assert (list(part.bodies), part.size, part.envelope) == ([b"bb", b"ccc"], 5, envelope)


def test_a_batch_of_one_size_says_so() -> None:
    assert batch_of([b"ab", b"cd", memoryview(b"ef")]).width == 2
    assert batch_of([b"ab", b"c"]).width == 0
    assert batch_of([b"", b""]).width == 0
    assert batch_of([]).width == 0
    assert batch_of([(b"ab",), (b"cd",)], multipart=True).width == 0


def test_a_slice_of_one_size_is_not_looked_at() -> None:
    class Unseen(list[bytes]):
        def __iter__(self) -> Any:
            raise AssertionError("there is no need to")

    batch = batch_of([b"ab"] * 5)
    batch.bodies = Unseen(batch.bodies)
    part = batch.slice(1, 4)
    assert (len(part), part.size, part.width) == (3, 6, 2)


def test_the_same_messages_under_another_envelope() -> None:
    batch, other = batch_of([b"ab"] * 5), Envelope(key="k")
    again = batch.under(other)
    assert (again.bodies, again.size, again.envelope, again.width) == (batch.bodies, 10, other, 2)
    assert batch.envelope is PLAIN


@pytest.mark.parametrize("more, width", [([b"cd"], 2), ([b"c"], 0), ([b"cd", b"e"], 0)])
def test_a_batch_that_grows_keeps_its_width_while_it_is_true(more: list[bytes], width: int) -> None:
    batch = batch_of([b"ab"])
    batch.extend(batch_of(more))
    assert (batch.bodies, batch.size, batch.width) == ([b"ab", *more], sum(map(len, batch.bodies)), width)


def test_envelopes_are_equal_only_to_themselves() -> None:
    assert Envelope(key="k") != Envelope(key="k")
    assert len({Envelope(), Envelope(), PLAIN, PLAIN}) == 3


def test_the_body_of_a_multipart_message_is_its_parts_joined() -> None:
    (message,) = messages_of(batch_of([(b"a", memoryview(b"bc"))], Envelope(key="k"), multipart=True))
    assert (message.body, message.parts, message.key) == (b"abc", (b"a", b"bc"), "k")
    assert bytes(Message(memoryview(b"x"))) == b"x"


def test_a_lent_buffer_is_given_back_once_when_nobody_holds_it() -> None:
    returned: list[int] = []
    buffer = bytearray(b"mine")
    view = lend(buffer, lambda: returned.append(1))
    again = view
    del view
    assert returned == []
    del again
    gc.collect()
    assert returned == [1]


def test_a_lent_buffer_counts_in_bytes_whatever_its_items_are() -> None:
    returned: list[int] = []
    view = lend(array.array("i", [1, 2, 3]), lambda: returned.append(1))  # type: ignore[arg-type]
    assert len(view) == 12
    assert not returned
    del view
    assert returned == [1]


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_message_can_be_passed_to_another_process(way: str) -> None:
    """By ``multiprocessing`` for example; what is read-only or a view in it is neither there."""
    properties = MappingProxyType(
        {"headers": MappingProxyType({"a": [1, memoryview(b"x")]}), "type": "t", "path": (1, "b")}
    )
    envelope = Envelope(
        key="k", exchange="e", reply_to="r", persistent=True, priority=3, expiration=5, properties=properties
    )
    message = Message(memoryview(b"body"), envelope, (b"bo", memoryview(b"dy")))
    there = COPIES[way](message)
    assert (there.body, there.parts) == (b"body", (b"bo", b"dy"))
    assert {name: getattr(there.envelope, name) for name in Envelope.__struct_fields__} == {
        "key": "k",
        "exchange": "e",
        "reply_to": "r",
        "persistent": True,
        "priority": 3,
        "expiration": 5,
        "properties": {"headers": {"a": [1, b"x"]}, "type": "t", "path": (1, "b")},
    }


@pytest.mark.parametrize("way", COPIES)
def test_the_plain_envelope_is_there_the_plain_one(way: str) -> None:
    assert COPIES[way](Message(b"body")).envelope is PLAIN
