"""A keyed batch is the same messages as the batches into which it is divided."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernel.contracts.message import Envelope
from kernel.contracts.mixed_batch import EnvelopesByKey, KeyedBatch

KEYS = some.lists(
    some.sampled_from([b"a", b"b", b"", b"x\0y", b"\xc3\xa4", b"\xc3", b"\xe2\x82"]), min_size=1
)


def keyed(keys: list[bytes]) -> KeyedBatch:
    bodies = [b"%d" % number for number in range(len(keys))]
    return KeyedBatch(bodies, sum(map(len, bodies)), Envelope(), keys=keys, envelope_of=EnvelopesByKey().of)


@given(KEYS)
def test_it_is_divided_into_batches_of_one_key(keys: list[bytes]) -> None:
    batch = keyed(keys)
    texts = [key.decode("utf-8", "surrogateescape") for key in keys]
    assert batch.key_texts() == texts
    parts = batch.divided()
    assert [(part.envelope.key, body) for part in parts for body in part.bodies] == list(
        zip(texts, batch.bodies, strict=True)
    )
    assert all(one.envelope is not other.envelope for one, other in pairwise(parts))
    for part in parts:
        assert part.size == sum(map(len, part.bodies))


@given(KEYS, some.data())
def test_a_slice_keeps_its_keys(keys: list[bytes], data: some.DataObject) -> None:
    start = data.draw(some.integers(0, len(keys)))
    stop = data.draw(some.integers(start, len(keys)))
    piece = keyed(keys).slice(start, stop)
    assert piece.keys == keys[start:stop]
    assert piece.bodies == keyed(keys).bodies[start:stop]
    assert piece.size == sum(map(len, piece.bodies))


def test_it_is_divided_once() -> None:
    batch = keyed([b"a", b"b"])
    assert batch.divided() is batch.divided()


def test_what_is_said_of_its_batches_is_said_of_their_messages() -> None:
    batch = keyed([b"a", b"a", b"b", b"a"])
    assert batch.per_message([True, False, True]) == [True, True, False, True]
    with pytest.raises(ValueError, match="shorter"):
        batch.per_message([True, False])


def test_a_part_of_messages_of_one_size_is_of_that_size() -> None:
    batch = KeyedBatch([b"12", b"34", b"56"], 6, Envelope(), False, 2, keys=[b"a", b"b", b"c"])
    for part in (batch.slice(1, 3), batch.part([b"34", b"56"], [b"b", b"c"])):
        assert (part.width, part.size, part.keys) == (2, 4, [b"b", b"c"])
