"""Messages in the data of packets, as libzmq 4.3.4 has them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.pgm.zmtp1 import Zmtp1Decoder, Zmtp1Encoder


def _messages(batches: list[Batch]) -> list[Any]:
    return [body for batch in batches for body in batch.bodies]


# Captured from a libzmq that published over epgm.
GOLDEN: dict[str, tuple[list[Any], int, list[bytes]]] = {
    "a small message": ([b"END"], 1428, [bytes.fromhex("0000 0400") + b"END"]),
    "a message of 3,000 bytes and a small one": (
        [b"000000 " + b"x" * 2993, b"END"],
        1428,
        [
            bytes.fromhex("0000 ff0000000000000bb900") + b"000000 " + b"x" * 1409,
            bytes.fromhex("ffff") + b"x" * 1426,
            bytes.fromhex("009e") + b"x" * 158 + b"\x04\x00END",
        ],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_libzmq_s(name: str) -> None:
    bodies, size, tsdus = GOLDEN[name]
    assert Zmtp1Encoder(size).encode([batch_of(bodies)]) == tsdus
    assert _messages(Zmtp1Decoder(10_000).decode(tsdus)) == bodies


def test_parts_have_the_more_flag() -> None:
    batch = batch_of([(b"topic", b"body")], multipart=True)
    tsdus = Zmtp1Encoder(100).encode([batch])
    assert tsdus == [b"\0\0\x06\x01topic\x05\0body"]
    (got,) = Zmtp1Decoder(100).decode(tsdus)
    assert (got.bodies, got.multipart) == ([(b"topic", b"body")], True)


def test_a_key_that_cannot_be_written_is_refused_and_octets_that_are_no_text_are_not() -> None:
    encoder = Zmtp1Encoder(100, keys=True)
    bad, good = Envelope(key="half a pair \ud800"), Envelope(key=b"\xff".decode(errors="surrogateescape"))
    assert encoder.encode([batch_of([b"1", b"2"], bad), batch_of([b"3"], good)]) == [
        b"\0\0\x02\x01\xff\x02\x003"
    ]
    assert encoder.refused == 2
    assert "surrogates not allowed" in encoder.problem


def test_keys_travel_as_a_part_before_if_wished() -> None:
    batch = batch_of([b"sunny", b"rain"], Envelope(key="weather"))
    tsdus = Zmtp1Encoder(100, keys=True).encode([batch])
    assert tsdus == [b"\0\0\x08\x01weather\x06\0sunny\x08\x01weather\x05\0rain"]
    got = Zmtp1Decoder(100, keys=True).decode(tsdus)
    assert [(batch.envelope.key, list(batch.bodies)) for batch in got] == [
        ("weather", [b"sunny"]),
        ("weather", [b"rain"]),
    ]
    assert got[0].envelope is got[1].envelope
    assert not got[0].multipart


_parts = st.binary(max_size=20) | st.integers(0, 600).map(lambda size: b"p" * size)
_batches = st.lists(
    st.lists(_parts, min_size=1, max_size=8).map(batch_of)
    | st.lists(st.lists(_parts, min_size=2, max_size=4).map(tuple), min_size=1, max_size=4).map(
        lambda bodies: batch_of(bodies, multipart=True)
    ),
    max_size=5,
)


@given(_batches, st.integers(20, 400), st.integers(1, 7))
def test_whatever_is_sent_arrives(batches: list[Batch], size: int, chunk: int) -> None:
    tsdus = Zmtp1Encoder(size).encode(batches)
    assert all(len(tsdu) <= size for tsdu in tsdus)
    decoder = Zmtp1Decoder(10_000)
    got: list[Any] = []
    for at in range(0, len(tsdus), chunk):
        got += _messages(decoder.decode(tsdus[at : at + chunk]))
    assert got == _messages(batches)
    assert decoder.malformed == 0


@given(_batches, st.integers(20, 100), st.sets(st.integers(0, 60)), st.integers(0, 10))
def test_what_is_lost_takes_nothing_else_with_it(
    batches: list[Batch], size: int, lost: set[int], late: int
) -> None:
    """Of the messages that lie wholly in packets that came, every one arrives; and none that was never sent."""
    tsdus: list[bytes | None] = list(Zmtp1Encoder(size).encode(batches))
    come = [None if at in lost or at < late else tsdu for at, tsdu in enumerate(tsdus)]
    decoder = Zmtp1Decoder(10_000)
    got = _messages(decoder.decode(come[late:]))
    assert decoder.malformed == 0
    sent = _messages(batches)
    position = 0
    for message in got:  # a subsequence
        position = sent.index(message, position) + 1
    whole: list[Any] = []
    begin = 0
    for batch in batches:
        for body in batch.bodies:
            parts = body if batch.multipart else (body,)
            end = begin + sum(len(part) + (2 if len(part) < 254 else 10) for part in parts)
            if all(come[at] is not None for at in range(begin // (size - 2), (end - 1) // (size - 2) + 1)):
                whole.append(body)
            begin = end
    assert got == whole


@pytest.mark.parametrize(
    "tsdus",
    [
        [b"\0\0\0\0rest"],
        [b"\0\0\xff" + b"\0" * 8 + b"\0"],
        [b"\0\0\xff\0\0\0\1\0\0\0\0\0"],
        [b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\0"],
        [b"\0"],
    ],
)
def test_what_cannot_be_is_counted_and_what_follows_is_read(tsdus: list[bytes]) -> None:
    decoder = Zmtp1Decoder(1000)
    assert decoder.decode(tsdus) == []
    assert decoder.malformed == 1
    assert _messages(decoder.decode([b"\xff\xffnothing begins here", b"\0\1?\5\0good"])) == [b"good"]


def test_parts_without_end_are_not_kept_for_ever() -> None:
    decoder = Zmtp1Decoder(100)
    for _ in range(10):
        decoder.decode([b"\0\0" + b"\x15\x01" + b"x" * 20])
    assert decoder.malformed == 1


def test_of_a_message_that_is_too_large_no_part_is_delivered_and_the_next_message_is() -> None:
    decoder = Zmtp1Decoder(100)
    parts, last = (b"\x15\x01" + b"x" * 20) * 8, b"\x05\0last"
    assert _messages(decoder.decode([b"\0\0" + parts + last + b"\x05\0good"])) == [b"good"]
    assert decoder.malformed == 1


def test_parts_without_bytes_are_not_kept_for_ever() -> None:
    decoder = Zmtp1Decoder(100)
    assert decoder.decode([b"\0\0" + b"\x01\x01" * 101]) == []
    assert decoder.malformed == 1


def many_parts(count: int) -> list[Any]:
    return [tuple(b"x" for _ in range(count))]


def a_large_message(count: int) -> list[Any]:
    return [bytes(20 * count)]


@pytest.mark.slow
@pytest.mark.parametrize("made, count", [(many_parts, 4000), (a_large_message, 200_000)])
def test_the_time_is_in_proportion_to_the_size(made: Callable[[int], list[Any]], count: int) -> None:
    """Decoded packet by packet, as a slow source's are."""

    def seconds(count: int) -> float:
        bodies = made(count)
        tsdus = Zmtp1Encoder(1400).encode([batch_of(bodies, multipart=made is many_parts)])
        decoder = Zmtp1Decoder(1 << 30)
        start = time.process_time()
        got = [body for tsdu in tsdus for body in _messages(decoder.decode([tsdu]))]
        taken = time.process_time() - start
        assert got == bodies
        return taken

    few, many = (min(seconds(size) for _ in range(3)) for size in (count, 8 * count))
    # In proportion to the square it would be 64 times as much.
    assert many < 32 * few


@given(st.lists(st.none() | st.binary(max_size=60), max_size=20))
def test_anything_may_come(units: list[bytes | None]) -> None:
    Zmtp1Decoder(1000).decode(units)
