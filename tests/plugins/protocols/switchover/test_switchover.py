"""From TCP to multicast and back in memory, with losses: whatever comes and goes, everything arrives once and in order."""

from __future__ import annotations

import pytest

from plugins.protocols.switchover.link import Stage
from plugins.protocols.switchover.options import SwitchoverOptions
from tests.plugins.protocols.switchover.network import Member, Network
from tests.seeds import in_groups, many

SEEDS, MANY_SEEDS = 60, 160


def _all_arrive(network: Network, *members: Member, first: int = 0) -> None:
    network.run_until(lambda: all(len(member.got) >= len(network.sent) - first for member in members))
    assert [member.got == network.sent[first:] for member in members] == [True] * len(members)


def test_two_receivers_are_reached_by_tcp_and_nothing_is_multicast() -> None:
    network = Network()
    two = [network.join("a"), network.join("b")]
    network.send(200)
    _all_arrive(network, *two)
    network.run(10)
    assert network.multicast_packets == 0
    assert [member.side.group for member in two] == [None, None]


def test_the_third_receiver_makes_it_multicast_and_its_leaving_tcp_again() -> None:
    network = Network()
    stay = [network.join("a"), network.join("b")]
    network.send(100)
    third = network.join("c")
    network.run_until(lambda: network.sender.multicasting)
    network.send(100)
    by_tcp = [member.side.statistics.units_by_tcp for member in stay]
    _all_arrive(network, *stay)
    assert all(member.by_group >= 99 for member in stay)
    assert [member.side.statistics.units_by_tcp for member in stay] == by_tcp, "each unit went once"
    network.kill(third)
    assert not network.sender.multicasting
    network.send(100)
    _all_arrive(network, *stay)
    network.run(1)
    assert not network.sender.uses_group
    assert [member.side.group for member in stay] == [None, None]
    assert network.sender.fall_backs == 0
    told = [detail.partition(" from")[0] for what, _, detail in network.events if what == "switched"]
    assert told == ["to multicast", "to TCP"]


def test_the_units_are_the_same_whichever_way_they_come() -> None:
    """Nothing is sent twice to anybody at a switch: neither way sends a unit that the other has."""
    network = Network()
    members = [network.join(name) for name in "abc"]
    network.run_until(lambda: bool(network.sender.known))
    for _ in range(30):
        network.send(10)
        network.run(0.01)
    _all_arrive(network, *members)
    network.kill(members.pop())
    network.send(100)
    _all_arrive(network, *members)
    assert [member.side.statistics.duplicates for member in members] == [0, 0]


def _back_to_tcp_with_the_last_multicast_missing(*, for_good: bool) -> Network:
    network = Network()
    members = [network.join(name) for name in "abc"]
    network.run_until(lambda: network.sender.multicasting)
    network.send(10)
    members[0].deaf = True
    network.send(10)
    network.run(0.01)
    network.kill(members.pop())
    members[0].deaf = for_good
    network.send(10)
    assert members[0].side.group is not None, "it has still to hear something there"
    _all_arrive(network, *members)
    network.run(1)
    assert members[0].side.group is None
    return network


def test_what_was_multicast_last_is_repaired_there_after_the_switch_back() -> None:
    assert _back_to_tcp_with_the_last_multicast_missing(for_good=False).sender.fall_backs == 0


def test_what_cannot_be_repaired_there_any_more_comes_by_tcp() -> None:
    assert _back_to_tcp_with_the_last_multicast_missing(for_good=True).sender.fall_backs == 1


def test_what_comes_twice_is_counted_and_not_kept() -> None:
    network = Network()
    member = network.join("a")
    network.send(3)
    _all_arrive(network, member)
    for number in (0, 2, 5, 5):
        member.side.receive_group([number.to_bytes(8, "big") + b"again"], network.now)
    assert member.side.statistics.duplicates == 3
    assert member.side.take() == []
    assert list(member.side._early) == [5]


def _ordeal(seed: int, rounds: int) -> None:
    """Receivers with losses come, are killed, lose their connection, while the feed goes on."""
    network = Network(seed)
    chance = network.chance
    stay = [network.join("first", 0.1), network.join("second", 0.05)]
    network.run(0.1)
    guests: list[Member] = []
    for number in range(rounds):
        what = chance.random()
        if what < 0.3:
            guests.append(network.join(f"guest-{number}", 0.1))
        elif what < 0.5 and guests:
            network.kill(guests.pop(chance.randrange(len(guests))))
        elif what < 0.6:
            member = chance.choice(stay)
            network.cut(member)
            network.send(chance.randrange(5))
            network.connect(member)
        network.send(chance.randrange(30))
        network.run(chance.random() * 0.1)
    _all_arrive(network, *stay)
    network.run_until(lambda: all(guest.side.next == network.sender.buffer.next for guest in guests))
    for guest in guests:
        at = len(network.sent) - len(guest.got)
        assert guest.got == network.sent[at:], "a guest has all since it came"
    assert network.sender.buffer.messages_confirmed <= len(network.sent)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", in_groups(many(0, SEEDS), 10), ids=str)
def test_everything_arrives_once_and_in_order(seeds: range) -> None:
    for seed in seeds:
        _ordeal(seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", in_groups(many(SEEDS, MANY_SEEDS - SEEDS), 20), ids=str)
def test_everything_arrives_once_and_in_order_with_many_seeds(seeds: range) -> None:
    for seed in seeds:
        _ordeal(seed, 20)


def test_who_cannot_hear_the_group_stays_on_tcp_beside_the_others() -> None:
    network = Network()
    hearing = [network.join(name) for name in "abc"]
    deaf = network.join("deaf", deaf=True)
    network.run(5)
    assert network.sender.multicasting
    network.send(100)
    _all_arrive(network, *hearing, deaf)
    assert deaf.by_group == 0
    assert ("stays on TCP", "deaf") in [event[:2] for event in network.events]


def test_without_three_who_hear_the_group_all_stay_on_tcp() -> None:
    network = Network()
    members = [network.join("a"), network.join("b"), network.join("deaf", deaf=True)]
    network.run(5)
    network.send(100)
    _all_arrive(network, *members)
    assert not network.sender.multicasting
    assert members[0].by_group == 0


def test_a_receiver_that_multicast_no_longer_gets_to_falls_back_and_is_asked_again() -> None:
    network = Network()
    members = [network.join(name) for name in "abcd"]
    network.run_until(lambda: all(link.stage is Stage.MULTICAST for link in network.sender.known))
    network.send(20)
    members[0].deaf = True
    network.send(20)
    _all_arrive(network, *members)
    assert network.sender.fall_backs == 1
    assert network.sender.multicasting, "three are left"
    members[0].deaf = False
    network.run(40)
    assert network.sender.links[0].stage is Stage.MULTICAST
    network.send(20)
    _all_arrive(network, *members)


def test_what_pgm_gives_up_comes_by_tcp() -> None:
    network = Network()
    members = [network.join(name) for name in "abcd"]
    network.run_until(lambda: all(link.stage is Stage.MULTICAST for link in network.sender.known))
    network.send(10)
    network.run(0.1)
    lost = members[0].side
    lost.receive_group([None], network.now)
    members[0].due = network.now
    network.send(10)
    _all_arrive(network, *members)
    assert network.sender.fall_backs == 1


def test_messages_are_confirmed_when_all_receivers_have_confirmed_them() -> None:
    network = Network()
    members = [network.join(name) for name in "abc"]
    members[0].confirms = False
    network.run_until(lambda: network.sender.multicasting)
    network.send(50)
    _all_arrive(network, *members)
    network.run(0.5)
    assert network.sender.buffer.messages_confirmed == 0
    members[0].confirms = True
    members[0].due = network.now
    network.run(0.5)
    assert network.sender.buffer.messages_confirmed == 50


def test_one_that_takes_nothing_holds_up_the_feed_for_so_long_and_no_longer() -> None:
    network = Network(options=SwitchoverOptions(window_bytes=64 * 1024, stall_timeout=3.0))
    members = [network.join(name) for name in "abc"]
    network.run(0.1)
    members[2].slow = True
    start = network.now
    network.send(200, size=1000)
    _all_arrive(network, *members[:2])
    assert 3.0 <= network.now - start < 5.0
    assert len(network.sender.links) == 2


def test_a_receiver_that_comes_back_goes_on_where_it_was() -> None:
    network = Network()
    members = [network.join(name) for name in "abc"]
    network.run(0.1)
    network.send(50)
    network.cut(members[0])
    network.send(50)
    network.connect(members[0])
    network.send(50)
    _all_arrive(network, *members)


def test_what_is_confirmed_between_hello_and_welcome_is_told_after_them() -> None:
    network = Network()
    member = network.join("one")
    member.confirms = False
    network.send(10)
    network.run(1.0)
    network.cut(member)
    network.connect(member)
    link, side = member.link, member.side
    assert link is not None
    hello = b"".join(side.data_to_send(network.now))
    side.confirm(side.epoch, side.next, network.now)
    network.now += 0.05  # before the answer comes
    assert side.data_to_send(network.now) == []
    network.sender.receive(link, hello, network.now)
    network.run(1.0)
    assert network.sender.buffer.confirmed == 10


def test_one_that_comes_back_too_late_is_told_what_it_lost() -> None:
    network = Network(options=SwitchoverOptions(window_bytes=64 * 1024))
    members = [network.join(name) for name in "ab"]
    network.run(0.1)
    network.send(10)
    _all_arrive(network, *members)
    network.cut(members[0])
    network.send(500, size=1000)
    network.connect(members[0])
    network.run(1)
    side = members[0].side
    ((what, detail),) = side.events
    assert what == "lost"
    assert detail.startswith("units 10 to ")
    assert members[0].got == network.sent[:10] + network.sent[10 + side.statistics.lost_units :]


def test_with_a_promise_the_next_receiver_gets_what_the_last_did_not_confirm() -> None:
    network = Network()
    network.sender.confirming = True
    first = network.join("first")
    first.confirms = False
    network.run(0.1)
    network.send(5)
    network.kill(first)
    second = network.join("second")
    network.run(0.1)
    network.send(5)
    _all_arrive(network, second)


def test_without_a_promise_the_next_receiver_begins_with_what_comes_next() -> None:
    network = Network()
    first = network.join("first")
    first.confirms = False
    network.run(0.1)
    network.send(5)
    network.kill(first)
    second = network.join("second")
    network.run(0.1)
    network.send(5)
    _all_arrive(network, second, first=5)
    network.run(0.1)
    assert network.sender.buffer.messages_confirmed == 10


def test_the_feed_of_another_sender_is_told_and_begins_anew() -> None:
    network = Network()
    member = network.join("a")
    network.run(0.1)
    network.send(5)
    _all_arrive(network, member)
    member.side.receive_group([(2).to_bytes(8, "big") + b"early", (7).to_bytes(8, "big") + b"early"], 0.0)
    other = Network(feed=b"feed-two")
    other.members.append(member)
    other.connect(member)
    other.run(0.1)
    assert [what for what, _ in member.side.events] == ["feed began anew"]
    other.send(10)
    other.run(0.1)
    assert member.got == network.sent + other.sent
