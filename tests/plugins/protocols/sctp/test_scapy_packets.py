"""Scapy as an independent encoder of SCTP: packets at every border, and beyond, against our codec and our endpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from plugins.protocols.sctp import packets
from plugins.protocols.sctp.chunks import Data, Forward, Init, Listed, Plain, Sack, Shutdown, Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.errors import MalformedPacket
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Kind, Parameter
from tests.peers import optional
from tests.seeds import many

s = optional("scapy.layers.sctp")
raw = optional("scapy.packet")

pytestmark = pytest.mark.peer("scapy")

ALL = 0xFFFFFFFF
VARIED = {"tsn", "cumul_tsn_ack", "new_tsn", "a_rwnd", "init_tag", "init_tsn", "stream_seq"}
HERE, THERE = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"


def _data(data: bytes, **more: Any) -> Any:
    return s.SCTPChunkData(**{"tsn": 1, "stream_id": 0, "stream_seq": 0, "proto_id": 0, **more}, data=data)


def _built() -> dict[str, tuple[Any, Any]]:
    """Chunks as scapy builds them, and what they say."""
    empty = Data(tsn=1, stream=0, number=0, flags=0, data=b"")
    addresses = [
        s.SCTPChunkParamIPv4Addr(addr="127.0.0.1"),
        s.SCTPChunkParamIPv6Addr(addr="2001:db8::1"),
        s.SCTPChunkParamStateCookie(cookie=b"odd"),
        s.SCTPChunkParamSupportedAddrTypes(addr_type_list=["IPv4", "IPv6"]),
        s.SCTPChunkParamFwdTSN(),
    ]
    gaps = [f"{2 * n}:{2 * n}" for n in range(1, 301)]
    return {
        "data of no bytes (a violation, but none of the codec's)": (_data(b""), empty),
        "every flag, every number at its end": (
            _data(
                b"x", tsn=ALL, stream_id=0xFFFF, stream_seq=0xFFFF, proto_id=ALL,
                delay_sack=1, unordered=1, beginning=1, ending=1,
            ),
            Data(tsn=ALL, stream=0xFFFF, number=0xFFFF, flags=0x0F, data=b"x", protocol=ALL),
        ),
        "as much data as a length can say": (
            _data(bytes(0xFFFF - 16)),
            Data(tsn=1, stream=0, number=0, flags=0, data=bytes(0xFFFF - 16)),
        ),
        "I-DATA, a fragment in the middle": (
            s.SCTPChunkIData(tsn=5, stream_id=1, reserved_16=0xABCD, message_id=ALL, ppid_fsn=ALL, data=b"mid"),
            Data(tsn=5, stream=1, number=ALL, flags=0, data=b"mid", fsn=ALL, interleaved=True),
        ),
        "I-DATA, the first fragment": (
            s.SCTPChunkIData(tsn=5, stream_id=1, message_id=2, ppid_fsn=ALL, beginning=1, data=b""),
            Data(tsn=5, stream=1, number=2, flags=2, data=b"", protocol=ALL, interleaved=True),
        ),
        "INIT with nothing": (
            s.SCTPChunkInit(init_tag=ALL, a_rwnd=ALL, n_out_streams=0xFFFF, n_in_streams=0xFFFF, init_tsn=ALL),
            Init(is_ack=False, tag=ALL, window=ALL, outbound=0xFFFF, inbound=0xFFFF, tsn=ALL),
        ),
        "INIT ACK with parameters of odd sizes": (
            s.SCTPChunkInitAck(init_tag=1, a_rwnd=2, n_out_streams=3, n_in_streams=4, init_tsn=5, params=addresses),
            Init(
                is_ack=True, tag=1, window=2, outbound=3, inbound=4, tsn=5,
                parameters=(
                    Parameter(Kind.IPV4, b"\x7f\0\0\1"),
                    Parameter(Kind.IPV6, bytes.fromhex("20010db8000000000000000000000001")),
                    Parameter(Kind.STATE_COOKIE, b"odd"),
                    Parameter(Kind.SUPPORTED_ADDRESS_TYPES, b"\0\5\0\6"),
                    Parameter(Kind.FORWARD_TSN_SUPPORTED),
                ),
            ),
        ),
        "SACK with nothing": (s.SCTPChunkSACK(cumul_tsn_ack=ALL, a_rwnd=0), Sack(cumulative=ALL, window=0)),
        "SACK with 300 gaps and as many duplicates": (
            s.SCTPChunkSACK(cumul_tsn_ack=0, a_rwnd=1, gap_ack_list=gaps, dup_tsn_list=list(range(300))),
            Sack(
                cumulative=0, window=1,
                gaps=tuple((2 * n, 2 * n) for n in range(1, 301)), duplicates=tuple(range(300)),
            ),
        ),
        "HEARTBEAT": (
            s.SCTPChunkHeartbeatReq(params=[s.SCTPChunkParamHeartbeatInfo(data=b"12345")]),
            Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, b"12345"),)),
        ),
        "ABORT with T": (s.SCTPChunkAbort(TCB=1), Listed(Type.ABORT, (), 1)),
        "SHUTDOWN": (s.SCTPChunkShutdown(cumul_tsn_ack=ALL), Shutdown(ALL)),
        "SHUTDOWN COMPLETE with T": (s.SCTPChunkShutdownComplete(TCB=1), Plain(Type.SHUTDOWN_COMPLETE, b"", 1)),
        "FORWARD-TSN": (
            s.SCTPChunkForwardTSN(new_tsn=ALL, skips=[s.SCTPForwardSkip(stream_id=0xFFFF, stream_seq=1)]),
            Forward(cumulative=ALL, skipped=((0xFFFF, 1, False),)),
        ),
        "I-FORWARD-TSN": (
            s.SCTPChunkIForwardTSN(
                new_tsn=1, skips=[s.SCTPIForwardSkip(stream_id=2, reserved=0x7FFF, unordered=1, message_id=ALL)]
            ),
            Forward(cumulative=1, skipped=((2, ALL, True),), interleaved=True),
        ),
        "RE-CONFIG": (
            s.SCTPChunkReConfig(
                params=[
                    s.SCTPChunkParamOutSSNResetReq(
                        re_conf_req_seq_num=1, re_conf_res_seq_num=2, tsn=3, stream_num_list=[6, 7, 8]
                    )
                ]
            ),
            Listed(
                Type.RE_CONFIG,
                (Parameter(Kind.OUTGOING_RESET, bytes.fromhex("000000010000000200000003000600070008")),),
            ),
        ),
        "PAD": (s.SCTPChunkPad(padding=bytes(5), len=9), Plain(Type.PAD, bytes(5))),
        "AUTH, which we do not know": (
            s.SCTPChunkAuthentication(shared_key_id=1, HMAC_function=1, HMAC=b"12345678"),
            Plain(15, b"\0\1\0\1" + b"12345678"),
        ),
    }  # fmt: skip


BUILT = _built() if s else {}


def _packet(chunk: Any, **head: Any) -> bytes:
    return bytes(s.SCTP(sport=5, dport=6, tag=7, **head) / chunk)


@pytest.mark.parametrize("name", BUILT)
def test_what_scapy_builds_is_read_as_it_was_meant(name: str) -> None:
    built, meant = BUILT[name]
    packet = packets.decode(_packet(built))
    assert (packet.source, packet.destination, packet.tag) == (5, 6, 7)
    assert packet.chunks == (meant,)


def test_chunks_of_every_size_together() -> None:
    """Each is padded to four bytes, and the next is found behind."""
    several = _data(b"", tsn=0)
    for size in range(1, 9):
        several = several / _data(b"x" * size, tsn=size)
    read = packets.decode(_packet(several / s.SCTPChunkCookieAck())).chunks
    assert [len(chunk.data) for chunk in read[:-1]] == list(range(9))
    assert read[-1] == Plain(Type.COOKIE_ACK)


WRONG: dict[str, Callable[[], bytes]] = {
    "a wrong checksum": lambda: _packet(_data(b"x"), chksum=1),
    "no checksum": lambda: _packet(_data(b"x"), chksum=0),
    "no chunk": lambda: bytes(s.SCTP(sport=5, dport=6, tag=7)),
    "half a chunk's header": lambda: _packet(s.SCTPChunkCookieAck() / raw.Raw(b"\0\3")),
    "a length of 0": lambda: _packet(_data(b"x", len=0)),
    "a length of 3": lambda: _packet(s.SCTPChunkCookieAck(len=3)),
    "a length of less than DATA has": lambda: _packet(_data(b"", len=15)),
    "a length beyond the packet": lambda: _packet(_data(b"x", len=21)),
    "a SACK with fewer gaps than it says": lambda: _packet(
        s.SCTPChunkSACK(cumul_tsn_ack=1, a_rwnd=1, n_gap_ack=2, gap_ack_list=["1:1"])
    ),
    "a SACK with more duplicates than fit": lambda: _packet(
        s.SCTPChunkSACK(cumul_tsn_ack=1, a_rwnd=1, n_dup_tsn=0xFFFF)
    ),
    "an INIT without its numbers": lambda: _packet(s.SCTPChunkInit(len=12)),
    "a parameter that is longer than its chunk": lambda: _packet(
        s.SCTPChunkInit(params=[s.SCTPChunkParamStateCookie(cookie=b"four", len=400)])
    ),
    "a parameter of no length": lambda: _packet(
        s.SCTPChunkInit(params=[s.SCTPChunkParamStateCookie(cookie=b"four", len=0)])
    ),
    "INIT and another chunk": lambda: _packet(s.SCTPChunkInit() / s.SCTPChunkCookieAck()),
    "a SHUTDOWN without a number": lambda: _packet(s.SCTPChunkShutdown(len=4)),
    "a FORWARD-TSN with half a stream": lambda: _packet(s.SCTPChunkForwardTSN(len=10, new_tsn=1, skips=[])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    with pytest.raises(MalformedPacket):
        packets.decode(WRONG[name]())


def _association(seed: int) -> tuple[Endpoint, int]:
    """An endpoint that has an association, and the tag that its peer's packets have."""
    client = Endpoint(SctpOptions(), port=5000, key=b"c" * 32)
    server = Endpoint(SctpOptions(), port=5000, key=seed.to_bytes(32, "big"))
    feed = client.connect([THERE], peer_port=5000, now=0.0)
    _exchange(client, server, 0.1)
    feed.send(stream=0, data=b"x")
    ((_, packet),) = client.data_to_send(0.2)
    server.receive_data(packet, source=HERE, now=0.2)
    assert [message.data for message in server.associations[0].receive(0.2)] == [b"x"]
    return server, packets.decode(packet).tag


def _exchange(client: Endpoint, server: Endpoint, now: float) -> None:
    for _ in range(10):
        for _, packet in client.data_to_send(now):
            server.receive_data(packet, source=HERE, now=now)
        for _, packet in server.data_to_send(now):
            client.receive_data(packet, source=THERE, now=now)


@pytest.mark.parametrize("seed", many(0, 20))
def test_an_endpoint_takes_anything_that_scapy_makes_up(seed: int) -> None:
    """With the right ports, tag and checksum; it is answered, counted, or ends the association, and nothing is raised."""
    chance = random.Random(seed)
    server, tag = _association(seed)
    now = 0.2
    ends = () if seed % 2 else ("ABORT with T", "data of no bytes (a violation, but none of the codec's)")
    built = [built for name, (built, _) in BUILT.items() if name not in ends]
    for turn in range(60):
        now += 0.1
        chunk = chance.choice(built).copy()
        for field in chunk.fields_desc:
            if field.name in VARIED:
                value = chance.choice((0, 1, 0x7FFFFFFF, 0x80000000, ALL))
                setattr(chunk, field.name, value & ((1 << (8 * field.sz)) - 1))
        head = {"sport": 5000, "dport": 5000, "tag": chance.choice((0, tag, tag, tag, ALL))}
        server.receive_data(
            bytes(s.SCTP(**head) / chunk), source=chance.choice((HERE, b"\x0a\0\0\x09")), now=now
        )
        for association in server.associations:
            association.receive(now)
        server.data_to_send(now)
        if turn % 10 == 9:
            server.handle_timeout(now)
    assert len(server.associations) <= 1
