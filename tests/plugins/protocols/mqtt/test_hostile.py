"""Hostile bytes: whatever comes, the parser returns packets or raises ``PacketFault``, and takes linear time."""

from __future__ import annotations

import random

import pytest

from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.errors import PacketFault
from plugins.protocols.mqtt.packets import Connack, Connect, Packet
from tests.plugins.protocols.mqtt.conversation import fresh, opened, plain, publish
from tests.plugins.protocols.mqtt.golden import EXAMPLES, LONGER
from tests.plugins.protocols.mqtt.test_faults import FAULTS
from tests.seeds import in_groups, many
from tests.steps import lines

ALL = [example.data for example in EXAMPLES + LONGER] + [fault.data for fault in FAULTS.values()]


def mutated(chance: random.Random) -> bytes:
    """Return the bytes of some packets, with a few changes."""
    data = bytearray(b"".join(chance.choices(ALL, k=chance.randint(1, 4))))
    if chance.random() < 0.5:
        data = bytearray(chance.choice(ALL) * chance.randint(2, 40))
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at : at + chance.randint(1, 5)]
            case 3:
                data[at:at] = chance.randbytes(chance.randint(1, 5))
            case 4:
                data[at:at] = chance.choice(ALL)[: chance.randint(1, 20)]
        if not data:
            break
    return bytes(data)


def _read(data: bytes, cuts: list[int], side: Side, version: int, first: bool) -> tuple[list[Packet], str]:
    make = fresh if first else opened
    parser = make(side, version, topic_alias_maximum=10, max_packet_bytes=5000)
    found: list[Packet] = []
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            found += parser.receive_data(data[start:stop])
    except PacketFault as fault:
        return found + list(fault.packets), f"{fault.reason_code}: {fault}"
    return found, ""


@pytest.mark.parametrize("group", in_groups(many(0, 3000), 500))
def test_mutated_packets(group: range) -> None:
    """The same packets and the same fault come out in whatever chunks the bytes come."""
    for seed in group:
        chance = random.Random(seed)
        data = mutated(chance)
        cuts = sorted(chance.sample(range(len(data) + 1), min(3, len(data))))
        side: Side = chance.choice(["server", "client"])
        version = chance.choice([4, 5])
        first = chance.random() < 0.3
        whole = _read(data, [], side, version, first)
        pieces = _read(data, cuts, side, version, first)
        assert plain(whole[0]) == plain(pieces[0]), seed
        assert whole[1] == pieces[1], seed
        # What was read can be written, and read again.
        _written_again(whole[0], side, version, first)


def _written_again(packets: list[Packet], side: Side, version: int, first: bool) -> None:
    for packet in packets:
        if isinstance(packet, Connect):
            version = packet.version
    octets = b"".join([encode(packet, version) for packet in packets])
    parser = (fresh if first else opened)(side, version, topic_alias_maximum=10)
    assert plain(parser.receive_data(octets)) == plain(packets)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("step", [1, 3])
def test_a_large_packet_in_small_pieces_takes_linear_time(version: int, step: int) -> None:
    """Lines of Python that are run, not seconds: four times the bytes take four times the lines."""
    counts = []
    for size in (5_000, 20_000):
        octets = encode(publish("a", bytes(size)), version)
        parser = opened("server", version)
        pieces = [octets[at : at + step] for at in range(0, len(octets), step)]
        counts.append(lines(lambda: [parser.receive_data(piece) for piece in pieces]) / size)  # noqa: B023
    assert counts[1] < counts[0] * 1.1
    # And none of it is in joining: what has come is kept in one buffer.
    parser = opened("server", version)
    rest = parser.rest
    for piece in pieces[:-1]:
        parser.receive_data(piece)
    assert parser.rest is rest
    assert len(rest) == len(b"".join(pieces[:-1]))


def test_many_properties_take_linear_time() -> None:
    counts = []
    for count in (200, 800):
        block = b"\x26\0\1a\0\1b" * count
        length = bytes((len(block) & 0x7F | 0x80, len(block) >> 7))
        body = b"\0\1a" + length + block
        octets = b"\x30" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7)) + body
        parser = opened("server", 5)
        counts.append(lines(lambda: parser.receive_data(octets)) / count)  # noqa: B023
    assert counts[1] < counts[0] * 1.1


def test_short_runs_of_acknowledgements_take_linear_time() -> None:
    """A run that ends soon is found with few comparisons, however much follows it."""
    counts = []
    for count in (100, 400):
        octets = (b"\x40\2\0\1" * 2 + b"\x50\2\0\1") * count
        parser = opened("server", 5)
        counts.append(lines(lambda: parser.receive_data(octets)) / count)  # noqa: B023
    assert counts[1] < counts[0] * 1.1


def test_the_mutations_let_packets_of_many_kinds_through() -> None:
    """Otherwise they would test only the first byte."""
    packets = 0
    kinds = set()
    for seed in range(300):
        chance = random.Random(seed)
        found, _ = _read(mutated(chance), [], "server", chance.choice([4, 5]), False)
        packets += len(plain(found))
        kinds |= {packet.kind for packet in found}
    assert packets > 100
    assert len(kinds) >= 6
    assert Connack.kind not in kinds
