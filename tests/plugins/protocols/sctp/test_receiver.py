"""What has come, in whatever order it came: SACKs, reassembly, and order within streams."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.sctp.chunks import Data, Forward
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.received import Received
from plugins.protocols.sctp.receiver import Receiver

MASK = 0xFFFF_FFFF


def receiver(first: int = 1, *, interleaved: bool = False, window: int = 1 << 20) -> Receiver:
    return Receiver(SctpOptions(receive_window=window), first, 10, interleaved=interleaved)


messages = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.booleans()), min_size=1, max_size=12)


def fragments_of(sizes: list[tuple[int, int, bool]], first: int, *, interleaved: bool) -> list[Data]:
    """Chunks of messages (stream, fragments, unordered); each says which message and which fragment it is."""
    made: list[Data] = []
    numbers: dict[tuple[int, bool], int] = {}
    for index, (stream, count, unordered) in enumerate(sizes):
        number = numbers.get((stream, unordered), 0)
        numbers[stream, unordered] = number + 1
        for fragment in range(count):
            flags = 0x02 * (fragment == 0) | 0x01 * (fragment == count - 1) | 0x04 * unordered
            made.append(
                Data(
                    tsn=(first + len(made)) & MASK,
                    stream=stream,
                    number=0 if unordered and not interleaved else number,
                    flags=flags,
                    fsn=fragment if interleaved else 0,
                    data=b"%d.%d " % (index, fragment),
                    interleaved=interleaved,
                )
            )
    return made


@given(messages, st.integers(0, MASK), st.booleans(), st.randoms(use_true_random=False))
def test_any_order_gives_whole_messages_in_the_order_of_each_stream(
    sizes: list[tuple[int, int, bool]], first: int, interleaved: bool, chance: random.Random
) -> None:
    under_test = receiver(first, interleaved=interleaved)
    made = fragments_of(sizes, first, interleaved=interleaved)
    again = [*made, *chance.sample(made, len(made) // 2)]
    chance.shuffle(again)
    for chunk in again:
        under_test.on_data(chunk, 0.0)
    got = under_test.take(0.0)
    whole = [
        b"".join(b"%d.%d " % (index, fragment) for fragment in range(size[1]))
        for index, size in enumerate(sizes)
    ]
    assert sorted(message.data for message in got) == sorted(whole)
    for stream in range(4):
        expected = [
            data
            for data, (of, _, unordered) in zip(whole, sizes, strict=True)
            if of == stream and not unordered
        ]
        assert [m.data for m in got if m.stream == stream and not m.unordered] == expected
    assert under_test.window() == 1 << 20
    sack = under_test.sack(100)
    assert (sack.cumulative, sack.gaps) == ((first + len(made) - 1) & MASK, ())
    assert len(sack.duplicates) == len(again) - len(made)


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(0, MASK))
def test_gap_blocks_name_exactly_what_has_come(numbers: list[int], first: int) -> None:
    received = Received(first)
    seen: set[int] = set()
    for number in numbers:
        tsn = first - 1 + number
        assert received.knows(tsn) is (number in seen)
        if number not in seen:
            assert received.add(tsn)
        seen.add(number)
    cumulative = 0
    while cumulative + 1 in seen:
        cumulative += 1
    assert received.cumulative == first - 1 + cumulative
    named = {cumulative + n for start, end in received.gaps(100) for n in range(start, end + 1)}
    assert named == {number for number in seen if number > cumulative}


def test_the_second_packet_is_acknowledged_at_once_and_one_alone_later() -> None:
    under_test = receiver()
    first, second, third = fragments_of([(0, 1, False)] * 3, 1, interleaved=False)
    under_test.on_data(first, 10.0)
    under_test.packet_done(10.0)
    assert under_test.sack_due == pytest.approx(10.2)
    under_test.on_data(second, 10.1)
    under_test.packet_done(10.1)
    assert under_test.sack_due == pytest.approx(10.1)
    under_test.sack(10)
    assert under_test.sack_due is None
    under_test.on_data(third, 11.0)
    under_test.on_data(third, 11.0)
    assert under_test.sack_due == 11.0


def test_more_gaps_than_are_kept_are_dropped_and_come_again() -> None:
    received = Received(0)
    assert sum(received.add(2 * number + 1) for number in range(5000)) == 1000
    assert not received.add(70_000)


def test_what_the_peer_has_given_up_is_not_waited_for() -> None:
    under_test = receiver()
    made = fragments_of([(0, 3, False), (0, 1, False), (1, 2, False)], 1, interleaved=False)
    for chunk in (made[0], made[3], made[4]):
        under_test.on_data(chunk, 0.0)
    assert under_test.take(0.0) == []
    under_test.on_forward(Forward(cumulative=3, skipped=((0, 0, False),)), 0.0)
    assert [message.data for message in under_test.take(0.0)] == [b"1.0 "]
    under_test.on_data(made[5], 0.0)
    assert [message.data for message in under_test.take(0.0)] == [b"2.0 2.1 "]
    assert under_test.window() == 1 << 20


def test_what_the_peer_has_given_up_of_interleaved_messages() -> None:
    under_test = receiver(interleaved=True)
    made = fragments_of([(0, 2, False), (0, 1, False), (2, 2, True)], 1, interleaved=True)
    for chunk in (made[0], made[2], made[3]):
        under_test.on_data(chunk, 0.0)
    skipped = ((0, 0, False), (2, 0, True))
    under_test.on_forward(Forward(cumulative=5, skipped=skipped, interleaved=True), 0.0)
    assert [message.data for message in under_test.take(0.0)] == [b"1.0 "]
    assert under_test.window() == 1 << 20


@pytest.mark.parametrize("unordered", [False, True])
def test_a_late_piece_of_an_interleaved_message_that_was_given_up_is_not_kept(unordered: bool) -> None:
    under_test = receiver(interleaved=True)
    first, _, last, other = fragments_of([(0, 3, unordered), (1, 1, False)], 1, interleaved=True)
    under_test.on_data(first, 0.0)
    under_test.on_forward(Forward(cumulative=2, skipped=((0, 0, unordered),), interleaved=True), 0.0)
    under_test.on_data(other, 0.0)
    under_test.on_data(last, 0.0)
    assert [message.data for message in under_test.take(0.0)] == [b"1.0 "]
    assert under_test.window() == 1 << 20
    assert under_test.sack(10).cumulative == 4


@pytest.mark.parametrize("agreed", [False, True])
def test_data_of_the_kind_that_was_not_agreed_on_is_refused(agreed: bool) -> None:
    (chunk,) = fragments_of([(0, 1, False)], 1, interleaved=not agreed)
    with pytest.raises(RemoteProtocolError):
        receiver(interleaved=agreed).on_data(chunk, 0.0)
    with pytest.raises(RemoteProtocolError):
        receiver(interleaved=agreed).on_forward(Forward(cumulative=1, interleaved=not agreed), 0.0)


def test_pieces_that_are_counted_as_linux_does_are_refused_rather_than_put_together_wrongly() -> None:
    under_test = receiver(interleaved=True)
    first, second, _ = fragments_of([(0, 3, False)], 1, interleaved=True)
    under_test.on_data(first, 0.0)
    with pytest.raises(RemoteProtocolError, match="RFC 8260"):
        under_test.on_data(msgspec.structs.replace(second, fsn=0), 0.0)


def test_a_stream_that_there_is_not_is_told_and_acknowledged() -> None:
    under_test = receiver()
    under_test.on_data(Data(tsn=1, stream=10, number=0, flags=3, data=b"x"), 0.0)
    assert under_test.invalid_streams == [10]
    assert under_test.sack(1).cumulative == 1
    assert under_test.take(0.0) == []


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("unordered", [False, True])
def test_chunks_that_fill_gaps_take_no_more_than_twice_the_window(interleaved: bool, unordered: bool) -> None:
    window = 100_000
    under_test = receiver(interleaved=interleaved, window=window)

    def chunk(tsn: int) -> Data:
        return Data(
            tsn=tsn,
            stream=0,
            number=0 if unordered and not interleaved else tsn,
            flags=0x03 | 0x04 * unordered,
            data=bytes(10_000),
            interleaved=interleaved,
        )

    under_test.on_data(chunk(5000), 0.0)
    for tsn in range(2, 4999, 2):
        under_test.on_data(chunk(tsn), 0.0)
    stored = sum(last - first + 1 for first, last in under_test.sack(1000).gaps)
    assert stored * 10_000 <= 2 * window
    assert under_test.dropped == 2500 - stored


def test_pieces_that_never_become_whole_are_refused_at_twice_the_window_although_a_gap_stays_open() -> None:
    under_test = receiver(window=100_000)
    under_test.on_data(Data(tsn=5000, stream=1, number=0, flags=0x02, data=b"far ahead"), 0.0)
    under_test.on_data(Data(tsn=1, stream=0, number=0, flags=0x02, data=bytes(10_000)), 0.0)

    def go_on() -> None:
        for tsn in range(2, 4999):
            under_test.on_data(Data(tsn=tsn, stream=0, number=0, flags=0, data=bytes(10_000)), 0.0)

    with pytest.raises(RemoteProtocolError, match="receive window"):
        go_on()
    assert under_test.received.cumulative <= 20
