"""Streams that count from 0 again (RFC 6525)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kernel.contracts.errors import LocalProtocolError
from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Listed, Sack, Type
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.schedule import Terms
from tests.plugins.protocols.sctp.network import PORT_A, PORT_B, QUICK, Network, Weather, address
from tests.seeds import many

PLAIN = msgspec.structs.replace(QUICK, interleaving=False)


@pytest.mark.parametrize("options", [QUICK, PLAIN])
@pytest.mark.parametrize("seed", many(0, 30))
def test_messages_before_and_after_a_reset_arrive_in_order(seed: int, options: SctpOptions) -> None:
    network = Network(seed, Weather(loss=0.15, reordering=0.3, duplication=0.1), a=options, b=options)
    ours, theirs = network.open()
    expected = []
    for number in range(30):
        data = number.to_bytes(2, "big") * network.chance.choice((1, 1500))
        expected.append(data)
        ours.send(1, data)
        ours.send(2, data)
        if number in (10, 20):
            network.run_until(lambda: not ours.sender.paused)
            ours.reset_streams(1)
    network.run_until(lambda: ours.sender.is_empty() and len(network.a.told(What.STREAMS_RESET)) == 2)
    for stream in (1, 2):
        assert [message.data for message in network.b.messages if message.stream == stream] == expected
    assert [event.streams for event in network.b.told(What.STREAMS_RESET)] == [(1,), (1,)]
    assert ours.sender.numbers[False][1] < 20
    assert ours.sender.numbers[False][2] == 30
    assert theirs.violations == 0


def without_sacks(packet: bytes) -> bytes:
    return b"" if any(isinstance(chunk, Sack) for chunk in packets.decode(packet).chunks) else packet


def only_from_a(packet: bytes) -> bytes:
    return packet if packets.decode(packet).source == PORT_A else b""


@pytest.mark.parametrize("options", [QUICK, PLAIN])
@pytest.mark.parametrize("spoil", [without_sacks, only_from_a])
def test_the_number_of_what_was_given_up_before_a_reset_is_told_before_it(
    options: SctpOptions, spoil: Callable[[bytes], bytes]
) -> None:
    """Told after it, it would be taken for one of the new numbers.  The answer to what tells it is lost."""
    network = Network(a=options, b=options)
    ours, theirs = network.open()
    ours.send_many(1, [b"before"] * 3)
    network.run_until(ours.sender.is_empty)

    def give_up(stream: int) -> None:
        count = ours.sender.outstanding.abandoned_count
        network.cut[0] = True
        ours.send(stream, b"given up", terms=Terms(retransmissions=0))
        network.run(0.001)
        network.cut[0] = False
        network.run_until(lambda: ours.sender.outstanding.abandoned_count > count)
        network.run(0.03)

    network.spoil = spoil
    give_up(1)
    ours.reset_streams(1)
    network.run(0.06)
    give_up(2)
    network.spoil = lambda packet: packet
    after = [bytes((number,)) for number in range(2)]
    ours.send_many(1, after)
    network.run_until(ours.sender.is_empty)
    assert len(network.a.told(What.STREAMS_RESET)) == len(network.b.told(What.STREAMS_RESET)) == 1
    assert [message.data for message in network.b.messages] == [b"before"] * 3 + after
    assert theirs.receiver.expected[False] == {1: 2, 2: 1}


def ask(network: Network, kind: Kind, number: int, rest: bytes) -> list[tuple[int, bytes]]:
    """A request from A's address with that number; the answers' kinds and values."""
    ours = network.b.endpoint.associations[0]
    parameter = Parameter(kind, (number & 0xFFFF_FFFF).to_bytes(4, "big") + rest)
    encoded = chunks.encode(Listed(Type.RE_CONFIG, (parameter,)))
    network.b.endpoint.receive_data(
        packets.encode(PORT_A, PORT_B, ours.tag, [encoded]), address(1, 0), network.now
    )
    return [
        (parameter.kind, parameter.value)
        for _, answer in network.b.endpoint.data_to_send(network.now)
        for chunk in packets.decode(answer).chunks
        if isinstance(chunk, Listed) and chunk.kind == Type.RE_CONFIG
        for parameter in chunk.parameters
    ]


def result(number: int, value: int) -> tuple[int, bytes]:
    return (
        Kind.RECONFIGURATION_RESPONSE,
        (number & 0xFFFF_FFFF).to_bytes(4, "big") + value.to_bytes(4, "big"),
    )


def test_requests_are_numbered_and_a_repeated_one_is_answered_the_same() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, streams_in=70))
    ours, _ = network.open()
    first = ours.first_tsn
    more = (6).to_bytes(2, "big") + b"\0\0"
    assert ask(network, Kind.ADD_OUTGOING, first, more) == [result(first, 1)]
    assert ask(network, Kind.ADD_OUTGOING, first, more) == [result(first, 1)]
    assert ask(network, Kind.ADD_OUTGOING, first + 5, more) == [result(first + 5, 5)]
    assert ask(network, Kind.ADD_OUTGOING, first + 1, more) == [result(first + 1, 2)]  # 64 + 6 + 6 > 70
    assert ask(network, Kind.TSN_RESET, first + 2, b"") == [result(first + 2, 2)]


def test_a_reset_waits_for_what_was_sent_before_it() -> None:
    network = Network()
    ours, _ = network.open()
    first = ours.first_tsn
    last = (first & 0xFFFF_FFFF).to_bytes(4, "big")
    assert ask(network, Kind.OUTGOING_RESET, first, b"\0\0\0\0" + last + b"\0\1") == [result(first, 6)]
    ours.send(1, b"the one that is missing")
    network.run(0.5)
    assert network.b.messages
    assert network.b.told(What.STREAMS_RESET)
    assert ask(network, Kind.OUTGOING_RESET, first, b"\0\0\0\0" + last + b"\0\1") == [result(first, 1)]


def test_the_peer_may_ask_for_a_reset_of_ours() -> None:
    network = Network()
    ours, _ = network.open()
    answers = ask(network, Kind.INCOMING_RESET, ours.first_tsn, b"\0\3")
    assert answers[0] == result(ours.first_tsn, 1)
    assert answers[1][0] == Kind.OUTGOING_RESET
    assert answers[1][1][12:] == b"\0\3"


@pytest.mark.parametrize("seed", many(0, 20))
def test_both_sides_ask_each_other_for_everything_at_once(seed: int) -> None:
    network = Network(seed, Weather(loss=0.2, reordering=0.3, duplication=0.2))
    ours, theirs = network.open()
    for association in (ours, theirs):
        association.send(1, b"before")
        association.reset_streams(1, theirs=True)
        association.add_streams(5)
    sides = (network.a, network.b)
    network.run_until(lambda: all(len(side.told(What.STREAMS_RESET)) == 2 for side in sides))
    network.run_until(lambda: all(side.told(What.STREAMS_ADDED) for side in sides))
    for side, association in zip(sides, (ours, theirs), strict=True):
        resets = {(event.streams, event.detail) for event in side.told(What.STREAMS_RESET)}
        assert resets == {((1,), "ours"), ((1,), "the peer's")}
        assert [event.streams for event in side.told(What.STREAMS_ADDED)] == [tuple(range(64, 69))]
        assert not side.told(What.RESET_REFUSED)
        association.send(68, b"on the last")
    network.run_until(lambda: all(len(side.messages) == 2 for side in sides))
    assert ours.sender.streams == theirs.receiver.streams == 69
    assert ours.violations == theirs.violations == 0


def test_what_the_peer_refuses_is_told() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, streams_in=66))
    ours, theirs = network.open()
    ours.add_streams(3)
    network.run(1.0)
    (refused,) = network.a.told(What.ADDING_REFUSED)
    assert refused.streams == (64, 65, 66)
    assert ours.sender.streams == 64
    with pytest.raises(LocalProtocolError, match="0 to 63"):
        ours.send(64, b"x")
    theirs.sender.paused = frozenset((9,))  # busy
    theirs._reconfiguration._queued[Kind.OUTGOING_RESET] = (9,)
    theirs.sender.schedule.has_unsent = lambda stream: True  # type: ignore[method-assign]
    ours.reset_streams(2, theirs=True)
    network.run(1.0)
    (refused,) = network.a.told(What.RESET_REFUSED)
    assert (refused.streams, refused.detail) == ((2,), "the peer's")


def test_the_requests_have_the_bytes_of_the_rfc() -> None:
    """RFC 6525, 4.2 and 4.5: a number, and the streams; a number, how many, and two bytes that are reserved."""
    ours, _ = (network := Network()).open()
    number = (ours.first_tsn & 0xFFFF_FFFF).to_bytes(4, "big").hex()
    ours.reset_streams(2, 7, theirs=True)
    ((_, packet),) = network.a.endpoint.data_to_send(network.now)
    assert packet[12:].hex() == "82000010" + "000e000c" + number + "00020007"
    other, _ = (network := Network(5)).open()
    other.add_streams(258)
    ((_, packet),) = network.a.endpoint.data_to_send(network.now)
    number = (other.first_tsn & 0xFFFF_FFFF).to_bytes(4, "big").hex()
    assert packet[12:].hex() == "82000010" + "0011000c" + number + "01020000"


def test_a_reset_that_cannot_be_is_refused_here() -> None:
    network = Network(b=msgspec.structs.replace(QUICK, stream_reset=False))
    ours, _ = network.open()
    with pytest.raises(LocalProtocolError, match="does not support it"):
        ours.reset_streams(1)
    able = Network().open()[0]
    with pytest.raises(LocalProtocolError, match="0 to 63"):
        able.reset_streams(64)
    able.reset_streams(1)
    with pytest.raises(LocalProtocolError, match="already"):
        able.reset_streams(2)
    able.add_streams(1)
    with pytest.raises(LocalProtocolError, match="already"):
        able.add_streams(1)
    with pytest.raises(LocalProtocolError, match="1 to 65471"):
        Network().open()[0].add_streams(65472)
