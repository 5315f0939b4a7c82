"""PGM in captures: lines and figures worked out by hand from RFC 3208, for packets that scapy has built, and real ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kernel.contracts.dissector import Datagram, Line
from plugins.protocols.pgm import extensions, packets
from tests.peers import optional
from tests.plugins.protocols.pgm.network import Network, Weather
from tests.plugins.protocols.pgm.test_packets import CAPTURED
from tests.seeds import many

layer = optional("plugins.dissectors.pgm.layer")
dissector = optional("plugins.dissectors.pgm.dissector")
recognition = optional("plugins.dissectors.pgm.recognition")

pytestmark = pytest.mark.peer("scapy")

SOURCE, RECEIVER, GROUP = "192.0.2.1", "192.0.2.7", "239.192.1.1"
DOWN = {"sport": 7500, "dport": 5555, "gsi": bytes.fromhex("0a1b2c3d4e5f")}
UP = {**DOWN, "sport": 5555, "dport": 7500}
TSI = "0a1b2c3d4e5f.7500"
ASKED = {"source": SOURCE, "group": GROUP}


def datagram(data: Any, time: float = 0.0, cut: int = 0) -> Datagram:
    return Datagram(time=time, source=SOURCE, destination=GROUP, data=bytes(data), cut=cut)


def line(packet: Any, cut: int = 0) -> Line:
    said: Line
    (said,) = dissector.PgmDissector().receive(datagram(packet, cut=cut))
    return said


def _table() -> dict[str, tuple[Any, str, dict[str, Any]]]:
    s = layer
    fragment = s.OptFragment(first_sqn=7, offset=2872, size=3000)
    return {
        "ODATA": (s.PGM(**DOWN) / s.ODATA(sqn=7, trail=3) / b"12345", "ODATA", {"sqn": 7, "trail": 3, "bytes": 5}),
        "RDATA of parity": (
            s.PGM(parity=1, **DOWN) / s.RDATA(sqn=16) / b"12",
            "RDATA",
            {"sqn": 16, "trail": 0, "bytes": 2, "parity": True},
        ),
        "a fragment": (
            s.PGM(**DOWN) / s.ODATA(sqn=9, options=s.ended(fragment)) / b"x",
            "ODATA",
            {"sqn": 9, "trail": 0, "bytes": 1, "fragment": {"first_sqn": 7, "offset": 2872, "size": 3000}},
        ),
        "SPM": (
            s.PGM(**DOWN) / s.SPM(sqn=4, trail=1, lead=9, path=SOURCE, options=s.ended(s.OptFin())),
            "SPM",
            {"sqn": 4, "trail": 1, "lead": 9, "path": SOURCE, "fin": True},
        ),
        "SPM with parity and a reset": (
            s.PGM(**DOWN)
            / s.SPM(options=s.ended(s.OptParityParameters(group=16, specific=2), s.OptReset(specific=0x41))),
            "SPM",
            {
                "sqn": 0, "trail": 0, "lead": 0, "path": "0.0.0.0",
                "parity_prm": {"group": 16, "specific": 2}, "rst": {"specific": 0x41},
            },
        ),
        "NAK with a list": (
            s.PGM(**UP) / s.NAK(sqn=9, **ASKED, options=s.ended(s.OptNakList(sqns=[39, 40]))),
            "NAK",
            {"sqns": [9, 39, 40], **ASKED},
        ),
        "NCF": (s.PGM(**DOWN) / s.NCF(sqn=9, **ASKED), "NCF", {"sqns": [9], **ASKED}),
        "SPMR": (s.PGM(**UP) / s.SPMR(), "SPMR", {}),
        "an option that nobody knows": (
            s.PGM(**DOWN) / s.SPM(options=s.ended(s.OptOther(type=0x12, value=b"abcd"))),
            "SPM",
            {"sqn": 0, "trail": 0, "lead": 0, "path": "0.0.0.0", "pgmcc_data": {"value": b"abcd"}},
        ),
        "an acknowledgement of PGMCC": (
            s.PGM(**UP) / s.ACK(highest=9, bitmap=5),
            "ACK",
            {"highest": 9, "bitmap": "0x00000005"},
        ),
        "an acknowledgement that says how its receiver fares": (
            s.PGM(**UP) / s.ACK(highest=9, options=s.ended(s.OptOther(type=0x13, value=bytes(12)))),
            "ACK",
            {"highest": 9, "bitmap": "0x00000000", "pgmcc_feedback": {"value": bytes(12)}},
        ),
        "a poll": (s.PGM(**DOWN) / s.POLL(sqn=1), "POLL", {}),
    }  # fmt: skip


TABLE = _table() if layer else {}


@pytest.mark.parametrize("name", TABLE)
def test_every_type_is_one_line(name: str) -> None:
    packet, what, facts = TABLE[name]
    assert line(packet) == Line(what, facts, TSI)


MALFORMED = {
    "nothing": (lambda s: b"", "0 bytes; a header has 16"),
    "half a header": (lambda s: bytes(15), "15 bytes; a header has 16"),
    "checksum": (lambda s: s.PGM(chksum=1, **DOWN) / s.ODATA(), "a wrong checksum"),
    "no checksum": (lambda s: s.PGM(chksum=0, **DOWN) / s.ODATA(), "data without a checksum"),
    "type": (lambda s: s.PGM(type=7, **DOWN) / b"x", "an unknown type"),
    "version": (lambda s: s.PGM(version=2, **DOWN) / s.ODATA(), "version 2"),
    "body": (lambda s: s.PGM(type=0, **DOWN) / b"short", "shorter than its header"),
    "family": (lambda s: s.PGM(**UP) / s.NAK(group_afi=9), "an address of family 9"),
    "size": (lambda s: s.PGM(tsdu=9, **DOWN) / s.ODATA() / b"four", "a TSDU of 4 bytes that says it has 9"),
    "options": (lambda s: s.PGM(**DOWN) / s.SPM(options=[s.OptSyn()]), "options without an end"),
    "no options": (lambda s: s.PGM(type=4, present=1, **DOWN) / bytes(8), "shorter than its header"),
    "not OPT_LENGTH": (
        lambda s: s.PGM(**DOWN) / s.SPM(length_type=3, options=s.ended(s.OptSyn())),
        "options that do not begin with OPT_LENGTH",
    ),
    "short option": (
        lambda s: s.PGM(**DOWN) / s.SPM(options=s.ended(s.OptSyn(len=2))),
        "an option of less than",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_wrong_is_named(name: str) -> None:
    make, why = MALFORMED[name]
    said = line(make(layer))
    assert (said.what, said.session) == ("malformed", "pgm")
    assert why in said.facts["why"]


def test_what_the_capture_has_cut_off_is_not_the_packets_fault() -> None:
    packet = bytes(layer.PGM(**DOWN) / layer.ODATA(sqn=1) / b"1234567890")
    assert line(packet[:-4], cut=4) == Line("ODATA", {"sqn": 1, "trail": 0, "bytes": 10, "cut": 4}, TSI)


@pytest.mark.parametrize("name", TABLE)
def test_no_packet_is_malformed_for_where_the_capture_has_cut_it(name: str) -> None:
    packet, what, facts = TABLE[name]
    data = bytes(packet)
    made = dissector.PgmDissector()
    for size in range(16, len(data)):
        cut = len(data) - size
        (said,) = made.receive(datagram(data[:size], cut=cut))
        assert (said.what, said.session, said.facts["cut"]) == (what, TSI, cut)
    if "bytes" in facts:
        assert said.facts["bytes"] == facts["bytes"]
    assert all(session["malformed"] == 0 for session in made.sessions().values())


def test_a_session_by_hand() -> None:
    """Two receivers lose 2; one of them, and nobody else, 4, which is never repaired; 5 was not captured."""
    s, made = layer, dissector.PgmDissector()

    def say(time: float, packet: Any) -> None:
        made.receive(datagram(packet, time))

    def data(number: int, body: Any = None, kind: Any = None) -> Any:
        return s.PGM(**DOWN) / (kind or s.ODATA)(sqn=number, **(body or {})) / b"12345"

    for number in (1, 2, 3, 4, 6):
        say(number / 1000, data(number))
    say(0.010, s.PGM(**UP) / s.NAK(sqn=2, **ASKED, options=s.ended(s.OptNakList(sqns=[4]))))
    say(0.011, s.PGM(**UP) / s.NAK(sqn=2, **ASKED))
    say(0.012, s.PGM(**DOWN) / s.NCF(sqn=2, **ASKED))
    say(0.020, data(2, kind=s.RDATA))
    say(0.021, data(2, kind=s.RDATA))
    say(0.030, data(6))
    say(0.040, s.PGM(**DOWN) / s.SPM(path=SOURCE, options=s.ended(s.OptFin())))
    say(0.041, s.PGM(chksum=1, **DOWN) / s.ODATA(sqn=9))
    assert made.sessions() == {
        TSI: {
            "source": SOURCE, "group": GROUP,
            "odata": 6, "rdata": 2, "spm": 1, "nak": 2, "ncf": 1, "parity": 0,
            "bytes": 25, "asked": 2, "repaired": 1, "loss_percent": 40.0, "missing": 1, "duplicates": 1, "malformed": 1,
            "confirmed_p50_ms": 2.0, "confirmed_p99_ms": 2.0, "confirmed_max_ms": 2.0,
            "repair_p50_ms": 10.0, "repair_p99_ms": 10.0, "repair_max_ms": 10.0,
            "end": "finished",
        }
    }  # fmt: skip


def test_packets_that_the_system_has_yet_to_cut_are_taken_apart() -> None:
    s = layer
    fragment = s.ended(s.OptFragment(size=1))
    made = [bytes(s.PGM(**DOWN) / s.ODATA(sqn=n, options=fragment) / bytes(100)) for n in range(3)]
    made.append(bytes(s.PGM(**DOWN) / s.ODATA(sqn=3) / b"last"))
    lines = dissector.PgmDissector().receive(datagram(b"".join(made)))
    assert [(said.facts["sqn"], said.facts["bytes"]) for said in lines] == [
        (0, 100),
        (1, 100),
        (2, 100),
        (3, 4),
    ]


@pytest.mark.parametrize("name", CAPTURED)
def test_what_openpgm_has_sent_is_recognised_and_read(name: str) -> None:
    captured, meant = CAPTURED[name]
    assert recognition.is_pgm(captured)
    assert line(captured).what == layer.TYPES[meant.kind]


def test_what_is_not_pgm_is_not_recognised() -> None:
    chance = random.Random(1)
    dns = bytes.fromhex("abcd01000001000000000000076578616d706c6503636f6d0000010001")
    others = [b"", b"x", dns, bytes(40), *(chance.randbytes(60) for _ in range(2000))]
    assert sum(map(recognition.is_pgm, others)) <= 1


def test_our_own_traffic_is_read_without_a_fault_and_counted_as_it_was_sent() -> None:
    """Three receivers that lose a tenth, in memory: the figures of the capture are those of the endpoints."""
    network = Network(3, 7, Weather(loss=0.1), packet_size=300)
    sent: list[bytes] = []
    multicast = network.multicast

    def listen(packet: bytes) -> None:
        sent.append(packet)
        multicast(packet)

    network.multicast = listen  # type: ignore[method-assign]
    network.run(0.1)
    for _ in range(20):
        network.send([b"x" * 100] * 10)
        network.run(0.05)
    network.run(3)
    made = dissector.PgmDissector()
    lines = [said for packet in sent + network.upstream for said in made.receive(datagram(packet))]
    assert {said.what for said in lines} >= {"SPM", "ODATA", "RDATA", "NAK", "NCF"}
    (figures,) = made.sessions().values()
    assert figures["malformed"] == figures["missing"] == 0
    assert (
        figures["odata"] + figures["rdata"]
        == network.source.statistics.packets_out - figures["spm"] - figures["ncf"]
    )
    assert figures["rdata"] == network.source.statistics.repairs


def test_our_own_acknowledgements_of_congestion_control_are_read_without_a_fault() -> None:
    feedback = extensions.CongestionFeedback(timestamp=1, loss=0.5, address=b"\xc0\0\2\7")
    ack = packets.Ack(
        kind=packets.ACK,
        tsi=DOWN["gsi"] + (7500).to_bytes(2, "big"),
        port=5555,
        extensions=extensions.Extensions(feedback=feedback),
        highest=9,
        bitmap=0xFFFF_FFFD,
    )
    said = line(packets.encode(ack))
    assert (said.what, said.session) == ("ACK", TSI)
    assert (said.facts["highest"], said.facts["bitmap"]) == (9, "0xfffffffd")


@pytest.mark.parametrize("seed", many(0, 10))
def test_damaged_packets_are_lines_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    good = [bytes(packet) for packet, _, _ in TABLE.values()]
    made = dissector.PgmDissector()
    for _ in range(200):
        packet = bytearray(
            chance.choice(good)[: chance.randint(0, 80)] + chance.randbytes(chance.choice((0, 0, 9)))
        )
        for _ in range(min(len(packet), chance.randrange(4))):
            packet[chance.randrange(len(packet))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        if len(packet) >= 8 and chance.random() < 0.7:
            packet[6:8] = b"\0\0"
            packet[6:8] = layer.checksum(bytes(packet)).to_bytes(2, "big")
        lines = made.receive(datagram(packet, cut=chance.choice((0, 0, 5))))
        assert lines
        assert all(isinstance(said, Line) for said in lines)
    assert all(made.sessions().values())


def test_sources_are_forgotten_when_there_are_too_many() -> None:
    made = dissector.PgmDissector()
    for number in range(dissector.SESSIONS + 10):
        made.receive(datagram(layer.PGM(**{**DOWN, "sport": number}) / layer.SPM()))
    assert len(made.sessions()) == dissector.SESSIONS
