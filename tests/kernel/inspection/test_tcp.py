"""TCP as a third party sees it: any order, overlaps, holes and wrap-around give the bytes that were sent, or say what is missing."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.dissector import CLIENT, SERVER
from kernel.inspection import tcp
from kernel.inspection.tcp import Chunk, Segment, TcpConversation
from tests.notes import for_each

A, B = ("192.0.2.1", 40000), ("192.0.2.2", 5672)


def segment(
    number: int, data: bytes = b"", *, back: bool = False, ack: int | None = 0, time: float = 0.0, **more: Any
) -> Segment:
    source, destination = (B, A) if back else (A, B)
    return Segment(
        time=time,
        source=source,
        destination=destination,
        number=number & 0xFFFFFFFF,
        acknowledged=ack,
        data=data,
        **more,
    )


def conversation(first: int = 1000) -> TcpConversation:
    """After a handshake of 30 ms, as seen next to the client; the first bytes are ``first`` + 1 and 501."""
    made = TcpConversation(A, B)
    for each in (
        segment(first, syn=True, ack=None, time=0.0),
        segment(500, syn=True, back=True, ack=first + 1, time=0.03),
        segment(first + 1, ack=501, time=0.03),
    ):
        assert list(made.take(each)) == []
    return made


# What comes after the handshake (client's number 1001), and what is to be made of it.
TABLE = {
    "in order": ([segment(1001, b"ab"), segment(1003, b"cd")], [b"ab", b"cd"]),
    "the wrong way round": ([segment(1003, b"cd"), segment(1001, b"ab")], [b"ab", b"cd"]),
    "once more": ([segment(1001, b"ab"), segment(1001, b"ab"), segment(1003, b"c")], [b"ab", b"c"]),
    "overlapping": (
        [segment(1001, b"ab"), segment(1002, b"bc"), segment(1001, b"abcd")],
        [b"ab", b"c", b"d"],
    ),
    "overlapping what waits": (
        [segment(1003, b"cd"), segment(1001, b"abc"), segment(1005, b"e")],
        [b"abc", b"d", b"e"],
    ),
    "not captured, as the acknowledgement shows": (
        [segment(1004, b"de"), segment(501, back=True, ack=1006)],
        [3, b"de"],
    ),
    "cut off": ([segment(1001, b"ab", cut=4), segment(1007, b"gh")], [b"ab", 4, b"gh"]),
    "cut off, and sent again whole": (
        [segment(1001, b"ab", cut=1), segment(1001, b"abcd")],
        [b"ab", 1, b"d"],
    ),
    "an acknowledgement that is older than the hole": (
        [segment(1004, b"de"), segment(501, back=True, ack=1001), segment(1001, b"abc")],
        [b"abc", b"de"],
    ),
}


@for_each("name", TABLE)
def test_the_table(name: str) -> None:
    segments, expected = TABLE[name]
    made = conversation()
    chunks = [chunk for each in segments for chunk in made.take(each)]
    assert all(chunk.sender == CLIENT for chunk in chunks)
    assert [chunk.data or chunk.lost for chunk in chunks] == expected


def test_what_waits_is_given_at_the_end_behind_its_hole() -> None:
    made = conversation()
    assert list(made.take(segment(1011, b"late"))) == []
    assert list(made.finish()) == [Chunk(CLIENT, lost=10), Chunk(CLIENT, b"late")]
    assert made.figures()["missing_bytes"] == 10


def test_the_handshake_is_measured_and_the_end_told() -> None:
    made = conversation()
    assert made.figures() == {"rtt_ms": 30.0, "retransmitted_bytes": 0, "missing_bytes": 0, "end": "open"}
    list(made.take(segment(1001, b"ab")))
    list(made.take(segment(1001, b"ab")))
    list(made.take(segment(1003, fin=True)))
    assert not made.over()
    list(made.take(segment(501, back=True, fin=True)))
    assert made.over()
    assert made.figures() == {"rtt_ms": 30.0, "retransmitted_bytes": 2, "missing_bytes": 0, "end": "closed"}
    list(made.take(segment(1004, reset=True)))
    assert made.figures()["end"] == "reset"


def test_a_conversation_that_began_before_the_capture() -> None:
    made = TcpConversation(A, B)
    assert list(made.take(segment(7, b"x"))) == [Chunk(CLIENT, lost=None), Chunk(CLIENT, b"x")]
    assert list(made.take(segment(9, b"y", back=True))) == [Chunk(SERVER, lost=None), Chunk(SERVER, b"y")]


def test_the_same_ports_again() -> None:
    made = conversation()
    assert not made.starts_new_connection(segment(1000, syn=True, ack=None))  # the same SYN once more
    assert made.starts_new_connection(segment(99000, syn=True, ack=None))
    assert not made.starts_new_connection(segment(99000, b"data"))


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**32), st.integers(0, 2**32 - 1))
def test_any_order_and_any_overlap_give_what_was_sent(data: bytes, seed: int, first: int) -> None:
    chance = random.Random(seed)
    cuts = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(10))})
    chunks = [(begin, data[begin:end]) for begin, end in pairwise(cuts)]
    for _ in range(5):  # sent again, with other borders
        begin = chance.randrange(len(data))
        chunks.append((begin, data[begin : begin + chance.randint(1, 50)]))
    chance.shuffle(chunks)
    made = conversation(first)
    taken = [chunk for at, part in chunks for chunk in made.take(segment(first + 1 + at, part))]
    assert b"".join(chunk.data for chunk in taken) == data
    assert not any(chunk.lost for chunk in taken)


def test_what_waits_is_bounded() -> None:
    made = conversation()
    lost = [
        chunk.lost
        for number in range(tcp.WAITING_SEGMENTS + 1)
        for chunk in made.take(segment(2001 + 10 * number, b"five!"))
        if chunk.lost
    ]
    assert lost[0] == 1000
    made = conversation()
    large = bytes(tcp.WAITING_BYTES // 4)
    chunks = [chunk for n in range(6) for chunk in made.take(segment(2001 + n * len(large), large))]
    assert chunks[0] == Chunk(CLIENT, lost=1000)
