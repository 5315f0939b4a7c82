"""Messages that need not arrive, and which message goes next."""

from __future__ import annotations

import msgspec
import pytest

from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.schedule import Name, Outgoing, Schedule, Terms
from tests.notes import for_each
from tests.plugins.protocols.sctp.network import QUICK, Network, Weather
from tests.seeds import many

PLAIN = msgspec.structs.replace(QUICK, interleaving=False)
RELIABLE = msgspec.structs.replace(QUICK, partial_reliability=False)


@pytest.mark.parametrize("options", [QUICK, PLAIN])
@pytest.mark.parametrize("seed", many(0, 30))
def test_what_is_given_up_holds_nothing_up_and_the_rest_arrives_in_order(seed: int, options: object) -> None:
    network = Network(seed, Weather(loss=0.2, reordering=0.2), a=options, b=options)
    ours, _ = network.open()
    handles = []
    for number in range(80):
        data = number.to_bytes(4, "big") * network.chance.choice((5, 1000))
        terms = (Terms(retransmissions=0), Terms(expires=network.now + 0.1), Terms(), Terms(unordered=True))[
            number % 4
        ]
        handles.append((number, ours.send(number % 3, data, terms=terms)))
        if number % 10 == 0:
            network.run(0.05)
    network.run_until(lambda: ours.sender.is_empty())
    network.run(1.0)
    got = [int.from_bytes(message.data[:4], "big") for message in network.b.messages]
    assert {number for number, handle in handles if handle.is_acknowledged()} <= set(got)
    assert set(range(80)) - set(got) <= {number for number, handle in handles if handle.abandoned}
    assert all(number in got for number in range(80) if number % 4 >= 2)
    for stream in range(3):
        ordered = [number for number in got if number % 3 == stream and number % 4 != 3]
        assert ordered == sorted(ordered)
    receiver = network.b.association.receiver
    assert receiver.window() == options.receive_window
    assert ours.sender.buffered() == 0


def test_what_shared_a_packet_with_something_given_up_is_sent_again_at_once() -> None:
    network = Network(a=PLAIN, b=PLAIN)
    ours, _ = network.open()
    rto, begun = ours.paths.all[0].rto, network.now
    network.cut[0] = True
    ours.send(
        0, bytes(1500), terms=Terms(retransmissions=0)
    )  # the second of two packets has room for another
    ours.send(1, b"reliable")
    network.run(0.001)
    network.cut[0] = False
    network.run_until(lambda: bool(network.b.messages))
    assert network.b.messages[0].data == b"reliable"
    assert network.now - begun < 2 * rto


@pytest.mark.parametrize("options", [QUICK, PLAIN])
def test_what_is_given_up_on_more_streams_than_a_packet_names_holds_nothing_up(options: SctpOptions) -> None:
    many = msgspec.structs.replace(options, streams_out=1000)
    network = Network(a=many, b=many)
    ours, _ = network.open()
    ours.paths.all[0].cwnd = 1 << 20
    network.cut[0] = True
    given_up = [ours.send(stream, b"old", terms=Terms(expires=network.now + 0.05)) for stream in range(600)]
    network.run(0.06)
    network.cut[0] = False
    handles = [ours.send(stream, b"new") for stream in range(600)]
    network.run_until(lambda: all(handle.is_acknowledged() for handle in handles), most=10)
    assert all(handle.abandoned for handle in given_up)
    assert [message.data for message in network.b.messages] == [b"new"] * 600


def test_without_the_peers_consent_only_what_was_never_sent_is_given_up() -> None:
    network = Network(b=RELIABLE)
    ours, _ = network.open()
    network.cut[0] = True
    sent = ours.send(0, b"sent once", terms=Terms(retransmissions=0))
    network.run(0.001)
    for _ in range(100):
        ours.send(0, bytes(1000))
    late = ours.send(0, b"never sent", terms=Terms(expires=network.now + 1.0))
    network.run(3.0)
    network.cut[0] = False
    network.run_until(lambda: ours.sender.is_empty())
    assert not sent.abandoned
    assert late.abandoned
    assert len(network.b.messages) == 101


def test_a_full_buffer_gives_the_least_important_up() -> None:
    network = Network(a=msgspec.structs.replace(QUICK, send_buffer=10_000))
    ours, _ = network.open()
    network.cut[0] = True
    low = [ours.send(0, bytes(2000), terms=Terms(priority=9)) for _ in range(3)]
    middle = [ours.send(0, bytes(2000), terms=Terms(priority=5)) for _ in range(2)]
    high = ours.send(0, bytes(3000), terms=Terms(priority=1))
    assert [message.abandoned for message in low] == [True, True, False]
    assert not any(message.abandoned for message in (*middle, high))
    network.cut[0] = False
    network.run_until(lambda: len(network.b.messages) == 4)


def order(
    name: Name, streams: list[tuple[int, int]], *, interleaved: bool, fragment: int = 100, **made: dict
) -> str:
    """The streams in which fragments of at most ``fragment`` bytes go, for messages (stream, bytes)."""
    schedule = Schedule(name)
    schedule.interleaved = interleaved
    schedule.priorities.update(made.get("priorities", {}))
    schedule.weights.update(made.get("weights", {}))
    for stream, size in streams:
        schedule.push([Outgoing(stream, bytes(size), 0, Terms())], stream)
    found = ""
    while (message := schedule.current()) is not None:
        size = min(fragment, len(message.data) - message.offset)
        message.offset += size
        schedule.sent(message, size)
        found += str(message.stream)
    assert schedule.bytes == 0
    return found


MIXED = [(1, 300), (1, 100), (2, 100), (3, 100), (2, 100)]


@for_each(
    "name, interleaved, expected",
    [
        ("first-come", False, "1111232"),
        ("round-robin", False, "1112312"),
        ("round-robin", True, "1231211"),
        ("priority", False, "3111122"),
        ("priority", True, "3111122"),
        ("fair", False, "1112321"),
    ],
)
def test_schedules(name: Name, interleaved: bool, expected: str) -> None:
    assert order(name, MIXED, interleaved=interleaved, priorities={3: -1, 2: 5}) == expected


def test_a_fair_schedule_shares_bytes_by_weight() -> None:
    mixed = [(1, 100)] * 30 + [(2, 100)] * 30
    found = order("fair", mixed, interleaved=True, weights={1: 2.0})
    assert 18 <= found[:30].count("1") <= 22


def test_a_fair_schedule_counts_bytes_and_not_messages() -> None:
    mixed = [(1, 100)] * 10 + [(2, 10)] * 100
    found = order("fair", mixed, interleaved=False)
    assert found[:55].count("2") >= 45
