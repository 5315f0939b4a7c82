"""How large packets may be: found out on each path, and noticed when it is not so any more; and how many go at once."""

from __future__ import annotations

import msgspec
import pytest

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Listed, Plain, Type
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.probing import is_probe
from tests.plugins.protocols.sctp.network import QUICK, Network, Weather

LARGE = msgspec.structs.replace(QUICK, packet_size_max=65487)


@pytest.mark.parametrize(
    "mtu, found", [(1200, 1200), (1452, 1452), (1472, 1452), (8000, 4304), (9000, 8952), (65535, 65484)]
)
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_the_largest_size_that_passes_is_found(mtu: int, found: int, loss: float) -> None:
    network = Network(3, Weather(loss=loss), a=LARGE)
    network.mtu = [mtu]
    ours, theirs = network.open()
    network.run(60.0)
    assert ours.paths.all[0].probing.size == found
    assert theirs.paths.all[0].probing.size == theirs.options.packet_size == 1200
    assert ours.paths.all[0].errors == 0
    largest = 0

    def measure(packet: bytes) -> bytes:
        nonlocal largest
        largest = max(largest, len(packet))
        return packet

    network.spoil = measure
    network.fragments = False
    ours.send_many(0, [bytes(1000)] * 300)
    ours.send(1, bytes(200_000))
    network.run_until(lambda: len(network.b.messages) == 301, most=60)
    assert found - 1100 < largest <= found


def test_without_the_option_nothing_is_probed() -> None:
    network = Network()
    ours, _ = network.open()
    network.run(5.0)
    assert ours.paths.all[0].probing.due is None
    assert ours.paths.all[0].probing.size == QUICK.packet_size


def test_a_path_that_has_become_narrow_gets_small_packets_again_and_larger_ones_when_it_is_wide() -> None:
    network = Network(a=LARGE)
    ours, _ = network.open()
    network.run(5.0)
    network.mtu, network.fragments = [1400], False
    ours.send_many(0, [bytes(500)] * 500)
    network.run_until(lambda: len(network.b.messages) == 500, most=60)
    assert ours.paths.all[0].probing.size == 1200
    network.mtu = [9000]
    network.run(700.0)
    assert ours.paths.all[0].probing.size == 8952


def test_packets_stay_large_while_the_peer_takes_nothing() -> None:
    network = Network(a=LARGE)
    ours, theirs = network.open()
    network.run(5.0)
    network.b.takes = False
    large = ours.paths.all[0].probing.size
    ours.send_many(0, [bytes(10_000)] * 200)
    network.run(120.0)
    assert ours.paths.all[0].probing.size == large
    network.b.takes = True
    network.run_until(lambda: len(network.b.messages) == 200, most=60)
    assert theirs.receiver.dropped > 2


def test_a_chunk_that_is_too_large_by_now_is_left_to_ip() -> None:
    network = Network(a=LARGE)
    ours, _ = network.open()
    network.run(5.0)
    network.cut = [True]
    ours.send(0, bytes(60_000))
    network.run(3.0)
    assert ours.paths.all[0].probing.size == 1200
    network.mtu, network.cut = [1400], [False]
    network.run_until(lambda: len(network.b.messages) == 1, most=60)


def test_a_piece_is_never_larger_than_any_path_takes() -> None:
    network = Network(a=LARGE, b=msgspec.structs.replace(QUICK, heartbeat=1.0), paths=2)
    network.mtu = [9000, 1452]
    ours, _ = network.open()
    network.run(30.0)
    assert [path.probing.size for path in ours.paths.all] == [8952, 1452]
    ours.send(0, bytes(20_000))
    sent = network.a.endpoint.data_to_send(network.now)
    assert max(len(packet) for _, packet in sent) > 2000
    sizes = [chunk.data for _, packet in sent for chunk in packets.decode(packet).chunks]
    assert max(map(len, sizes)) == 1452 - 12 - 20


def test_probes_are_told_from_other_packets() -> None:
    heartbeat = chunks.encode(Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, b"1"),)))
    pad = chunks.encode(Plain(Type.PAD, bytes(100)))
    assert is_probe(packets.encode(1, 2, 3, [heartbeat, pad]))
    assert not is_probe(packets.encode(1, 2, 3, [heartbeat]))
    assert not is_probe(packets.encode(1, 2, 3, [chunks.encode(Plain(Type.COOKIE_ACK))]))
    assert not is_probe(packets.encode(1, 2, 3, []))


@pytest.mark.parametrize("burst", [1, 4, 32])
def test_no_more_packets_go_at_once_than_the_limit_and_all_go_in_the_end(burst: int) -> None:
    network = Network(a=msgspec.structs.replace(QUICK, burst=burst))
    ours, _ = network.open()
    ours.paths.all[0].cwnd = 1 << 20
    ours.send_many(0, [bytes(1100)] * 100)
    assert len(network.a.endpoint.data_to_send(network.now)) == burst
    network.run_until(lambda: len(network.b.messages) == 100, most=60)
