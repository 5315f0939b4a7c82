"""How a receiver asks for what it misses: after a long pause, where packets overtake each other, with a slow source."""

from __future__ import annotations

import time

import pytest

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.events import What
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import Request
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
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
