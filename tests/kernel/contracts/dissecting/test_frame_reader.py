"""Frames of a length and a body: in any chunks, across holes, back into step."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.dissecting.frame_reader import MAX_KEPT, Frame, FrameReader
from kernel.contracts.errors import RemoteProtocolError


def measure(data: bytes, at: int) -> int:
    """Two bytes of length; zero is no length."""
    if len(data) < at + 2:
        return 0
    size = int.from_bytes(data[at : at + 2], "big")
    if not size:
        raise RemoteProtocolError("nothing")
    return 2 + size


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(2, "big") + body for body in bodies)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.integers(0, 2**32))
def test_any_chunks_give_the_same_frames(bodies: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    stream = framed(*bodies)
    reader = FrameReader(measure)
    found: list[Frame] = []
    while stream:
        size = chance.randint(1, 30)
        found += reader.receive(stream[:size])
        stream = stream[size:]
    assert found == [Frame(framed(body), 2 + len(body)) for body in bodies]


def test_a_hole_inside_of_a_body_does_no_harm() -> None:
    reader = FrameReader(measure)
    assert list(reader.receive(framed(b"x" * 100)[:50])) == []
    reader.lose(20)
    assert reader.in_step
    (frame, following) = reader.receive(b"x" * 32 + framed(b"next"))
    assert (frame.size, frame.whole, following.data) == (102, False, framed(b"next"))


@pytest.mark.parametrize("count", [52, 60, None])
def test_after_a_larger_hole_it_waits_for_a_segment_that_frames_fill(count: int | None) -> None:
    reader = FrameReader(measure)
    list(reader.receive(framed(b"x" * 100)[:50]))
    reader.lose(count)
    assert not reader.in_step
    assert list(reader.receive(b"x" * 30)) == []
    assert [frame.data for frame in reader.receive(framed(b"a", b"b"))] == [framed(b"a"), framed(b"b")]
    assert reader.in_step
    assert reader.skipped == 80


def test_a_fault_comes_after_the_frames_before_it_and_puts_out_of_step() -> None:
    reader = FrameReader(measure)
    frames = reader.receive(framed(b"good") + b"\0\0 garbage")
    assert next(frames).data == framed(b"good")
    with pytest.raises(RemoteProtocolError):
        next(frames)
    assert (reader.in_step, reader.skipped) == (False, 10)


def test_of_a_large_frame_only_the_beginning_is_kept() -> None:
    reader = FrameReader(lambda data, at: 1 << 40)
    for _ in range(100):
        assert list(reader.receive(bytes(1 << 20))) == []
    assert len(reader._head) == MAX_KEPT
    reader = FrameReader(lambda data, at: 3 * MAX_KEPT)
    frames = [frame for _ in range(6) for frame in reader.receive(bytes(MAX_KEPT))]
    assert [(len(frame.data), frame.size, frame.whole) for frame in frames] == [
        (MAX_KEPT, 3 * MAX_KEPT, False)
    ] * 2
