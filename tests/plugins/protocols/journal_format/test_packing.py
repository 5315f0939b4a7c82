"""Bodies that are packed: the same commits as of single ones, and memory that is nobody else's while it is looked at."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Envelope, Run, run_of
from plugins.protocols.journal_format.batch import BatchEncoder
from plugins.protocols.journal_format.envelopes import NOWHERE
from plugins.protocols.journal_format.packing import (
    LARGEST_PACKED,
    WORTH_PACKING,
    PackedBodies,
    Packer,
)

MANY = WORTH_PACKING


def numbered(count: int, width: int, first: int = 0) -> list[bytes]:
    """Bodies of which no two are alike."""
    return [b"%0*d" % (width, first + number) for number in range(count)]


def commit(encoder: BatchEncoder, runs: list[Run]) -> bytes:
    encoded = encoder.encode(7, [(run, 1 + number, NOWHERE) for number, run in enumerate(runs)])
    data = bytes(encoded.data)
    encoder.reuse(encoded)
    return data


RUNS = some.lists(
    some.one_of(
        some.tuples(some.integers(1, 3 * MANY), some.sampled_from([4, 5, 100, LARGEST_PACKED])).map(
            lambda shape: run_of(numbered(*shape))
        ),
        some.lists(some.binary(max_size=20), min_size=1, max_size=2 * MANY).map(run_of),
        some.lists(some.tuples(some.binary(max_size=5), some.binary(max_size=5)), min_size=1, max_size=3).map(
            lambda bodies: run_of(bodies, multipart=True)
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)  # the first commit imports pandas
@given(batches=some.lists(RUNS, min_size=1, max_size=4))
def test_a_commit_of_packed_runs_is_that_of_the_runs(batches: list[list[Run]]) -> None:
    packer, ours, theirs = Packer(), BatchEncoder(), BatchEncoder()
    for runs in batches:
        assert commit(ours, [packer.pack(run) for run in runs]) == commit(theirs, runs)


def test_what_is_packed_is_read_like_a_list() -> None:
    bodies = numbered(MANY, 10)
    envelope = Envelope(key="k")
    packed = Packer().pack(run_of(bodies, envelope))
    assert isinstance(packed.bodies, PackedBodies)
    assert (len(packed), packed.size, packed.width, packed.envelope) == (MANY, 10 * MANY, 10, envelope)
    assert list(packed.bodies) == bodies
    assert packed.bodies[-1] == bodies[-1]
    for start, stop in ((0, 5), (3, MANY), (7, 7), (9, 2)):
        part = packed.slice(start, stop)
        assert (list(part.bodies), part.size) == (bodies[start:stop], 10 * len(bodies[start:stop]))
    with pytest.raises(IndexError):
        packed.bodies[MANY]
    with pytest.raises(ValueError, match="in one piece"):
        packed.bodies[::2]


@pytest.mark.parametrize(
    "run",
    [
        run_of(numbered(MANY - 1, 10)),
        run_of([*numbered(MANY, 10), b"another size"]),
        run_of([b"x" * (LARGEST_PACKED + 1)] * MANY),
        run_of([b""] * MANY),
        run_of([(b"a", b"b")] * MANY, multipart=True),
    ],
    ids=["few", "sizes that differ", "large", "empty", "of several parts"],
)
def test_what_is_not_worth_packing_is_left_as_it_is(run: Run) -> None:
    assert Packer().pack(run) is run


def test_a_run_that_is_larger_than_a_room_is_packed_all_the_same() -> None:
    bodies = numbered(5000, LARGEST_PACKED)
    assert list(Packer().pack(run_of(bodies)).bodies) == bodies


def test_memory_is_used_again_when_nobody_holds_what_is_in_it_and_not_before() -> None:
    packer = Packer()

    def pack(first: int) -> Any:
        return packer.pack(run_of(numbered(2000, 400, first))).bodies  # two do not fit into one room

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
