"""tshark reads what our endpoints send: nothing malformed, every checksum right, the same chunks; inspect counts the same."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kernel.cli.inspect import command
from tests.captures import pcap
from tests.plugins.protocols.sctp.network import QUICK, Network, Side, Weather, address

pytestmark = [pytest.mark.peer("tshark"), pytest.mark.peer("scapy")]

FIELDS = ["sctp.chunk_type", "sctp.checksum.status", "sctp.data_tsn_raw", "_ws.malformed"]
GOOD = "1"
MESSAGES = 60


class Recorded(Network):
    """Keeps what was sent, as a capture next to the senders would have it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sent: list[tuple[float, int, bytes, bytes, bytes]] = []

    def _carry(self, side: Side, other: Side, packet: bytes, path: int) -> None:
        source, target = address(side.number, path), address(other.number, path)
        self.sent.append((self.now, 132, source, target, packet))
        super()._carry(side, other, packet, path)


def traffic() -> Recorded:
    """Set-up, messages of all sizes both ways with losses, and the shutdown."""
    network = Recorded(3, Weather(loss=0.1), a=QUICK, b=QUICK)
    ours, theirs = network.open()
    for number in range(MESSAGES):
        ours.send(stream=number % 3, data=bytes(number * 60 + 1))
        theirs.send(stream=0, data=b"answer")
        network.run(0.05)
    network.run_until(lambda: len(network.b.messages) == MESSAGES == len(network.a.messages))
    ours.close(network.now)
    network.run(10)
    return network


def test_tshark_and_inspect_read_everything_as_it_was_meant(tmp_path: Path) -> None:
    network = traffic()
    file = tmp_path / "sctp.pcap"
    file.write_bytes(pcap(network.sent))
    reading = ["tshark", "-r", str(file), "-o", "sctp.checksum:CRC 32c", "-T", "fields"]
    reading += [word for field in FIELDS for word in ("-e", field)]
    done = subprocess.run(reading, capture_output=True, text=True, check=True)
    packets = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(packets) == len(network.sent)
    assert {(checksum, malformed) for _, checksum, _, malformed in packets} == {(GOOD, "")}
    kinds = Counter(kind for line in packets for kind in line[0].split(","))
    numbers = Counter(
        (packet[2], number)
        for line, packet in zip(packets, network.sent, strict=True)
        for number in line[2].split(",")
        if number
    )
    shown = CliRunner().invoke(command, [str(file), "--json"], catch_exceptions=False).output.splitlines()
    lines = [json.loads(line) for line in shown]
    row = lines.pop()
    assert kinds == Counter(str(NUMBERS[line["what"]]) for line in lines)
    assert row["chunks_out"] + row["chunks_in"] == sum(numbers.values())
    assert row["retransmitted"] == sum(numbers.values()) - len(numbers) > 0
    assert (row["messages_out"], row["messages_in"]) == (MESSAGES, MESSAGES)
    assert row["bytes_out"] == sum(number * 60 + 1 for number in range(MESSAGES))
    assert (row["missing"], row["malformed"], row["wrong_checksums"], row["end"]) == (0, 0, 0, "shutdown")


NUMBERS = {
    "DATA": 0, "I-DATA": 64, "INIT": 1, "INIT ACK": 2, "SACK": 3, "HEARTBEAT": 4, "HEARTBEAT ACK": 5, "ABORT": 6, "SHUTDOWN": 7,
    "SHUTDOWN ACK": 8, "COOKIE ECHO": 10, "COOKIE ACK": 11, "SHUTDOWN COMPLETE": 14, "PAD": 132,
}  # fmt: skip
"""Types of chunks (RFC 9260, 3.2; 4820; 8260)."""
