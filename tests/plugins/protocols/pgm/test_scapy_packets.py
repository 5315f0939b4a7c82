"""Our codec and our layer of scapy, which have no line in common: each reads what the other writes, at every border and beyond.

The layer is what ``kernel inspect`` reads PGM with; here it builds packets, also such as no source would send.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.extensions import Extensions, Fragment, MalformedPacket, ParityParameters, Reset
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import Data, Packet, Request, SourcePath
from plugins.protocols.pgm.receiver import Receiver
from plugins.protocols.pgm.source import Source
from tests.peers import optional
from tests.plugins.protocols.pgm.test_packets import CAPTURED, PACKETS
from tests.seeds import many

layer = optional("plugins.dissectors.pgm.layer")

pytestmark = pytest.mark.peer("scapy")

HEAD = {"sport": 0x6498, "dport": 5555, "gsi": bytes.fromhex("b7c6d1bc038a")}
UP = {**HEAD, "sport": 5555, "dport": 0x6498}
TSI = bytes.fromhex("b7c6d1bc038a6498")
GROUP = bytes((239, 192, 1, 1))
HERE = {"source": "198.18.0.1", "group": "239.192.1.1"}
MOST_NUMBERS = list(range(1, 63))


def _built() -> dict[str, tuple[Any, Packet]]:
    """Packets as the layer builds them, and what they say."""
    s = layer
    common = {"tsi": TSI, "port": 5555}
    asked = {**common, "source": bytes((198, 18, 0, 1)), "group": GROUP}
    ip6 = {"source": "2001:db8::1", "source_afi": 2, "group": "ff15::5555", "group_afi": 2}

    def data(kind: int = packets.ODATA, **more: Any) -> Data:
        return Data(**{"kind": kind, **common, "number": 0, "trail": 0, "data": b"", **more})

    def options(*made: Any) -> Any:
        return s.PGM(**HEAD) / s.ODATA(options=s.ended(*made))

    return {
        "no data": (s.PGM(**HEAD) / s.ODATA(), data()),
        "the last numbers": (
            s.PGM(**HEAD) / s.RDATA(sqn=0xFFFFFFFF, trail=0x80000000) / b"x",
            data(packets.RDATA, number=0xFFFFFFFF, trail=0x80000000, data=b"x"),
        ),
        "as much data as there can be": (
            s.PGM(**HEAD) / s.ODATA() / bytes(65535),
            data(data=bytes(65535)),
        ),
        "parity of packets of different sizes": (
            s.PGM(parity=1, var_pktlen=1, **HEAD) / s.RDATA(sqn=9) / b"xy",
            data(packets.RDATA, number=9, data=b"xy", parity=True, variable=True),
        ),
        "an SPM": (
            s.PGM(**HEAD) / s.SPM(sqn=1, trail=2, lead=3, path="198.18.0.1"),
            SourcePath(kind=packets.SPM, **common, number=1, trail=2, lead=3, path=bytes((198, 18, 0, 1))),
        ),
        "an SPM over IPv6": (
            s.PGM(**HEAD) / s.SPM(path_afi=2, path="2001:db8::1"),
            SourcePath(
                kind=packets.SPM,
                **common,
                number=0,
                trail=0,
                lead=0,
                path=bytes.fromhex("20010db8000000000000000000000001"),
            ),
        ),
        "a NAK": (
            s.PGM(**UP) / s.NAK(sqn=7, **HERE),
            Request(kind=packets.NAK, **asked, numbers=(7,)),
        ),
        "a NAK with the longest list": (
            s.PGM(**UP) / s.NAK(sqn=0, **HERE, options=s.ended(s.OptNakList(sqns=MOST_NUMBERS))),
            Request(
                kind=packets.NAK,
                **asked,
                numbers=(0, *MOST_NUMBERS),
                extensions=Extensions(nak_list=tuple(MOST_NUMBERS)),
            ),
        ),
        "an NCF over IPv6": (
            s.PGM(**HEAD) / s.NCF(sqn=7, **ip6),
            Request(
                kind=packets.NCF,
                **common,
                numbers=(7,),
                source=bytes.fromhex("20010db8000000000000000000000001"),
                group=bytes.fromhex("ff150000000000000000000000005555"),
            ),
        ),
        "a request for parity": (
            s.PGM(parity=1, **UP) / s.NNAK(sqn=16, **HERE),
            Request(kind=packets.NNAK, **asked, numbers=(16,), parity=True),
        ),
        "an SPMR": (s.PGM(**UP) / s.SPMR(), Packet(kind=packets.SPMR, **common)),
        "a fragment": (
            options(s.OptFragment(first_sqn=1, offset=2, size=0xFFFFFFFF)),
            data(extensions=Extensions(fragment=Fragment(1, 2, 0xFFFFFFFF))),
        ),
        "a fragment whose numbers are parity": (
            options(s.OptFragment(encoded=1)),
            data(extensions=Extensions(fragment=Fragment(0, 0, 0), encoded=True)),
        ),
        "a late join": (options(s.OptJoin(oldest_sqn=5)), data(extensions=Extensions(join=5))),
        "the first": (options(s.OptSyn()), data(extensions=Extensions(syn=True))),
        "the last": (options(s.OptFin()), data(extensions=Extensions(fin=True))),
        "giving up": (
            options(s.OptReset(specific=0x41)),
            data(extensions=Extensions(reset=Reset(1, unanswered=True))),
        ),
        "parity of both sorts": (
            options(s.OptParityParameters(group=128, specific=3)),
            data(extensions=Extensions(parity=ParityParameters(128, proactive=True, on_demand=True))),
        ),
        "of a group": (
            options(s.OptParityGroup(group=3), s.OptGroupSize(size=4)),
            data(extensions=Extensions(parity_group=3, group_size=4)),
        ),
        "garbage in the bits that network elements look at": (
            options(s.OptFin(reserved=31, opx=3, encoded_null=1)),
            data(extensions=Extensions(fin=True)),
        ),
        "options that nobody knows": (
            options(s.OptOther(type=0x77, value=b"1234"), s.OptOther(type=0x10, value=b""), s.OptSyn()),
            data(extensions=Extensions(syn=True)),
        ),
        "sixteen options": (
            options(*(s.OptOther(type=0x70) for _ in range(15)), s.OptSyn()),
            data(extensions=Extensions(syn=True)),
        ),
        "no checksum, where it may be missing": (
            s.PGM(chksum=0, **UP) / s.SPMR(),
            Packet(kind=packets.SPMR, **common),
        ),
    }


BUILT = _built() if layer else {}


@pytest.mark.parametrize("name", BUILT)
def test_what_the_layer_builds_is_read_as_it_was_meant(name: str) -> None:
    built, meant = BUILT[name]
    read = packets.decode(bytes(built))
    if isinstance(read, Request):  # its list is in the numbers, and once more in the extensions
        assert isinstance(meant, Request)
        assert (read.kind, read.tsi, read.port, read.numbers) == (
            meant.kind,
            meant.tsi,
            meant.port,
            meant.numbers,
        )
        assert (read.source, read.group, read.parity) == (meant.source, meant.group, meant.parity)
    else:
        assert read == meant


WRONG = {  # name: (what is changed in the header, in the body, the options)
    "a wrong checksum": lambda s: s.PGM(chksum=1, **HEAD) / s.ODATA(),
    "data without a checksum": lambda s: s.PGM(chksum=0, **HEAD) / s.ODATA(),
    "a type that nobody knows": lambda s: s.PGM(type=3, **HEAD) / s.ODATA(),
    "another version": lambda s: s.PGM(version=1, **HEAD) / s.ODATA(),
    "less data than it says": lambda s: s.PGM(tsdu=5, **HEAD) / s.ODATA() / b"four",
    "more data than it says": lambda s: s.PGM(tsdu=3, **HEAD) / s.ODATA() / b"four",
    "no numbers": lambda s: s.PGM(type=4, **HEAD) / b"1234567",
    "an SPM without a path": lambda s: s.PGM(type=0, **HEAD) / b"123456789012",
    "a path of a family that nobody knows": lambda s: s.PGM(**HEAD) / s.SPM(path_afi=3),
    "a path that is cut off": lambda s: s.PGM(type=0, **HEAD) / (bytes(12) + b"\0\1\0\0\xc6\x12"),
    "a group of a family that nobody knows": lambda s: s.PGM(**UP) / s.NAK(group_afi=0),
    "a NAK without a group": lambda s: s.PGM(type=8, **UP) / (bytes(4) + b"\0\1\0\0" + bytes(4)),
    "options that are announced and not there": lambda s: s.PGM(type=4, present=1, **HEAD) / bytes(8),
    "options that begin with another": lambda s: (
        s.PGM(**HEAD) / s.ODATA(length_type=1, options=s.ended(s.OptSyn()))
    ),
    "options that are longer than the packet": lambda s: (
        s.PGM(**HEAD) / s.ODATA(total=64, options=s.ended(s.OptSyn()))
    ),
    "options that are shorter than themselves": lambda s: (
        s.PGM(**HEAD) / s.ODATA(total=6, options=s.ended(s.OptSyn()))
    ),
    "options without an end": lambda s: s.PGM(**HEAD) / s.ODATA(options=[s.OptSyn()]),
    "an option of three bytes": lambda s: s.PGM(**HEAD) / s.ODATA(options=s.ended(s.OptSyn(len=3))),
    "an option of no bytes": lambda s: s.PGM(**HEAD) / s.ODATA(options=s.ended(s.OptSyn(len=0))),
    "a fragment of eight bytes": lambda s: (
        s.PGM(**HEAD) / s.ODATA(options=s.ended(s.OptOther(type=1, value=bytes(4))))
    ),
    "a join of no number": lambda s: s.PGM(**HEAD) / s.ODATA(options=s.ended(s.OptOther(type=3, value=b""))),
    "a NAK list of half a number": lambda s: (
        s.PGM(**UP) / s.NAK(**HERE, options=s.ended(s.OptOther(type=2, value=b"12")))
    ),
    "a NAK list that is too long": lambda s: (
        s.PGM(**UP) / s.NAK(**HERE, options=s.ended(s.OptOther(type=2, value=bytes(4 * 62 + 3))))
    ),
    "seventeen options": lambda s: s.PGM(**HEAD) / s.ODATA(options=s.ended(*(s.OptSyn() for _ in range(17)))),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_and_counted(name: str) -> None:
    wrong = bytes(WRONG[name](layer))
    with pytest.raises(MalformedPacket):
        packets.decode(wrong)
    receiver = Receiver(ReceiverOptions(), 5555, GROUP, seed=1)
    receiver.receive([wrong], 1.0, "somewhere")
    assert receiver.statistics.malformed == 1


@pytest.mark.parametrize("name", CAPTURED)
def test_what_openpgm_sends_is_read_by_the_layer_and_written_again(name: str) -> None:
    captured, meant = CAPTURED[name]
    read = layer.PGM(captured)
    assert layer.TYPES[read.type] == packets.NAMES[meant.kind]
    assert read.gsi == meant.tsi[:6]
    fresh = read.copy()
    for each in (fresh, fresh.payload):
        each.raw_packet_cache = None
    fresh.chksum = fresh.tsdu = None
    assert bytes(fresh) == captured


@given(PACKETS)
def test_what_we_write_is_read_by_the_layer(packet: Packet) -> None:
    read = layer.PGM(packets.encode(packet))
    assert layer.TYPES[read.type] == packets.NAMES[packet.kind]
    body = read.payload
    if isinstance(packet, Data):
        assert (body.sqn, body.trail, bytes(body.payload)) == (packet.number, packet.trail, packet.data)
    elif isinstance(packet, SourcePath):
        assert (body.sqn, body.trail, body.lead) == (packet.number, packet.trail, packet.lead)
    elif isinstance(packet, Request):
        assert layer.numbers_of(body) == list(packet.numbers)


@pytest.mark.parametrize("seed", many(0, 10))
def test_both_ends_take_anything_that_scapy_makes_up(seed: int) -> None:
    """Whole packets with any values in any fields, checksums included: nothing but counting happens."""
    chance = random.Random(seed)
    bodies = [layer.SPM, layer.ODATA, layer.RDATA, layer.NAK, layer.NCF, layer.NNAK, layer.SPMR, layer.POLL]
    receiver = Receiver(ReceiverOptions(max_sources=4, window_packets=100), 5555, GROUP, seed)
    source = Source(SourceOptions(), TSI, 5555, bytes((198, 18, 0, 1)), GROUP)
    source.send([b"data"] * 10)
    source.packets_to_send(1.0)
    for turn in range(150):
        body = chance.choice(bodies)()
        for field in body.fields_desc:
            if field.name in ("sqn", "trail", "lead"):
                setattr(body, field.name, chance.choice((0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)))
        made = [
            layer.OptFragment(first_sqn=chance.choice((0, 5)), offset=chance.choice((0, 9)), size=chance.choice((0, 9, 2**32 - 1))),
            layer.OptParityParameters(group=chance.choice((0, 1, 8, 2**32 - 1)), specific=chance.randrange(4)),
            layer.OptParityGroup(group=chance.choice((0, 2**32 - 1))),
            layer.OptGroupSize(size=chance.choice((0, 7, 2**32 - 1))),
            layer.OptJoin(oldest_sqn=chance.choice((0, 2**31))),
            layer.OptNakList(sqns=[chance.randrange(2**32) for _ in range(chance.randrange(5))]),
            layer.OptReset(specific=chance.randrange(128)),
            layer.OptFin(),
        ]  # fmt: skip
        body.options = layer.ended(*chance.sample(made, chance.randrange(4)))
        head = chance.choice((HEAD, UP))
        packet = bytes(
            layer.PGM(parity=chance.randrange(2), **head) / body / bytes(chance.choice((0, 0, 1, 300)))
        )
        now = 1.0 + turn / 50
        receiver.receive([packet], now, "somewhere")
        source.receive(packet, now)
        receiver.take()
        receiver.packets_to_send(now)
        source.packets_to_send(now)
    assert receiver.statistics.packets_in == 150
