"""How a receiver asks for what it misses: after a long pause, where packets overtake each other, with a slow source."""

from __future__ import annotations

import time

import pytest

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import NAK, ODATA, Request
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.request_delay import RequestDelay
from plugins.protocols.pgm.source import Source
from tests.notes import for_each
from tests.plugins.protocols.pgm.network import GROUP, PATH, PORT, TSI, Network, Weather


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def longest_turn(missed: int) -> float:
    """Let a receiver miss so many packets; return the processor time of its longest turn while it asks for them."""
    source = Source(SourceOptions(rate=1_000_000_000, window_seconds=1000), TSI, PORT, PATH, GROUP)
    receiver = Receiver(ReceiverOptions(), PORT, GROUP, 1)
    now = 100.0
    source.send([b"first"])
    receiver.receive(source.packets_to_send(now), now)
    source.send([b"missed"] * missed)
    while source.queued:
        source.packets_to_send(now)
        now += 0.01
    longest, asked = 0.0, 0
    while asked < missed:
        now += 0.001
        source.send([b"new"])
        arrived = source.packets_to_send(now)
        start = time.process_time()
        receiver.receive(arrived, now)
        out = receiver.packets_to_send(now)
        receiver.next_deadline()
        # The turn that finds the packets missing is not compared: it has to note each.
        if asked:
            longest = max(longest, time.process_time() - start)
        for _, packet in out:
            nak = packets.decode(packet)
            asked += len(nak.numbers) if isinstance(nak, Request) else 0
    return longest


@pytest.mark.slow
def test_a_turn_takes_the_same_time_however_much_is_missing() -> None:
    """A turn that takes longer than the socket's buffer lasts loses more, and the receiver never catches up."""
    few, many = (min(longest_turn(missed) for _ in range(3)) for missed in (12_000, 60_000))
    # It was a hundred times as much, when each turn took all that was missing.
    assert many < 5 * few


def test_what_one_source_lost_keeps_nobody_from_asking_another() -> None:
    receiver = Receiver(ReceiverOptions(max_naks=20), PORT, GROUP, 1)
    now, asked_at = 100.0, {}
    tsis = [TSI, TSI[:6] + b"\1\1"]
    sources = [Source(SourceOptions(rate=1_000_000_000), tsi, PORT, PATH, GROUP) for tsi in tsis]
    for source, missed in zip(sources, (30_000, 1), strict=True):
        source.send([b"first"])
        receiver.receive(source.packets_to_send(now), now, source.tsi)
        source.send([b"missed"] * missed)
        while source.queued:
            source.packets_to_send(now)
            now += 0.001
        source.send([b"last"])
        receiver.receive(source.packets_to_send(now), now, source.tsi)
    begun = now
    while len(asked_at) < 2:
        for _, packet in receiver.packets_to_send(now):
            asked_at.setdefault(packets.tsi_of(packet), now)
        now += 0.01
    # The first has requests for 24 seconds.
    assert asked_at[tsis[1]] < begun + 1.0


@pytest.mark.slow
def test_a_receiver_that_was_away_gets_all_that_the_source_still_has() -> None:
    network = Network(source=SourceOptions(window_seconds=5), weather=Weather(loss=0.01))
    network.run(0.5)
    listener = network.listeners[0]
    sent = bodies(12_000)
    for at in range(0, len(sent), 10):
        listener.alive = not 1000 <= at < 9000
        network.send(sent[at : at + 10])
        network.run(0.01)
    network.run(30)
    there = [unit for unit in listener.units if unit is not None]
    lost = 0
    for event in listener.told(What.LOST):
        assert event.first is not None
        assert event.last is not None
        lost += event.last - event.first + 1
    assert len(there) + lost == len(sent)
    # 3,000 packets were lost before the receiver was back, and some while it asked for the others.
    assert lost < 4500
    assert there[-2000:] == sent[-2000:]


def test_packets_that_overtake_each_other_are_not_asked_for() -> None:
    """Each packet takes up to 20 ms longer than others, and one is sent each millisecond."""
    network = Network(weather=Weather(delay=0.01, jitter=0.02))
    network.run(0.5)
    sent = bodies(3000)
    for body in sent:
        network.send([body])
        network.run(0.001)
    network.run(1)
    assert network.listeners[0].units == sent
    assert network.source.statistics.repairs < len(sent) // 50


def test_losses_are_asked_for_soon_again_when_packets_no_longer_overtake_each_other() -> None:
    network = Network(weather=Weather(delay=0.01, jitter=0.02))
    network.run(0.5)
    for body in bodies(500):
        network.send([body])
        network.run(0.001)
    listener = network.listeners[0]
    listener.weather = Weather(delay=0.001, loss=0.05)
    for body in bodies(2000):
        network.send([body])
        network.run(0.001)
    network.run(1)
    late = [float(event.detail.split()[1]) for event in listener.told(What.RECOVERED)][-20:]
    assert sorted(late)[10] < 20, late


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.002, 0.02])
def test_what_fifty_receivers_miss_is_repaired_once(delay: float) -> None:
    network = Network(
        receivers=50,
        weather=Weather(delay=delay, jitter=delay / 20),
        drop=lambda packet: packet[4] == ODATA and packet[19] % 10 == 9,
    )
    network.run(0.5)
    rounds, asked = 40, 0
    for number in range(rounds):
        if number == rounds // 2:
            asked = sum(packet[4] == NAK for packet in network.upstream)
        network.send([b"%d" % (10 * number + at) for at in range(10)])
        network.run(0.05)
    network.run(3)
    assert all(listener.units == bodies(10 * rounds) for listener in network.listeners)
    # A request that has crossed the repair causes no second one. The delay is not known at first.
    assert network.source.statistics.repairs <= 1.5 * rounds
    # The back-off has to become longer first; then a quarter of the receivers asks at most.
    asked = sum(packet[4] == NAK for packet in network.upstream) - asked
    assert asked <= rounds // 2 * 50 / 4


@for_each("number, delay", [(10, 0.002), (9, 0.3), (8, 0.3), (7, 0.35), (3, 0.4), (2, 0.002)])
def test_the_delay_of_requests_counts_from_the_packet_that_shows_the_loss(number: int, delay: float) -> None:
    under_test = RequestDelay(0.002)
    # Batches that end with 3, 7, 8 and 10. Nothing has shown that 10 is missing, and what came before the first
    # batch is not known.
    under_test.sent.extend([(3, 1.0), (7, 1.1), (8, 1.15), (10, 1.2)])
    assert under_test.measured(number, 1.5) == pytest.approx(delay)


def test_a_slow_source_is_waited_for_while_it_confirms_and_has_the_packets() -> None:
    """Repairs have a hundredth of the rate, so that they take half a minute."""
    slow = SourceOptions(rate=400_000, repair_share=0.01, window_seconds=300)
    network = Network(source=slow, weather=Weather(delay=0.001))
    network.run(1)
    lost = {number.to_bytes(4, "big") for number in range(10, 90)}
    network.drop = lambda packet: packet[4] == ODATA and packet[16:20] in lost
    sent = [b"x" * 1200 + body for body in bodies(100)]
    network.send(sent)
    begun = network.now
    network.run_until(lambda: len(network.listeners[0].units) >= 20, 100)
    network.run_until(lambda: len(network.listeners[0].units) >= 100, 100)
    assert network.now - begun > 15
    assert network.listeners[0].units == sent
