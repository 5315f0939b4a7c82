"""Frames: what is written is read, in whatever pieces; anything else is the peer's fault and nothing worse."""

from __future__ import annotations

import random

import pytest

from kernel.contracts.errors import RemoteProtocolError
from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import NO_FEED, Deframer, Kind
from plugins.protocols.switchover.options import SwitchoverOptions
from plugins.protocols.switchover.receiving import ReceivingSide
from plugins.protocols.switchover.sending import SendingSide
from tests.notes import for_each
from tests.seeds import many

FEED, TSI, GROUP = b"feed-one", b"12345678", "epgm://239.192.1.1:5555"

GOLDEN = {
    "HELLO": (
        frames.hello(FEED, 5, 3),
        "01 00000019 01 666565642d6f6e65 0000000000000005 0000000000000003",
    ),
    "WELCOME": (frames.welcome(FEED, 5), "02 00000010 666565642d6f6e65 0000000000000005"),
    "UNIT": (frames.unit_header(7, 2) + b"ab", "03 0000000a 0000000000000007 6162"),
    "PREPARE": (
        frames.prepare(TSI, GROUP),
        "04 0000001f 3132333435363738 6570676d3a2f2f3233392e3139322e312e313a35353535",
    ),
    "READY": (frames.ready(), "05 00000000"),
    "MULTICAST": (frames.numbered(Kind.MULTICAST, 9), "06 00000008 0000000000000009"),
    "UNICAST": (frames.numbered(Kind.UNICAST, 9), "07 00000008 0000000000000009"),
    "MISSING": (frames.numbered(Kind.MISSING, 9), "08 00000008 0000000000000009"),
    "ACK": (frames.ack(9, 4), "09 00000010 0000000000000009 0000000000000004"),
}


@for_each("name", GOLDEN)
def test_the_bytes_stay_what_they_are(name: str) -> None:
    written, expected = GOLDEN[name]
    assert written == bytes.fromhex(expected)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_frames_are_read_in_whatever_pieces_they_come(piece: int) -> None:
    stream = b"".join(written for written, _ in GOLDEN.values())
    deframer = Deframer(100)
    got = [
        kind.name
        for at in range(0, len(stream), piece)
        for kind, _ in deframer.frames(stream[at : at + piece])
    ]
    assert got == list(GOLDEN)


@pytest.mark.parametrize(
    "data, complaint",
    [
        (b"\x0a\0\0\0\0", "unknown type 10"),
        (b"\x03\0\0\0\x07", "without a number"),
        (b"\x03\0\0\x01\0", "UNIT of 256 bytes; at most 108 are allowed"),
        (b"\x04\0\0\x08\0", "PREPARE of 2048 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_waited_for(data: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        list(Deframer(100).frames(data))


@pytest.mark.parametrize("seed", many(0, 50))
def test_nothing_that_a_peer_says_raises_anything_but_its_fault(seed: int) -> None:
    chance = random.Random(seed)
    sender = SendingSide(SwitchoverOptions(multicast_from=1), FEED, TSI, GROUP)
    good = [written for written, _ in GOLDEN.values()] + [frames.hello(NO_FEED, 0, 0)] * 5
    for turn in range(60):
        link = sender.connected(f"peer-{turn}", float(turn))
        receiver = ReceivingSide(1000, 1 << 20)
        receiver.connected()
        try:
            for _ in range(20):
                frame = bytearray(chance.choice(good))
                if chance.random() < 0.3:
                    frame[chance.randrange(len(frame))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
                if chance.random() < 0.5:
                    receiver.receive(bytes(frame), float(turn))
                else:
                    sender.receive(link, bytes(frame), float(turn))
                if sender.has_room:
                    sender.send([b"unit"], 1, float(turn))
        except RemoteProtocolError:
            if chance.random() < 0.8:
                sender.disconnected(link, float(turn))
        sender.handle_timeout(float(turn))
        receiver.receive_group([None, b"", chance.randbytes(12)], float(turn))
        receiver.data_to_send(float(turn) + 1)
