"""Everything at once, for many seeds: two paths that are cut and restored at random, losses, both ways, resets, things given up."""

from __future__ import annotations

import msgspec
import pytest

from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.schedule import Terms
from tests.plugins.protocols.sctp.network import QUICK, Network, Side, Weather
from tests.seeds import many

OPTIONS = msgspec.structs.replace(
    QUICK, heartbeat=0.5, path_tries=2, association_tries=1000, rto_max=2.0, receive_window=100_000
)
STREAMS = 4


def numbers(side: Side, stream: int) -> list[int]:
    return [int.from_bytes(message.data[:4], "big") for message in side.messages if message.stream == stream]


def ordeal(seed: int) -> None:
    """Stream 0 gives things up, stream 1 is unordered, stream 2 is reset now and then, stream 3 is plain."""
    options = msgspec.structs.replace(OPTIONS, interleaving=bool(seed % 2))
    weather = Weather(loss=0.08, duplication=0.05, reordering=0.2)
    network = Network(seed, weather, a=options, b=options, paths=2)
    sides = (network.a, network.b)
    associations = network.open()
    count = 40
    for number in range(count):
        for association in associations:
            for stream in range(STREAMS):
                data = number.to_bytes(4, "big") * network.chance.choice((1, 30, 1000))
                terms = (Terms(retransmissions=1), Terms(unordered=True), Terms(), Terms())[stream]
                association.send(stream, data, terms=terms)
            if not association.sender.paused and network.chance.random() < 0.1:
                association.reset_streams(2)
        network.cut[network.chance.randrange(2)] = network.chance.random() < 0.4
        for side in sides:
            side.takes = network.chance.random() < 0.8
        network.run(network.chance.random() * 0.5)
    network.cut = [False, False]
    network.a.takes = network.b.takes = True
    network.run_until(lambda: all(association.sender.is_empty() for association in associations))
    network.run(1.0)
    for side, association in zip(sides, associations, strict=True):
        assert numbers(side, 2) == numbers(side, 3) == list(range(count))
        assert sorted(numbers(side, 1)) == list(range(count))
        assert numbers(side, 0) == sorted(set(numbers(side, 0)))
        assert association.sender.buffered() == association.sender.outstanding.flight == 0
        assert all(path.flight == 0 for path in association.paths.all)
        assert association.receiver.window() == options.receive_window
        assert side.told(What.LOST) == []
    associations[0].close(network.now)
    network.run_until(lambda: bool(network.a.told(What.CLOSED)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", many(0, 40))
def test_an_ordeal(seed: int) -> None:
    ordeal(seed)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_hundreds_of_ordeals() -> None:
    for seed in many(1000, 100):
        ordeal(seed)
