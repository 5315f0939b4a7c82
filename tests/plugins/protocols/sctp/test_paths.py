"""Several paths, and the window of each: failover, heartbeats, congestion."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.states import State
from tests.plugins.protocols.sctp.network import FAIR, QUICK, Network, Weather, address
from tests.seeds import many

TWO = msgspec.structs.replace(QUICK, heartbeat=2.0, path_tries=2)


def test_the_peers_other_address_is_tried_before_it_is_used() -> None:
    network = Network(a=TWO, b=TWO, paths=2)
    ours, _ = network.open()
    assert [path.address for path in ours.paths.all] == [address(2, 0), address(2, 1)]
    assert not ours.paths.all[1].confirmed
    network.run(1.0)
    assert ours.paths.all[1].confirmed


def cut_and_restored(seed: int) -> None:
    """The first path goes while both talk, and comes back: it is left, and taken again, and nothing is missing."""
    network = Network(seed, Weather(loss=0.03, reordering=0.1), a=TWO, b=TWO, paths=2)
    ours, theirs = network.open()
    network.run(2.0)
    count = 0

    def talk(until: int) -> None:
        nonlocal count
        while len(network.b.messages) < until:
            ours.send(0, count.to_bytes(4, "big") * 200)
            theirs.send(1, count.to_bytes(4, "big"))
            count += 1
            network.run(0.05)

    talk(20)
    network.cut[0] = True
    talk(60)
    network.run_until(lambda: ours.paths.current().address == address(2, 1))
    assert address(2, 0) in [event.address for event in network.a.told(What.PATH_DOWN)]
    network.cut[0] = False
    network.run_until(lambda: address(2, 0) in [event.address for event in network.a.told(What.PATH_UP)])
    assert ours.paths.current().address == address(2, 0)
    sent = ours.sender.outstanding
    network.run_until(lambda: ours.sender.is_empty() and theirs.sender.is_empty())
    network.run(0.5)
    assert sent.flight == 0
    assert all(path.flight == 0 for path in ours.paths.all)
    assert network.a.told(What.LOST) == network.b.told(What.LOST) == []
    for side in (network.a, network.b):
        numbers = [int.from_bytes(message.data[:4], "big") for message in side.messages]
        assert numbers == list(range(count))


@pytest.mark.parametrize("seed", many(0, 25))
def test_a_path_that_is_cut_is_left_and_taken_again_when_it_is_back(seed: int) -> None:
    cut_and_restored(seed)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_path_is_cut_and_restored_hundreds_of_times() -> None:
    for seed in many(100, 150):
        cut_and_restored(seed)


@pytest.mark.parametrize("seed", many(0, 10))
def test_both_paths_may_be_away_for_a_while(seed: int) -> None:
    network = Network(seed, Weather(loss=0.05), a=TWO, b=TWO, paths=2)
    ours, theirs = network.open()
    network.run(2.0)
    for number in range(30):
        ours.send(0, number.to_bytes(4, "big") * 500)
        theirs.send(0, number.to_bytes(4, "big"))
    network.cut = [True, True]
    network.run(15.0)
    network.cut = [seed % 2 == 0, False]  # one, or both, come back
    network.run_until(lambda: ours.sender.is_empty() and theirs.sender.is_empty())
    network.run(0.5)
    for side in (network.a, network.b):
        assert [int.from_bytes(each.data[:4], "big") for each in side.messages] == list(range(30))


def test_each_path_has_a_window_of_its_own() -> None:
    network = Network(a=TWO, b=TWO, paths=2)
    ours, _ = network.open()
    network.run(2.0)
    first, second = ours.paths.all
    ours.send_many(0, [bytes(1000)] * 200)
    network.run_until(lambda: len(network.b.messages) == 200)
    assert first.cwnd > 2 * second.cwnd
    before = second.cwnd
    network.cut[0] = True
    ours.send_many(0, [bytes(1000)] * 20)
    network.run_until(lambda: len(network.b.messages) == 220)
    assert (
        first.cwnd == QUICK.packet_size
    )  # it has timed out (RFC 9260, 7.2.3); what was lost went over the other
    assert second.cwnd >= before
    assert first.ssthresh < 1 << 20 < second.ssthresh


def test_heartbeats_notice_a_peer_that_is_gone_without_data() -> None:
    network = Network(a=msgspec.structs.replace(TWO, association_tries=3), b=TWO)
    network.open()
    network.run(30.0)
    assert network.a.told(What.LOST) == []
    network.cut[0] = True
    network.run_until(lambda: bool(network.a.told(What.LOST)), most=120)
    assert len(network.a.told(What.PATH_DOWN)) == 1


def test_heartbeats_of_a_path_without_data_do_not_end_the_association() -> None:
    # The first unanswered heartbeat that counts ends the association.
    network = Network(a=msgspec.structs.replace(TWO, association_tries=0), b=TWO, paths=2)
    ours, _ = network.open()
    network.run(10.0)
    assert ours.paths.all[1].confirmed
    network.cut[1] = True
    network.run(60.0)
    assert network.a.told(What.LOST) == []
    assert [event.address for event in network.a.told(What.PATH_DOWN)] == [address(2, 1)]
    # That of the path that data would take counts.
    network.cut[0] = True
    network.run_until(lambda: bool(network.a.told(What.LOST)), most=10)


def test_an_idle_association_ends_when_no_path_answers_any_more() -> None:
    network = Network(a=msgspec.structs.replace(TWO, association_tries=8), b=TWO, paths=2)
    network.open()
    network.run(10.0)
    network.cut = [True, True]
    network.run_until(lambda: bool(network.a.told(What.LOST)), most=120)
    assert len(network.a.told(What.PATH_DOWN)) == 2


@pytest.mark.slow
def test_an_idle_association_stays() -> None:
    network = Network()
    ours, theirs = network.open()
    network.run(10_000)
    assert ours.state is theirs.state is State.ESTABLISHED


def path(**changed: float) -> Path:
    return Path(b"1234", msgspec.structs.replace(QUICK, packet_size=1200, **changed), confirmed=True)


def test_the_time_out_follows_the_round_trip() -> None:
    under_test = path(rto_min=0.001, rto_max=60.0)
    under_test.measured(1.0)
    assert under_test.rto == pytest.approx(1.0 + 4 * 0.5)  # RFC 9260, 6.3.1, C2
    under_test.measured(2.0)  # RTTVAR = 3/4 * 0.5 + 1/4 * 1, SRTT = 7/8 + 2/8
    assert under_test.rto == pytest.approx(1.125 + 4 * 0.625)
    for _ in range(10):
        under_test.back_off()
    assert under_test.rto == 60.0


def test_the_window_opens_slowly_then_linearly_and_halves_on_a_loss() -> None:
    under_test = path()
    assert under_test.cwnd == 4404  # min(4 * 1200, max(2 * 1200, 4404)): RFC 9260, 7.2.1
    under_test.acknowledged(3000, in_flight_before=4404, advanced=True)
    assert under_test.cwnd == 7404
    under_test.acknowledged(100_000, in_flight_before=7404, advanced=True)
    assert under_test.cwnd == 7404 + 32 * 1200  # one acknowledgement counts as a burst at the most
    under_test.acknowledged(3000, in_flight_before=100, advanced=True)
    assert under_test.cwnd == 7404 + 32 * 1200
    under_test.cwnd = 20_000
    under_test.enter_fast_recovery(50)
    assert (under_test.cwnd, under_test.ssthresh) == (10_000, 10_000)
    under_test.enter_fast_recovery(60)
    assert under_test.cwnd == 10_000
    under_test.recovery_exit = None
    under_test.cwnd = 10_001
    for _ in range(10):
        under_test.acknowledged(1001, in_flight_before=10_001, advanced=True)
    assert under_test.cwnd == 11_201
    under_test.timed_out()
    assert (under_test.cwnd, under_test.ssthresh) == (1200, 5600)


def test_one_loss_among_many_is_repaired_without_a_time_out() -> None:
    count = itertools.count()
    network = Network(weather=FAIR, spoil=lambda data: data[:-1] if next(count) == 30 else data)
    ours, _ = network.open()
    begun = network.now
    for _ in range(200):
        ours.send(0, bytes(1000))
    network.run_until(lambda: len(network.b.messages) == 200)
    assert ours.sender.outstanding.retransmitted == 1
    assert ours.paths.all[0].ssthresh < 1 << 20
    assert network.now - begun < 0.5
    assert network.b.endpoint.statistics.malformed == 1


@pytest.mark.slow
def test_a_slow_link_is_used_also_after_the_time_out_that_ends_slow_start() -> None:
    timed = msgspec.structs.replace(QUICK, rto_min=0.2, sack_delay=0.02)
    link = Weather(delay=0.1, bandwidth=250_000, queue=50)
    network = Network(weather=link, a=timed, b=timed)
    ours, _ = network.open()
    begun, seconds, arrived = network.now, 20.0, 0
    while network.now < begun + seconds:
        while ours.writable():
            ours.send(0, bytes(16_384))
        network.run(0.01)
        arrived += sum(len(message.data) for message in network.b.messages)
        network.b.messages.clear()
    # A window of four packets after the timeout, which grows by one in a round trip, gives two thirds.
    assert arrived > 0.8 * link.bandwidth * seconds


def test_a_long_pause_closes_the_window_again() -> None:
    network = Network()
    ours, _ = network.open()
    for _ in range(400):
        ours.send(0, bytes(1000))
    network.run_until(lambda: len(network.b.messages) == 400)
    wide = ours.paths.all[0].cwnd
    network.run(60.0)
    ours.send(0, b"x")
    network.run(0.5)
    assert ours.paths.all[0].cwnd < wide


def test_a_pause_halves_the_window_down_to_four_packets_and_slow_start_returns_to_where_it_was() -> None:
    idle = path()
    idle.rto = 1.0
    idle.cwnd = 100_000
    idle.last_sent = 10.0
    idle.decay_idle(10.5)
    assert idle.cwnd == 100_000
    idle.decay_idle(12.5)
    assert (idle.cwnd, idle.ssthresh) == (25_000, 100_000)
    # The same pause goes on: ``ssthresh`` is that of its beginning (RFC 9260, 7.2.1).
    idle.decay_idle(20.0)
    assert (idle.cwnd, idle.ssthresh) == (4 * 1200, 100_000)
    # A second pause, after data.
    idle.cwnd = 50_000
    idle.last_sent = 21.0
    idle.decay_idle(22.0)
    assert (idle.cwnd, idle.ssthresh) == (25_000, 50_000)


def test_a_pause_opens_no_window() -> None:
    new = path()
    initial, high = new.cwnd, new.ssthresh
    # Before the first data: the initial window (7.2.1) has no pause behind it.
    new.decay_idle(1000.0)
    assert (new.cwnd, new.ssthresh) == (initial, high)
    # After a timeout only one packet may be in flight until an acknowledgement comes.
    new.last_sent = 1000.0
    new.timed_out()
    slow = new.ssthresh
    new.decay_idle(2000.0)
    assert (new.cwnd, new.ssthresh) == (1200, slow)
