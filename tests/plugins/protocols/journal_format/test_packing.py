"""Bodies that are packed: the same commits as of single ones, and memory that is nobody else's while it is looked at."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.packing import (
    LARGEST_PACKED,
    WORTH_PACKING,
    PackedBodies,
    Packer,
)
from plugins.protocols.journal_format.record_batch import RecordBatchEncoder

MANY = WORTH_PACKING


def numbered(count: int, width: int, first: int = 0) -> list[bytes]:
    """Bodies of which no two are alike."""
    return [b"%0*d" % (width, first + number) for number in range(count)]


def commit(encoder: RecordBatchEncoder, batches: list[Batch]) -> bytes:
    encoded = encoder.encode(7, [(batch, 1 + number, NOWHERE) for number, batch in enumerate(batches)])
    data = bytes(encoded.data)
    encoder.reuse(encoded)
    return data


BATCHES = some.lists(
    some.one_of(
        some.tuples(some.integers(1, 3 * MANY), some.sampled_from([4, 5, 100, LARGEST_PACKED])).map(
            lambda shape: batch_of(numbered(*shape))
        ),
        some.lists(some.binary(max_size=20), min_size=1, max_size=2 * MANY).map(batch_of),
        some.lists(some.tuples(some.binary(max_size=5), some.binary(max_size=5)), min_size=1, max_size=3).map(
            lambda bodies: batch_of(bodies, multipart=True)
        ),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None)  # the first commit imports pandas
@given(record_batches=some.lists(BATCHES, min_size=1, max_size=4))
def test_a_commit_of_packed_batches_is_that_of_the_batches(record_batches: list[list[Batch]]) -> None:
    packer, ours, theirs = Packer(), RecordBatchEncoder(), RecordBatchEncoder()
    for batches in record_batches:
        assert commit(ours, [packer.pack(batch) for batch in batches]) == commit(theirs, batches)


def test_what_is_packed_is_read_like_a_list() -> None:
    bodies = numbered(MANY, 10)
    envelope = Envelope(key="k")
    packed = Packer().pack(batch_of(bodies, envelope))
    assert isinstance(packed.bodies, PackedBodies)
    assert (len(packed), packed.size, packed.width, packed.envelope) == (MANY, 10 * MANY, 10, envelope)
    assert list(packed.bodies) == bodies
    assert packed.bodies[-1] == bodies[-1]
    for start, stop in ((0, 5), (3, MANY), (7, 7), (9, 2)):
        part = packed.slice(start, stop)
        assert (list(part.bodies), part.size) == (bodies[start:stop], 10 * len(bodies[start:stop]))
    with pytest.raises(IndexError):
        packed.bodies[MANY]
    with pytest.raises(ValueError, match="with step 1 only"):
        packed.bodies[::2]


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(numbered(MANY - 1, 10)),
        batch_of([*numbered(MANY, 10), b"another size"]),
        batch_of([b"x" * (LARGEST_PACKED + 1)] * MANY),
        batch_of([b""] * MANY),
        batch_of([(b"a", b"b")] * MANY, multipart=True),
    ],
    ids=["few", "sizes that differ", "large", "empty", "of several parts"],
)
def test_what_is_not_worth_packing_is_left_as_it_is(batch: Batch) -> None:
    assert Packer().pack(batch) is batch


def test_a_batch_that_is_larger_than_a_room_is_packed_all_the_same() -> None:
    bodies = numbered(5000, LARGEST_PACKED)
    assert list(Packer().pack(batch_of(bodies)).bodies) == bodies


def test_memory_is_used_again_when_nobody_holds_what_is_in_it_and_not_before() -> None:
    packer = Packer()

    def pack(first: int) -> Any:
        return packer.pack(batch_of(numbered(2000, 400, first))).bodies  # two do not fit into one room

    def room_of(packed: PackedBodies) -> int:
        return id(packed.octets().obj)

    kept, other = pack(0), pack(10_000)
    room = room_of(kept)
    part = kept[5:10]
    assert room_of(other) != room
    del kept
    gc.collect()
    assert all(room_of(pack(number)) != room for number in range(5))
    assert list(part) == numbered(5, 400, 5)
    del part
    gc.collect()
    held = [pack(number) for number in range(3)]
    assert room in map(room_of, held)
