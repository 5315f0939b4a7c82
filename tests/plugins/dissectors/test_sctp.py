"""SCTP in captures: packets that scapy has built, and our two ends with losses in memory."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from kernel.contracts.dissector import Datagram, Line
from plugins.dissectors.sctp.associations import ASSOCIATIONS
from plugins.dissectors.sctp.dissector import SctpDissector
from tests.peers import optional
from tests.plugins.protocols.sctp.test_scapy_packets import BUILT
from tests.seeds import many

s = optional("scapy.layers.sctp")

pytestmark = pytest.mark.peer("scapy")

CLIENT, SERVER = "192.0.2.1", "192.0.2.2"
TAG_OF_CLIENT, TAG_OF_SERVER = 0xC, 0x5


def datagram(
    chunk: Any, time: float = 0.0, *, back: bool = False, tag: int | None = None, cut: int = 0
) -> Datagram:
    ports = {"sport": 7, "dport": 6} if back else {"sport": 6, "dport": 7}
    expected = TAG_OF_CLIENT if back else TAG_OF_SERVER
    data = bytes(s.SCTP(**ports, tag=expected if tag is None else tag) / chunk)
    source, destination = (SERVER, CLIENT) if back else (CLIENT, SERVER)
    return Datagram(time=time, source=source, destination=destination, data=data[: len(data) - cut], cut=cut)


def data(tsn: int, size: int = 10, **more: Any) -> Any:
    flags = {"beginning": 1, "ending": 1, **more}
    return s.SCTPChunkData(tsn=tsn, stream_id=3, stream_seq=tsn, proto_id=51, data=bytes(size), **flags)


def _table() -> dict[str, tuple[Any, str, dict[str, Any]]]:
    return {
        "data": (
            data(9, unordered=1, delay_sack=1, ending=0),
            "DATA",
            {"tsn": 9, "stream": 3, "ssn": 9, "ppid": 51, "flags": "BUI", "bytes": 10},
        ),
        "a piece of I-DATA": (
            s.SCTPChunkIData(tsn=1, stream_id=2, message_id=3, ppid_fsn=4, data=b"x"),
            "I-DATA",
            {"tsn": 1, "stream": 2, "mid": 3, "fsn": 4, "flags": "none", "bytes": 1},
        ),
        "INIT": (
            s.SCTPChunkInit(
                init_tag=1, a_rwnd=2, n_out_streams=3, n_in_streams=4, init_tsn=5,
                params=[s.SCTPChunkParamFwdTSN(), s.SCTPChunkParamRandom(random="r" * 8)],
            ),
            "INIT",
            {
                "tag": 1, "window": 2, "outbound": 3, "inbound": 4, "tsn": 5,
                "parameters": ["FORWARD_TSN_SUPPORTED", "0x8002"],
            },
        ),
        "SACK": (
            s.SCTPChunkSACK(cumul_tsn_ack=8, a_rwnd=1000, gap_ack_list=["2:3", "5:5"], dup_tsn_list=[7]),
            "SACK",
            {"cumulative": 8, "window": 1000, "gaps": ["2-3", "5-5"], "duplicates": [7]},
        ),
        "ABORT": (
            s.SCTPChunkAbort(error_causes=bytes.fromhex("000c00066e6f0000"), TCB=1),
            "ABORT",
            {"causes": ["USER_ABORT"], "tag_reflected": True},
        ),
        "HEARTBEAT": (
            s.SCTPChunkHeartbeatReq(params=[s.SCTPChunkParamHeartbeatInfo(data=b"1")]),
            "HEARTBEAT",
            {"parameters": ["HEARTBEAT_INFO"]},
        ),
        "COOKIE ECHO": (s.SCTPChunkCookieEcho(cookie=b"cookie"), "COOKIE ECHO", {"bytes": 6}),
        "COOKIE ACK": (s.SCTPChunkCookieAck(), "COOKIE ACK", {}),
        "SHUTDOWN": (s.SCTPChunkShutdown(cumul_tsn_ack=8), "SHUTDOWN", {"cumulative": 8}),
        "FORWARD-TSN": (
            s.SCTPChunkForwardTSN(new_tsn=9, skips=[s.SCTPForwardSkip(stream_id=1, stream_seq=2)]),
            "FORWARD-TSN",
            {"cumulative": 9, "skipped": ["1:2"]},
        ),
        "a type that nobody knows": (
            s.SCTPChunkAuthentication(shared_key_id=1, HMAC_function=1, HMAC=b"12345678"),
            "chunk 15",
            {"bytes": 12},
        ),
    }  # fmt: skip


TABLE = _table() if s else {}


@pytest.mark.parametrize("name", TABLE)
def test_every_chunk_is_one_line(name: str) -> None:
    chunk, what, facts = TABLE[name]
    assert SctpDissector().receive(datagram(chunk)) == [Line(what, facts, "sctp-1")]


def test_an_association_by_hand() -> None:
    """The second chunk is lost, reported, and sent again; the round trip is that of chunks sent once."""
    made = SctpDissector()
    init = {"a_rwnd": 9999, "n_out_streams": 1, "n_in_streams": 1}
    said = [
        datagram(s.SCTPChunkInit(init_tag=TAG_OF_CLIENT, init_tsn=100, **init), 0.000, tag=0),
        datagram(s.SCTPChunkInitAck(init_tag=TAG_OF_SERVER, init_tsn=900, **init), 0.010, back=True),
        datagram(s.SCTPChunkCookieEcho(cookie=b"c") / data(100), 0.020),
        datagram(s.SCTPChunkCookieAck() / s.SCTPChunkSACK(cumul_tsn_ack=100, a_rwnd=1), 0.050, back=True),
        datagram(data(101), 0.060),
        datagram(data(102, ending=0) / data(103, beginning=0), 0.061),
        datagram(s.SCTPChunkSACK(cumul_tsn_ack=100, a_rwnd=1, gap_ack_list=["2:3"]), 0.091, back=True),
        datagram(data(101), 0.100),
        datagram(s.SCTPChunkSACK(cumul_tsn_ack=101, a_rwnd=1), 0.200, back=True),
        datagram(s.SCTPChunkSACK(cumul_tsn_ack=103, a_rwnd=1, dup_tsn_list=[102]), 0.201, back=True),
        datagram(data(900, 5), 0.300, back=True),
        datagram(s.SCTPChunkShutdownComplete(), 0.400),
    ]
    lines = [line for each in said for line in made.receive(each)]
    assert [line.facts["tsn"] for line in lines if line.facts.get("again")] == [101]
    assert {line.session for line in lines} == {"sctp-1"}
    assert made.sessions() == {
        "sctp-1": {
            "client": f"{CLIENT} port 6", "server": f"{SERVER} port 7",
            "chunks_out": 5, "chunks_in": 1, "messages_out": 3, "messages_in": 1, "bytes_out": 40, "bytes_in": 5,
            "retransmitted": 1, "missing": 0, "gaps": 1, "duplicates": 1, "wrong_checksums": 0, "malformed": 0,
            "rtt_p50_ms": pytest.approx(30.0, rel=0.05), "rtt_p99_ms": pytest.approx(140.0, rel=0.05),
            "rtt_max_ms": 140.0, "end": "shutdown",
        }
    }  # fmt: skip


def test_two_associations_between_the_same_ports_are_told_apart_by_their_tags() -> None:
    made = SctpDissector()
    for number in (1, 2):
        init = s.SCTPChunkInit(init_tag=number, a_rwnd=1, n_out_streams=1, n_in_streams=1, init_tsn=1)
        answer = s.SCTPChunkInitAck(
            init_tag=10 + number, a_rwnd=1, n_out_streams=1, n_in_streams=1, init_tsn=1
        )
        made.receive(datagram(init, tag=0))
        made.receive(datagram(init, tag=0))  # sent again
        made.receive(datagram(answer, back=True, tag=number))
    lines = [made.receive(datagram(data(5), tag=10 + number))[0] for number in (1, 2, 1)]
    assert [line.session for line in lines] == ["sctp-1", "sctp-2", "sctp-1"]
    assert [row["chunks_out"] for row in made.sessions().values()] == [2, 1]


def test_what_began_before_the_capture_is_one_association_both_ways() -> None:
    made = SctpDissector()
    for back in (False, True, False):
        (line,) = made.receive(datagram(data(1), back=back, tag=77 + back))
        assert line.session == "sctp-1"


def test_an_association_that_speaks_again_after_many_others_is_in_the_table() -> None:
    """Its tag is known for longer than it is itself."""
    made = SctpDissector()
    made.receive(datagram(data(1), tag=1))
    for number in range(ASSOCIATIONS):
        other = struct.pack(">HHII", 1000 + number, 7, 1000 + number, 0) + bytes(data(1))
        made.receive(Datagram(time=1.0, source=CLIENT, destination=SERVER, data=other))
    assert "sctp-1" not in made.sessions()
    (line,) = made.receive(datagram(data(2), tag=1))
    assert line.session == "sctp-1"
    assert made.sessions()["sctp-1"]["chunks_out"] == 2
    assert len(made.sessions()) == ASSOCIATIONS


def test_what_is_wrong_is_named_and_hides_nothing_else() -> None:
    made = SctpDissector()
    lines = made.receive(datagram(s.SCTPChunkShutdown(len=4) / s.SCTPChunkCookieAck()))
    assert [line.what for line in lines] == [
        "malformed",
        "malformed",
    ]  # four bytes are left, which are no chunk
    good = datagram(s.SCTPChunkCookieAck() / s.SCTPChunkCookieAck(len=400))
    assert [line.what for line in made.receive(good)] == ["COOKIE ACK", "malformed"]
    damaged = bytearray(datagram(data(1)).data)
    damaged[-1] ^= 1
    (line,) = made.receive(Datagram(time=0, source=CLIENT, destination=SERVER, data=bytes(damaged)))
    assert (line.what, line.facts["checksum"]) == ("DATA", "wrong")
    (line,) = made.receive(Datagram(time=0, source=CLIENT, destination=SERVER, data=b"short"))
    assert line == Line("malformed", {"why": "5 bytes; a packet has 16 at least"}, "sctp")
    assert made.sessions()["sctp-1"]["malformed"] == 3
    assert made.sessions()["sctp-1"]["wrong_checksums"] == 1


def test_what_the_capture_has_cut_off_is_told() -> None:
    (line,) = SctpDissector().receive(datagram(data(1, 100), cut=50))
    assert line.facts == {"why": "not captured whole"}


@pytest.mark.parametrize("seed", many(0, 10))
def test_damaged_packets_are_lines_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    good = [datagram(chunk).data for chunk, _ in BUILT.values()]
    made = SctpDissector()
    for _ in range(300):
        packet = bytearray(chance.choice(good)[: chance.choice((5, 13, 40, 10_000))])
        for _ in range(chance.randrange(5)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        cut = chance.choice((0, 0, 7))
        lines = made.receive(Datagram(time=0, source=CLIENT, destination=SERVER, data=bytes(packet), cut=cut))
        assert all(isinstance(line, Line) for line in lines)
    assert all(made.sessions().values())
