"""tshark's dissector reads what we send: nothing malformed, every checksum right, the same numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.extensions import Reset
from plugins.protocols.pgm.options import ReceiverOptions, SourceOptions
from plugins.protocols.pgm.packets import Data, Request, SourcePath
from tests.captures import pcap
from tests.plugins.protocols.pgm.network import GROUP, PATH, Network, Weather

FIELDS = [
    "pgm.hdr.type",
    "pgm.hdr.cksum.status",
    "pgm.spm.sqn",
    "pgm.spm.lead",
    "pgm.nak.sqn",
    "_ws.malformed",
]
GOOD = "1"

pytestmark = pytest.mark.peer("tshark")


def _traffic(options: SourceOptions) -> list[bytes]:
    """Everything that goes over a network with losses, a late comer, fragments and both ends of a session."""
    network = Network(3, 2, Weather(loss=0.15), source=options, packet_size=300)
    sent: list[bytes] = []
    multicast = network.multicast

    def listen(packet: bytes) -> None:
        sent.append(packet)
        multicast(packet)

    network.multicast = listen  # type: ignore[method-assign]
    network.run(0.1)
    network.send([b"odd", b"even", b"x" * 700] * 20)
    network.run(0.01)
    network.join(options=ReceiverOptions(join="window"))
    network.send([b"more"] * 30)
    network.run(3)
    sent += network.upstream + network.source.close() + network.source.close(Reset(3, unanswered=True))
    return [packet for packet in sent if packet[4] != packets.SPMR]  # which tshark does not know


@pytest.mark.parametrize(
    "options",
    [SourceOptions(), SourceOptions(parity_group=8, parity_packets=1, parity_on_demand=True)],
    ids=["without parity", "with parity"],
)
def test_it_reads_everything_as_it_was_meant(options: SourceOptions, tmp_path: Path) -> None:
    sent = _traffic(options)
    assert {packet[4] for packet in sent} >= {
        packets.SPM,
        packets.ODATA,
        packets.RDATA,
        packets.NAK,
        packets.NCF,
    }
    file = tmp_path / "pgm.pcap"
    file.write_bytes(pcap((number, 113, PATH, GROUP, packet) for number, packet in enumerate(sent)))
    command = ["tshark", "-r", str(file), "-o", "pgm.check_checksum:TRUE", "-T", "fields"]
    command += [word for field in FIELDS for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(sent)
    for line, packet in zip(lines, sent, strict=True):
        kind, checksum, number, lead, asked, malformed = line.split("\t")
        meant = packets.decode(packet)
        assert (int(kind, 16), checksum.rpartition(",")[2], malformed) == (meant.kind, GOOD, ""), line
        if isinstance(meant, Data):
            assert int(number, 16) == meant.number
        elif isinstance(meant, SourcePath):
            assert int(lead, 16) == meant.lead
        elif isinstance(meant, Request):
            assert int(asked.partition(",")[0], 16) == meant.numbers[0]
