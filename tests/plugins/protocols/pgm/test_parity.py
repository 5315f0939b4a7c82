"""Parity: the code against zfec 1.6.0, and losses on the network that need no repair, or one for many."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.extensions import Fragment, ParityParameters
from plugins.protocols.pgm.options import SourceOptions
from plugins.protocols.pgm.packets import NAK, ODATA, PARITY, RDATA, Data, Request
from plugins.protocols.pgm.parity_rows import RowShape
from plugins.protocols.pgm.reed_solomon import encode, recover
from plugins.protocols.pgm.sequence import MASK, after, distance
from plugins.protocols.pgm.session_parity import SessionParity
from tests.plugins.protocols.pgm.network import Network, Weather
from tests.seeds import in_groups, many
from tests.steps import steps

PROACTIVE = SourceOptions(parity_group=8, parity_packets=2)
ON_DEMAND = SourceOptions(parity_group=8, parity_on_demand=True)
BOTH = SourceOptions(parity_group=16, parity_packets=1, parity_on_demand=True)


# ---------------------------------------------------------------------- the code


def test_parity_is_that_of_zfec() -> None:
    blocks = [b"PGM is ", b"reliabl", b"e multi", b"cast!!!"]
    parity = ["3b8bdf315cb487", "35c0b3cb44010b", "20816d50299375"]
    assert [encode(blocks, index).hex() for index in range(3)] == parity


def test_parity_of_sixteen_is_that_of_zfec() -> None:
    blocks = [bytes([at * 7 + byte * 13 & 255 for byte in range(8)]) for at in range(16)]
    parity = ["36c10b9eb19a401d", "3981111a9a73436a", "f81080ac1955ae0d", "5ef9f51114de2797"]
    assert [encode(blocks, index).hex() for index in range(4)] == parity


@given(st.integers(1, 20), st.integers(1, 40), st.randoms(use_true_random=False))
def test_any_k_give_all(k: int, size: int, chance: random.Random) -> None:
    blocks = [chance.randbytes(size) for _ in range(k)]
    kept = sorted(chance.sample(range(2 * k), k))
    data = {at: blocks[at] for at in kept if at < k}
    parity = {at - k: encode(blocks, at - k) for at in kept if at >= k}
    assert recover(k, data, parity) == {at: blocks[at] for at in range(k) if at not in data}


def test_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="are not 3"):
        recover(3, {0: b"a"}, {0: b"b"})


_items = st.tuples(
    st.binary(max_size=30),
    st.none() | st.builds(Fragment, st.integers(0, 9), st.integers(0, 9), st.integers(1, 99)),
)


@given(st.lists(_items, min_size=1, max_size=8))
def test_packets_of_any_length_and_kind_make_rows_and_come_back(
    items: list[tuple[bytes, Fragment | None]],
) -> None:
    shape = RowShape.of_items(items)
    rows = [shape.row(item) for item in items]
    assert len(set(map(len, rows))) == 1
    assert [shape.item(row) for row in rows] == items
    data, extensions = shape.parity_of_row(rows[0])
    assert RowShape.row_of_parity(data, extensions) == rows[0]
    again = RowShape.of_parity(data, variable=shape.variable, extensions=extensions)
    assert (again.size, again.variable, again.fragments) == (shape.size, shape.variable, shape.fragments)


# ---------------------------------------------------------------------- on the network


def _losing(*numbers: int) -> object:
    return lambda packet: packet[4] == ODATA and not packet[5] & PARITY and packet[19] in numbers


def _bodies(count: int) -> list[bytes]:
    return [b"%d" % number * (number % 7 + 1) for number in range(count)]


def test_as_many_losses_as_there_is_parity_need_no_request() -> None:
    network = Network(source=PROACTIVE, drop=_losing(2, 5, 8, 30))
    network.run(0.1)
    network.send(_bodies(32))
    network.run(1)
    listener = network.listeners[0]
    assert listener.units == _bodies(32)
    assert network.upstream == []
    assert listener.receiver.statistics.worked_out == 4


def test_more_losses_than_parity_are_asked_for() -> None:
    network = Network(source=PROACTIVE, drop=_losing(1, 2, 3, 4))
    network.run(0.1)
    network.send(_bodies(16))
    network.run(1)
    assert network.listeners[0].units == _bodies(16)
    assert network.listeners[0].told(What.LOST) == []


def test_one_request_for_a_group_says_how_many_are_missing() -> None:
    network = Network(source=ON_DEMAND, drop=_losing(1, 6, 7))
    network.run(0.1)
    network.send(_bodies(24))
    network.run(1)
    assert network.listeners[0].units == _bodies(24)
    naks = [packets.decode(packet) for packet in network.upstream if packet[4] == NAK]
    assert [(nak.parity, nak.numbers) for nak in naks if isinstance(nak, Request)] == [(True, (0 | 2,))]
    assert network.source.statistics.repairs == 3


def test_the_end_of_the_data_is_asked_for_by_number() -> None:
    network = Network(source=ON_DEMAND, drop=_losing(9, 10))
    network.run(0.1)
    network.send(_bodies(11))
    network.run(1)
    assert network.listeners[0].units == _bodies(11)
    assert [packet[5] & PARITY for packet in network.upstream if packet[4] == NAK] == [0]


def test_one_packet_repairs_the_different_losses_of_many() -> None:
    """Eight receivers lose a different packet each: parity for one is parity for all."""
    network = Network(receivers=8, source=ON_DEMAND, seed=2)
    network.run(0.1)
    carry = network._carry
    losers = {id(listener.weather): at for at, listener in enumerate(network.listeners)}
    for at, listener in enumerate(network.listeners):
        listener.weather = Weather(delay=0.001 + at * 1e-9)
        losers[id(listener.weather)] = at

    def losing(packet: bytes, weather: Weather, arrive: object) -> None:
        if packet[4] == ODATA and not packet[5] & PARITY and packet[19] == losers[id(weather)]:
            return
        carry(packet, weather, arrive)

    network._carry = losing  # type: ignore[method-assign, assignment]
    network.send(_bodies(16))
    network.run(1)
    assert all(listener.units == _bodies(16) for listener in network.listeners)
    assert network.source.statistics.repairs <= 4


@pytest.mark.slow
@pytest.mark.parametrize("options", [PROACTIVE, ON_DEMAND, BOTH], ids=["proactive", "on demand", "both"])
@pytest.mark.parametrize("seeds", in_groups(many(0, 30), 10), ids=str)
def test_everything_arrives_through_a_storm(options: SourceOptions, seeds: range) -> None:
    """Small packets and fragments, through the wrap-around, with losses, doubles and disorder."""
    for seed in seeds:
        weather = Weather(loss=0.1, duplication=0.05, reordering=0.1, jitter=0.001)
        network = Network(seed, 2, weather, source=options, packet_size=200, first=-32 & 0xFFFFFFFF)
        network.run(0.3)
        units = [bytes([at % 256]) * size for at, size in enumerate([5, 400, 0, 140, 1000] * 8)]
        for at in range(0, len(units), 5):
            network.send(units[at : at + 5])
            network.run(0.01)
        network.run_until(lambda: all(len(it.units) >= len(units) for it in network.listeners), 60)  # noqa: B023
        assert all(listener.units == units for listener in network.listeners), seed


def test_a_parity_packet_has_the_flags_of_the_rfc() -> None:
    network = Network(receivers=0, source=PROACTIVE)
    seen: list[bytes] = []
    network.multicast = seen.append  # type: ignore[method-assign, assignment]
    network.send([b"x" * size for size in range(1, 9)])
    network.run(0.001)
    parity = [packets.decode(packet) for packet in seen if packet[5] & PARITY]
    assert [
        (packet.kind, packet.number, packet.variable) for packet in parity if isinstance(packet, Data)
    ] == [
        (ODATA, 0, True),
        (ODATA, 1, True),
    ]
    assert [len(packet.data) for packet in parity if isinstance(packet, Data)] == [8 + 2, 8 + 2]
    assert RDATA not in {packet[4] for packet in seen}


@pytest.mark.parametrize(
    "wrong", [{"parity_group": 6, "parity_packets": 1}, {"parity_group": 8}, {"parity_packets": 1}]
)
def test_options_that_do_not_fit_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="parity"):
        SourceOptions(**wrong)


@given(
    st.sampled_from((0, 3, 0x7FFF_FFF0, 0xFFFF_FFF0)),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=30),
)
def test_groups_that_are_passed_are_forgotten(first: int, course: list[tuple[int, int]]) -> None:
    parity = SessionParity(ParityParameters(group=4), first)
    done = 0
    for ahead, way in course:
        parity.note(after(first, done + ahead), (b"x", None))
        done += way
        parity.forget_before(after(first, done))
        assert all(distance(after(first, done), start + 4 & MASK) > 0 for start in parity._groups)


def test_groups_behind_a_gap_are_not_walked_with_each_packet() -> None:
    def cost(count: int) -> int:
        parity = SessionParity(ParityParameters(group=2), 0)
        for number in range(2, 2 * count, 2):
            parity.note(number, (b"x", None))

        def move_on() -> None:
            for number in (0, 0, 1, 2, 3, 4):
                parity.forget_before(number)

        return steps(move_on)

    assert cost(1000) < 1.5 * cost(10)
