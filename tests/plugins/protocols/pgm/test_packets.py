"""Packets as bytes: captures of OpenPGM 5.3.128 (alone, and inside libzmq 4.3.4), tables of RFC 3208, and anything at all."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.pgm import extensions as ext
from plugins.protocols.pgm import packets
from plugins.protocols.pgm.checksum import checksum_of, is_intact, ones_sum, sealed
from plugins.protocols.pgm.extensions import (
    NONE,
    CongestionData,
    CongestionFeedback,
    Extensions,
    Fragment,
    MalformedPacket,
    ParityParameters,
    Reset,
)
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import (
    NAK,
    NCF,
    ODATA,
    RDATA,
    SPM,
    SPMR,
    Ack,
    Data,
    Packet,
    Request,
    SourcePath,
)
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
from tests.notes import for_each
from tests.seeds import many

LIBZMQ = bytes.fromhex("b7c6d1bc038a6498")
"""TSI of a libzmq that published over epgm."""
OPENPGM = bytes.fromhex("7f000001d9cea56b")
PATH = bytes((198, 18, 0, 1))
GROUP = bytes((239, 192, 1, 1))

CAPTURED: dict[str, tuple[bytes, Packet]] = {
    "SPM of an empty window": (
        bytes.fromhex("649815b300003292b7c6d1bc038a00000000000000000000ffffffff00010000c6120001"),
        SourcePath(kind=SPM, tsi=LIBZMQ, port=5555, number=0, trail=0, lead=0xFFFFFFFF, path=PATH),
    ),
    "ODATA": (
        bytes.fromhex("649815b304003890b7c6d1bc038a0068000000000000000000006500") + b"000000 " + b"x" * 93,
        Data(
            kind=ODATA,
            tsi=LIBZMQ,
            port=5555,
            number=0,
            trail=0,
            data=b"\0\0\x65\0" + b"000000 " + b"x" * 93,
        ),
    ),
    "NAK": (
        bytes.fromhex("15b36498080039ccb7c6d1bc038a00000000000300010000c612000100010000efc00101"),
        Request(kind=NAK, tsi=LIBZMQ, port=5555, numbers=(3,), source=PATH, group=GROUP),
    ),
    "NCF": (
        bytes.fromhex("649815b30a0037ccb7c6d1bc038a00000000000300010000c612000100010000efc00101"),
        Request(kind=NCF, tsi=LIBZMQ, port=5555, numbers=(3,), source=PATH, group=GROUP),
    ),
    "RDATA": (
        bytes.fromhex("649815b30500378ab7c6d1bc038a0068000000030000000000006500") + b"000003 " + b"x" * 93,
        Data(
            kind=RDATA,
            tsi=LIBZMQ,
            port=5555,
            number=3,
            trail=0,
            data=b"\0\0\x65\0" + b"000003 " + b"x" * 93,
        ),
    ),
    "the last fragment of three": (
        bytes.fromhex(
            "a56b1d4c040129be7f000001d9ce0080000000020000000000040014811000000000000000000b3800000bb8"
        )
        + b"x" * 128,
        Data(
            kind=ODATA,
            tsi=OPENPGM,
            port=7500,
            extensions=Extensions(fragment=Fragment(0, 2872, 3000)),
            number=2,
            trail=0,
            data=b"x" * 128,
        ),
    ),
    "SPM at the end": (
        bytes.fromhex(
            "a56b1d4c000190407f000001d9ce000000000009000000000000000800010000c6120001000400088e040000"
        ),
        SourcePath(
            kind=SPM,
            tsi=OPENPGM,
            port=7500,
            extensions=Extensions(fin=True),
            number=9,
            trail=0,
            lead=8,
            path=PATH,
        ),
    ),
}


@for_each("name", CAPTURED)
def test_what_openpgm_sends_is_understood(name: str) -> None:
    captured, meant = CAPTURED[name]
    assert packets.decode(captured) == meant


@for_each("name", CAPTURED)
def test_we_send_the_same_bytes(name: str) -> None:
    captured, meant = CAPTURED[name]
    assert packets.encode(meant) == captured


def test_what_openpgm_leaves_in_the_third_byte_of_an_option_means_nothing() -> None:
    captured, meant = CAPTURED["the last fragment of three"]
    garbage = sealed(captured[:6] + b"\0\0" + captured[8:30] + b"\xf0" + captured[31:])
    decoded = packets.decode(garbage)
    assert isinstance(decoded, Data)
    assert isinstance(meant, Data)
    assert (decoded.extensions.fragment, decoded.data) == (meant.extensions.fragment, meant.data)


OPTIONS = {  # name: (extensions, options byte, bytes), from the tables of RFC 3208, 9 and 11.8
    "nothing": (NONE, 0x00, ""),
    "fragment": (
        Extensions(fragment=Fragment(1, 2, 3)),
        0x01,
        "00040014 81100000 00000001 00000002 00000003",
    ),
    "NAK list": (Extensions(nak_list=(7, 9)), 0x03, "00040010 820c0000 00000007 00000009"),
    "join": (Extensions(join=0x10), 0x01, "0004000c 83080000 00000010"),
    "syn": (Extensions(syn=True), 0x01, "00040008 8d040000"),
    "fin": (Extensions(fin=True), 0x01, "00040008 8e040000"),
    "reset": (Extensions(reset=Reset(5, unanswered=True)), 0x01, "00040008 8f040045"),
    "parity": (Extensions(parity=ParityParameters(16, proactive=True)), 0x03, "0004000c 88080002 00000010"),
    "parity on demand": (
        Extensions(parity=ParityParameters(64, on_demand=True)),
        0x03,
        "0004000c 88080001 00000040",
    ),
    "parity group": (Extensions(parity_group=1), 0x01, "0004000c 89080000 00000001"),
    "group size": (Extensions(group_size=3), 0x01, "0004000c 8a080000 00000003"),
    "two of them": (Extensions(join=4, fin=True), 0x01, "00040010 03080000 00000004 8e040000"),
}


@for_each("name", OPTIONS)
def test_options_are_as_the_rfc_has_them(name: str) -> None:
    extensions, bits, text = OPTIONS[name]
    encoded = bytes.fromhex(text)
    assert ext.encode(extensions) == (encoded, bits)
    if encoded:
        assert ext.decode(b"head" + encoded + b"data", 4) == (extensions, 4 + len(encoded))


@for_each(
    "text",
    [
        "",
        "00",
        "01040008 8e040000",
        "00040020 8e040000",
        "00040008 0e040000",
        "00040008 8e030000",
        "00040008 8e080000",
        "0004000c 81080000 00000000",
        "0004000a 82060000 0000",
        "00040008 83040000",
        "00040048" + "0d040000" * 17,
    ],
)
def test_options_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(MalformedPacket):
        ext.decode(bytes.fromhex(text), 0)


def test_options_that_are_unknown_are_skipped() -> None:
    encoded = bytes.fromhex("00040014 10080000 01020304 77040000 8e040000".replace(" ", ""))
    assert ext.decode(encoded, 0)[0] == Extensions(fin=True)


# ---------------------------------------------------------------------- checksums


def _slow_checksum(packet: bytes) -> int:
    """Word by word, as RFC 1071 has it."""
    if len(packet) % 2:
        packet += b"\0"
    total = sum(int.from_bytes(packet[at : at + 2], "big") for at in range(0, len(packet), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF) or 0xFFFF


@given(st.binary(min_size=8, max_size=3000))
def test_the_checksum_is_that_of_rfc_1071(packet: bytes) -> None:
    packet = packet[:6] + b"\0\0" + packet[8:]
    assert checksum_of(ones_sum(packet)) == _slow_checksum(packet)
    assert is_intact(sealed(packet))


@given(st.binary(min_size=16, max_size=200), st.integers(0), st.integers(1, 0xFFFE))
def test_one_changed_word_is_always_found(packet: bytes, at: int, change: int) -> None:
    whole = bytearray(sealed(packet))
    at = at % (len(whole) // 2) * 2
    word = int.from_bytes(whole[at : at + 2], "big")
    whole[at : at + 2] = ((word + change) % 0x10000).to_bytes(2, "big")
    if (word + change) % 0xFFFF != word % 0xFFFF:
        assert not is_intact(bytes(whole))


# ---------------------------------------------------------------------- any packet, and no packet

_numbers = st.integers(0, 0xFFFFFFFF)
_addresses = st.sampled_from((PATH, bytes(range(16))))
_extensions = st.builds(
    Extensions,
    fragment=st.none() | st.builds(Fragment, _numbers, _numbers, _numbers),
    nak_list=st.lists(_numbers, max_size=62).map(tuple),
    join=st.none() | _numbers,
    syn=st.booleans(),
    fin=st.booleans(),
    reset=st.none() | st.builds(Reset, st.integers(0, 63), st.booleans()),
    parity=st.none() | st.builds(ParityParameters, _numbers, st.booleans(), st.booleans()),
    group_size=st.none() | _numbers,
)
_common: dict[str, Any] = {"tsi": st.binary(min_size=8, max_size=8), "port": st.integers(0, 0xFFFF)}
PACKETS = st.one_of(
    st.builds(
        SourcePath,
        kind=st.just(SPM),
        number=_numbers,
        trail=_numbers,
        lead=_numbers,
        path=_addresses,
        extensions=_extensions,
        **_common,
    ),
    st.builds(
        Data,
        kind=st.sampled_from((ODATA, RDATA)),
        number=_numbers,
        trail=_numbers,
        data=st.binary(max_size=300),
        parity=st.booleans(),
        variable=st.booleans(),
        extensions=_extensions,
        **_common,
    ),
    st.builds(
        Request,
        kind=st.sampled_from((NAK, packets.NNAK, NCF)),
        numbers=st.lists(_numbers, min_size=1, max_size=63).map(tuple),
        source=_addresses,
        group=_addresses,
        parity=st.booleans(),
        **_common,
    ),
    st.builds(Packet, kind=st.just(SPMR), **_common),
)


@given(PACKETS)
def test_every_packet_is_read_as_it_was_written(packet: Packet) -> None:
    encoded = packets.encode(packet)
    decoded = packets.decode(encoded)
    if isinstance(packet, Request):  # its list is in the numbers, and once more in the extensions
        assert isinstance(decoded, Request)
        assert (decoded.numbers, decoded.parity, decoded.tsi) == (packet.numbers, packet.parity, packet.tsi)
    else:
        assert decoded == packet
    assert packets.tsi_of(encoded) == packet.tsi


def _with_congestion_control() -> list[bytes]:
    """Data that somebody is to acknowledge, and an acknowledgement."""
    common = {"tsi": LIBZMQ, "port": 5555}
    told = Extensions(feedback=CongestionFeedback(7, 0.5, PATH))
    asked = Extensions(congestion=CongestionData(7, PATH))
    return [
        packets.encode(Ack(kind=packets.ACK, extensions=told, highest=3, bitmap=7, **common)),
        packets.encode(Data(kind=ODATA, extensions=asked, number=3, trail=0, data=b"data", **common)),
    ]


def _with_parity() -> list[bytes]:
    """What a source with parity sends, fragments among it."""
    options = SourceOptions(parity_group=4, parity_packets=2, parity_on_demand=True)
    source = Source(options, OPENPGM, 5555, PATH, GROUP, packet_size=120)
    source.send([b"x" * 30, b"y" * 200, b"z"] * 2)
    return source.packets_to_send(1.0)


@pytest.mark.parametrize("seed", many(0, 20))
def test_damaged_packets_are_counted_and_nothing_else(seed: int) -> None:
    """Both ends take anything at all: bytes cut off, added, changed, with a checksum that fits and without."""
    chance = random.Random(seed)
    receiver = Receiver(ReceiverOptions(max_sources=10, window_packets=500), 5555, GROUP, seed, PATH)
    source = Source(SourceOptions(congestion_control=seed % 2 == 0), LIBZMQ, 5555, PATH, GROUP)
    source.send([b"data"] * 10)
    source.packets_to_send(1.0)
    good = [captured for captured, _ in CAPTURED.values()]
    good += _with_parity()
    good += [packets.encode(Packet(kind=SPMR, tsi=LIBZMQ, port=5555)), *_with_congestion_control()]
    for turn in range(500):
        packet = bytearray(chance.choice(good))
        for _ in range(chance.randrange(4)):
            packet[chance.randrange(len(packet))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        cut = bytes(packet[: chance.choice((len(packet), chance.randrange(len(packet) + 1)))])
        cut += chance.randbytes(chance.choice((0, 0, 7)))
        damaged = sealed(cut[:6] + b"\0\0" + cut[8:]) if chance.random() < 0.8 and len(cut) > 8 else cut
        now = 1.0 + turn / 100
        receiver.receive([damaged], now, "somewhere")
        source.receive(damaged, now)
        receiver.take()
        receiver.packets_to_send(now)
        source.packets_to_send(now)
    assert receiver.statistics.packets_in == 500
    assert 0 < receiver.statistics.malformed < 500
    assert len(receiver.sessions) <= 10


@given(st.binary(max_size=100))
def test_anything_is_a_packet_or_malformed(anything: bytes) -> None:
    try:
        packets.decode(anything)
    except MalformedPacket:
        pass
