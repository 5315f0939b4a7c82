"""What one packet of a peer may cost: no more than in proportion to its length, whatever else is stored."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.bundle import Bundle
from plugins.protocols.sctp.chunks import (
    BEGINNING,
    ENDING,
    UNORDERED,
    Data,
    Forward,
    Init,
    Listed,
    Plain,
    Sack,
    Type,
)
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.handshake import read_init
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.outstanding import Outstanding, Range, without
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.reassembly import ByTsn
from plugins.protocols.sctp.receiver import Receiver
from plugins.protocols.sctp.schedule import Outgoing, Terms
from tests.plugins.protocols.sctp.network import PORT_A, PORT_B, Network, address
from tests.steps import steps


def receiver(*, interleaved: bool) -> Receiver:
    return Receiver(SctpOptions(), 0, 65535, interleaved=interleaved)


class Compared(bytes):
    """An address that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def test_an_init_with_very_many_addresses_is_read_up_to_the_sixteenth() -> None:
    listed = [Compared(number.to_bytes(4, "big")) for number in range(2000)]
    init = Init(
        is_ack=False,
        tag=1,
        window=65536,
        outbound=1,
        inbound=1,
        tsn=1,
        parameters=tuple(Parameter(Kind.IPV4, each) for each in [*listed[:3], *listed]),
    )
    offer, _ = read_init(init, b"\x7f\0\0\1", SctpOptions())
    assert offer.addresses == [b"\x7f\0\0\1", *listed[:15]]
    assert Compared.comparisons < 1000


def with_stored(count: int, flags: int, *, one_stream: bool, interleaved: bool = True) -> Receiver:
    """A receiver with so many parts of messages that never become whole, or messages that wait; far ahead."""
    made = receiver(interleaved=interleaved)
    for number in range(count):
        made.on_data(
            Data(
                tsn=30_000 + number,
                stream=0 if one_stream else number,
                number=10_000 + number if one_stream else 1,
                flags=flags,
                data=b"x",
                interleaved=interleaved,
            ),
            0.0,
        )
    return made


@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize("one_stream", [False, True])
@pytest.mark.parametrize("flags", [BEGINNING, BEGINNING | ENDING], ids=["incomplete", "waiting"])
def test_what_is_stored_does_not_make_a_forward_tsn_longer(
    flags: int, one_stream: bool, unordered: bool
) -> None:
    def cost(count: int) -> int:
        under_test = with_stored(count, flags | UNORDERED * unordered, one_stream=one_stream)
        # Each names another message, and none that is stored.
        skipped = tuple((0 if one_stream else 60_000, number, unordered) for number in range(200))
        chunk = Forward(interleaved=True, cumulative=1, skipped=skipped)
        return steps(lambda: under_test.on_forward(chunk, 0.0))

    assert cost(800) < 1.5 * cost(100)


@pytest.mark.parametrize("flags", [BEGINNING, BEGINNING | ENDING], ids=["incomplete", "waiting"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_what_is_stored_does_not_make_many_forward_tsns_longer(flags: int, interleaved: bool) -> None:
    def cost(count: int) -> int:
        under_test = with_stored(count, flags, one_stream=True, interleaved=interleaved)

        def pass_one_by_one() -> None:
            for tsn in range(200):
                skipped = ((0, tsn, False),)
                under_test.on_forward(Forward(interleaved=interleaved, cumulative=tsn, skipped=skipped), 0.0)

        return steps(pass_one_by_one)

    assert cost(800) < 1.5 * cost(100)


def test_what_a_forward_tsn_passes_is_dropped_once() -> None:
    under_test = with_stored(500, BEGINNING, one_stream=True)
    before = under_test.window()
    skipped = tuple((0, 10_000 + number, False) for number in range(400))
    chunk = Forward(interleaved=True, cumulative=1, skipped=skipped)
    assert steps(lambda: under_test.on_forward(chunk, 0.0)) < 400 * 400
    assert under_test.window() - before == 400 * 64


def test_a_message_without_one_of_its_fragments_is_not_searched_for_it_with_each_that_comes() -> None:
    def cost(missing: int) -> int:
        under_test = receiver(interleaved=True)
        fsns = [1_000_000, *(number for number in range(missing + 50) if number != missing)]
        # Each of the last ones claims to be the last, and that there are as many as have come.
        chunks = [
            Data(
                tsn=tsn,
                stream=0,
                number=0,
                flags=ENDING * (tsn > missing) | BEGINNING * (not fsn),
                data=b"x",
                fsn=fsn,
                interleaved=True,
            )
            for tsn, fsn in enumerate(fsns)
        ]
        for chunk in chunks[: missing + 1]:
            under_test.on_data(chunk, 0.0)

        def claim() -> None:
            for chunk in chunks[missing + 1 :]:
                under_test.on_data(chunk, 0.0)

        return steps(claim)

    assert cost(800) < 1.5 * cost(100)


def test_what_was_skipped_does_not_make_a_reset_longer() -> None:
    def cost(count: int) -> int:
        under_test = receiver(interleaved=True)
        skipped = tuple((stream, 5, unordered) for stream in range(count) for unordered in (False, True))
        under_test.on_forward(Forward(interleaved=True, cumulative=1, skipped=skipped), 0.0)

        def reset_one_by_one() -> None:
            for stream in range(50):
                under_test.reset_streams((stream, *range(60_000, 60_050)))

        counted = steps(reset_one_by_one)
        # What was skipped on them before says nothing any more: a message begins at 0 again.
        for stream, arrives in ((0, True), (50, False)):
            data = Data(
                tsn=under_test.received.cumulative + 1,
                stream=stream,
                number=0,
                flags=BEGINNING | ENDING,
                data=b"x",
                interleaved=True,
            )
            under_test.on_data(data, 0.0)
            assert bool(under_test.take(0.0)) is arrives
        return counted

    assert cost(800) < 1.5 * cost(100)


def test_what_has_come_of_a_message_is_not_copied_for_each_fragment_before_it() -> None:
    under_test = ByTsn()
    chunk = Data(tsn=0, stream=0, number=0, flags=0, data=b"x")
    for tsn in range(20_000, 0, -1):
        assert under_test.add(tsn, chunk) is None
    # Stored once, and in no list that would have to be copied to put one more in front of it.
    assert len(under_test._fragments) == 20_000
    assert under_test._ends == {1: 20_000}


class Copied(list[Range]):
    """Ranges that count how many of them are copied."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        Copied.copied += len(found) if isinstance(at, slice) else 0
        return found


def test_the_difference_of_many_ranges_is_found_without_a_copy_of_the_rest_for_each() -> None:
    some = [(10 * number, 10 * number + 6) for number in range(1000)]
    others = Copied((10 * number + 2, 10 * number + 3) for number in range(1000))
    assert len(without(some, others)) == 2000
    assert Copied.copied < 5000


def test_a_sack_splits_no_more_than_it_could_if_it_came_from_a_receiver_of_ours() -> None:
    path = Path(b"1234", SctpOptions(), confirmed=True)
    outstanding = Outstanding(1000, [path])
    count, in_each = 200, 50
    for _ in range(count):
        tsn = outstanding.next_tsn
        messages = [Outgoing(0, b"x", 0, Terms()) for _ in range(in_each)]
        parts = [b"\0\0\0\x11" + bytes(12), b"x\0\0\0"] * in_each
        outstanding.add(Bundle(tsn, tsn + in_each - 1, parts, messages, path, in_each, 20 * in_each), 0.0)
    gaps = tuple((2 * number, 2 * number) for number in range(1, count * in_each // 2))
    outstanding.on_sack(Sack(cumulative=999, window=1 << 20, gaps=gaps), 0.0)
    assert len(outstanding.bundles) <= count + 2 * 1000
    assert sum(bundle.acknowledged for bundle in outstanding.bundles) == 1000


def test_the_first_sack_of_a_packet_counts() -> None:
    """Each may take back what the one before has said of all that is outstanding."""
    network = Network()
    ours, _ = network.open()
    ours.send_many(0, [bytes(50)] * 12)
    network.a.endpoint.data_to_send(network.now)
    cumulative = ours.sender.outstanding.cumulative & 0xFFFF_FFFF
    sacks = [
        Sack(cumulative=cumulative, window=1 << 20, gaps=gaps)
        for gaps in ([((2, 5),)] + [(), ((2, 12),)] * 9)
    ]
    data = packets.encode(PORT_B, PORT_A, ours.tag, map(chunks.encode, sacks))
    network.inject(network.a, data, address(2, 0))
    assert [bundle.size for bundle in ours.sender.outstanding.bundles if bundle.acknowledged] == [200]


def test_a_reset_that_waits_walks_what_is_outstanding_once_for_all_streams() -> None:
    """The peer asks for it, and chooses the streams."""

    def cost(streams: int) -> int:
        network = Network()
        ours, _ = network.open()
        ours.send_many(63, [bytes(20)] * 400)
        network.a.endpoint.data_to_send(network.now)
        ours.reset_streams(*range(64 - streams, 64))
        counted = steps(lambda: network.a.endpoint.data_to_send(network.now))
        assert ours.sender.paused
        return counted

    # A few steps for each stream, and not one for each of the 400 messages.
    assert cost(60) - cost(2) < 58 * 100


@pytest.mark.parametrize("chunk", [Plain(0xC9), Listed(Type.HEARTBEAT)], ids=["unknown", "HEARTBEAT"])
def test_a_reply_that_is_not_sent_is_not_made(chunk: chunks.Chunk) -> None:
    """A packet has room for 16,000 chunks that ask for one; 64 are sent."""

    def cost(asked: chunks.Chunk, count: int) -> int:
        network = Network()
        ours, _ = network.open()
        counted = steps(lambda: ours.receive_chunks((asked,) * count, address(2, 0), network.now))
        assert len(ours.output._replies) == (0 if asked == Plain(0x89) else 64)
        return counted

    # An unknown chunk that asks for nothing.
    least = cost(Plain(0x89), 2000) - cost(Plain(0x89), 1000)
    assert cost(chunk, 2000) - cost(chunk, 1000) < 1.5 * least


def test_an_error_with_very_many_causes_is_reported_with_some_of_them() -> None:
    network = Network()
    ours, _ = network.open()
    chunk = Listed(Type.ERROR, (Parameter(1),) * 16_000)
    ours.receive_chunks((chunk,), address(2, 0), network.now)
    (event,) = (event for event in ours.events if event.what is What.PEER_ERROR)
    assert event.detail == "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1] and 15,990 others"
