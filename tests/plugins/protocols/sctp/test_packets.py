"""Packets and chunks: the RFCs' tables as bytes, an encoder of others, and bytes that are none."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.protocols.sctp import checksum, chunks, packets, parameters
from plugins.protocols.sctp.chunks import Data, Forward, Init, Listed, Plain, Sack, Shutdown, Type
from plugins.protocols.sctp.errors import MalformedPacket
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.sequence import MASK16, unwrapped
from tests.notes import for_each
from tests.peers import optional

scapy_sctp = optional("scapy.layers.sctp")


GOLDEN = {
    # RFC 9260, 3.3.1: type, flags (I, U, B, E), length 16 + n, TSN, stream, SSN, protocol, data, padding.
    "data": (
        Data(tsn=0x01020304, stream=5, number=6, flags=0x0F, protocol=7, data=b"abcde"),
        "00 0f 0015 01020304 0005 0006 00000007 6162636465 000000",
    ),
    # 3.3.2, with RFC 3758's parameter (49152, length 4) and RFC 5061's list of extensions (0x8008).
    "init": (
        Init(
            is_ack=False,
            tag=0xAABBCCDD,
            window=65536,
            outbound=10,
            inbound=20,
            tsn=1,
            parameters=(Parameter(0xC000), Parameter(0x8008, b"\xc0\x82\x40")),
        ),
        "01 00 001f aabbccdd 00010000 000a 0014 00000001 c000 0004 8008 0007 c08240 00",
    ),
    "init ack": (
        Init(
            is_ack=True,
            tag=1,
            window=2,
            outbound=3,
            inbound=4,
            tsn=5,
            parameters=(Parameter(Kind.STATE_COOKIE, b"cookie!"), Parameter(Kind.IPV4, b"\x7f\0\0\1")),
        ),
        "02 00 0028 00000001 00000002 0003 0004 00000005 0007 000b 636f6f6b696521 00 0005 0008 7f000001",
    ),
    # 3.3.4: the example's gaps 2-3 and 5-5 after 12.
    "sack": (
        Sack(cumulative=12, window=4660, gaps=((2, 3), (5, 5)), duplicates=(9,)),
        "03 00 001c 0000000c 00001234 0002 0001 0002 0003 0005 0005 00000009",
    ),
    "heartbeat": (
        Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, b"12345"),)),
        "04 00 000d 0001 0009 3132333435 000000",
    ),
    "abort": (Listed(Type.ABORT, (Parameter(12, b"no"),), 1), "06 01 000a 000c 0006 6e6f 0000"),
    "shutdown": (Shutdown(0x0A0B0C0D), "07 00 0008 0a0b0c0d"),
    "shutdown ack": (Plain(Type.SHUTDOWN_ACK), "08 00 0004"),
    # 3.3.10.1: invalid stream identifier 2, and two bytes reserved.
    "error": (Listed(Type.ERROR, (Parameter(1, b"\0\2\0\0"),)), "09 00 000c 0001 0008 0002 0000"),
    "cookie echo": (Plain(Type.COOKIE_ECHO, b"cookie"), "0a 00 000a 636f6f6b6965 0000"),
    "cookie ack": (Plain(Type.COOKIE_ACK), "0b 00 0004"),
    "shutdown complete": (Plain(Type.SHUTDOWN_COMPLETE, b"", 1), "0e 01 0004"),
    # RFC 8260, 2.1: the first fragment has the protocol where the others have their number.
    "i-data, first": (
        Data(tsn=1, stream=2, number=3, flags=0x02, protocol=4, data=b"x", interleaved=True),
        "40 02 0015 00000001 0002 0000 00000003 00000004 78 000000",
    ),
    "i-data, later": (
        Data(tsn=2, stream=2, number=3, flags=0x01, fsn=1, data=b"y", interleaved=True),
        "40 01 0015 00000002 0002 0000 00000003 00000001 79 000000",
    ),
    "forward-tsn": (
        Forward(cumulative=16, skipped=((1, 2, False), (3, 4, False))),
        "c0 00 0010 00000010 0001 0002 0003 0004",
    ),
    "i-forward-tsn": (
        Forward(cumulative=16, skipped=((1, 2, True),), interleaved=True),
        "c2 00 0010 00000010 0001 0001 00000002",
    ),
    # RFC 6525, 3.1: an outgoing reset of stream 6, request 1, response 2, last TSN 3.
    "re-config": (
        Listed(Type.RE_CONFIG, (Parameter(13, bytes.fromhex("000000010000000200000003") + b"\0\6"),)),
        "82 00 0016 000d 0012 00000001 00000002 00000003 0006 0000",
    ),
    "pad": (Plain(Type.PAD, b"\0\0\0\0"), "84 00 0008 00000000"),
}


@for_each("name", GOLDEN)
def test_chunks_have_the_bytes_of_the_rfcs_both_ways(name: str) -> None:
    chunk, written = GOLDEN[name]
    golden = bytes.fromhex(written)
    assert chunks.encode(chunk) == golden
    packet = packets.decode(packets.encode(1, 2, 3, [golden]))
    assert packet.chunks == (chunk,)


def test_crc32c_of_the_check_string() -> None:
    assert checksum.extended_in_python(0, b"123456789") == 0xE3069283
    assert checksum.crc32c(b"123456789") == 0xE3069283
    assert checksum.extended_in_python(0, bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert checksum.extended_in_python(0, b"\xff" * 32) == 0x62A8AB43


@given(st.binary(max_size=100))
def test_the_two_crc32c_agree(data: bytes) -> None:
    assert checksum.extended_in_python(0, data) == checksum.crc32c(data)


def test_without_the_library_python_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert checksum._best() is checksum.extended_in_python


def _built_by_scapy() -> dict[str, Any]:
    s = scapy_sctp
    return {
        "data": s.SCTPChunkData(
            tsn=9, stream_id=1, stream_seq=2, proto_id=3, data=b"hello", beginning=1, ending=1
        ),
        "init": s.SCTPChunkInit(init_tag=1, a_rwnd=2, n_out_streams=3, n_in_streams=4, init_tsn=5),
        "sack": s.SCTPChunkSACK(cumul_tsn_ack=1, a_rwnd=2, gap_ack_list=["2:3"], dup_tsn_list=[7]),
        "shutdown": s.SCTPChunkShutdown(cumul_tsn_ack=8),
        "cookie echo": s.SCTPChunkCookieEcho(cookie=b"abcdef"),
        "cookie ack": s.SCTPChunkCookieAck(),
    }


@pytest.mark.peer("scapy")
@pytest.mark.parametrize("name", ["data", "init", "sack", "shutdown", "cookie echo", "cookie ack"])
def test_what_scapy_builds_is_read_and_written_the_same(name: str) -> None:
    theirs = bytes(scapy_sctp.SCTP(sport=5, dport=6, tag=7) / _built_by_scapy()[name])
    packet = packets.decode(theirs)
    assert (packet.source, packet.destination, packet.tag) == (5, 6, 7)
    assert packets.encode(5, 6, 7, [chunks.encode(packet.chunks[0])]) == theirs


@pytest.mark.peer("scapy")
def test_scapy_reads_what_we_write() -> None:
    ours = packets.encode(5, 6, 7, [chunks.encode(GOLDEN["data"][0]), chunks.encode(GOLDEN["sack"][0])])
    theirs = scapy_sctp.SCTP(ours)
    data = theirs[scapy_sctp.SCTPChunkData]
    assert (data.tsn, data.stream_id, data.stream_seq, data.proto_id, bytes(data.data)) == (
        0x01020304,
        5,
        6,
        7,
        b"abcde",
    )
    sack = theirs[scapy_sctp.SCTPChunkSACK]
    assert (sack.cumul_tsn_ack, sack.gap_ack_list, sack.dup_tsn_list) == (12, ["2:3", "5:5"], [9])


@for_each(
    "body, complaint",
    [
        ("", "at least"),
        ("00 03 0003", "chunk 0 of 3"),
        ("00 03 0020 00000001", "chunk 0 of 32"),
        ("00 03 000c 00000001 00000001", "DATA of 12"),
        ("0b 00 0004 0b", "where a chunk"),
        ("03 00 0010 00000001 00000001 0001 0000", "SACK"),
        ("01 00 0014 00000001 00000001 0001 0001 00000001 0b 00 0004", "together"),
        ("01 00 0018 00000001 00000001 0001 0001 00000001 0007 00ff", "parameter 0x0007"),
        ("04 00 0006 0001 0000", "where a parameter"),
        ("c0 00 000a 00000001 0001 0000", "FORWARD-TSN of 10"),
        ("c2 00 000c 00000001 00010001", "I-FORWARD-TSN of 12"),
        ("07 00 0006 0001 0000", "SHUTDOWN of 6"),
    ],
)
def test_bad_bytes_are_named(body: str, complaint: str) -> None:
    with pytest.raises(MalformedPacket, match=complaint):
        packets.decode(packets.encode(1, 2, 3, [bytes.fromhex(body)]))


def test_a_wrong_checksum_is_noticed() -> None:
    packet = bytearray(packets.encode(1, 2, 3, [chunks.encode(Plain(Type.COOKIE_ACK))]))
    packet[13] ^= 1
    with pytest.raises(MalformedPacket, match="checksum"):
        packets.decode(bytes(packet))


@given(st.binary(max_size=120), st.integers(0, 2**32 - 1))
def test_any_bytes_are_read_or_refused(body: bytes, tag: int) -> None:
    try:
        packets.decode(packets.encode(1, 2, tag, [body]))
    except MalformedPacket:
        pass


@given(st.sampled_from(sorted(GOLDEN)), st.integers(0, 2**32))
def test_damaged_chunks_are_read_or_refused(name: str, seed: int) -> None:
    chance = random.Random(seed)
    encoded = bytearray(chunks.encode(GOLDEN[name][0]))
    for _ in range(chance.randint(1, 4)):
        encoded[chance.randrange(len(encoded))] = chance.randrange(256)
    try:
        packets.decode(packets.encode(1, 2, 3, [bytes(encoded[: chance.randint(1, len(encoded))])]))
    except MalformedPacket:
        pass


def test_unknown_parameters_are_treated_as_their_highest_bits_say() -> None:
    known = Parameter(Kind.IPV4, b"\x7f\0\0\1")
    skipped, told = Parameter(0x8FFF), Parameter(0xCFFF)
    assert parameters.recognized((skipped, known, told, known), 100) == ((known, known), (told,))
    assert parameters.recognized((Parameter(0x0FFF), known), 100) == ((), ())
    assert parameters.recognized((Parameter(0x4FFF), known), 100) == ((), (Parameter(0x4FFF),))


@given(st.integers(0, 2**40), st.integers(-(2**31), 2**31 - 1))
def test_numbers_are_unwrapped_to_the_nearest(near: int, step: int) -> None:
    assert unwrapped((near + step) & 0xFFFF_FFFF, near) == near + step


def test_numbers_of_sixteen_bits() -> None:
    assert unwrapped(2, 0x1FFFE, MASK16) == 0x20002
    assert unwrapped(0xFFFF, 0x20001, MASK16) == 0x1FFFF
