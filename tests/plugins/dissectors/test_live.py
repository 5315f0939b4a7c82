"""Live, in a network of the test's own: pika with a broker, libzmq's epgm with losses; what tshark captures is counted the same."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.lan import INTERFACE, Lan

pytestmark = [pytest.mark.peer("namespaces"), pytest.mark.peer("scapy"), pytest.mark.slow]

GROUP, PORT = "239.192.1.1", 5555
LIBZMQ, KERNEL = "tests.plugins.engines.pgm.libzmq_peer", "tests.plugins.engines.pgm.kernel_peer"
MESSAGES = 200
TIMEOUT = 60.0

PUBLISHER = """
import pika
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", 5672))
channel = connection.channel()
channel.confirm_delivery()
queue = channel.queue_declare("", exclusive=True).method.queue
for number in range(20):
    channel.basic_publish("", queue, b"x" * number * 10_000, pika.BasicProperties(headers={"n": number}))
for number in range(20):
    method, _, body = channel.basic_get(queue)
    assert len(body) == number * 10_000
    channel.basic_ack(method.delivery_tag)
connection.close()
"""


@pytest.fixture
def network() -> Iterator[Lan]:
    with Lan(2) as made:
        yield made


class Inspecting:
    """A ``kernel inspect --live``, which is listening."""

    def __init__(self, network: Lan, member: int, *arguments: str) -> None:
        command = f"exec python -m kernel inspect --json {' '.join(arguments)} 2>&1"
        self.program = network.start(member, ["sh", "-c", command.replace("python", _python(), 1)])
        self.lines: list[dict[str, Any]] = []
        assert self.program.stdout is not None
        self._output = self.program.stdout
        assert self._output.readline().startswith("kernel: capturing at ")

    def until(self, what: str) -> None:
        """Read lines until there is one that is called so."""
        while not self.lines or self.lines[-1].get("what") != what:
            self.lines.append(json.loads(self._output.readline()))

    def end(self) -> dict[str, Any]:
        """Press Ctrl-C; return the one row of the table."""
        self.program.send_signal(signal.SIGINT)
        rest = list(self._output)
        assert self.program.wait(60) == 0
        assert not [line for line in rest if "faster than they could be read" in line]
        self.lines += [json.loads(line) for line in rest if not line.startswith("kernel: ")]
        (row,) = [line for line in self.lines if "summary" in line]
        return row


def _python() -> str:
    import sys

    return sys.executable


@pytest.mark.peer("pika")
def test_pika_and_a_broker(network: Lan, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text(
        '[engines.broker]\nkind = "amqp"\naddress = "127.0.0.1:5672"\n[engines.broker.users.guest]\npassword = "guest"\n'
    )
    inspecting = Inspecting(network, 0, "--live", "lo")
    broker = network.python(0, "kernel", "run", tmp_path / "broker.toml")
    assert broker.stdout is not None
    while "ready" not in (line := broker.stdout.readline()):
        assert line, "the broker has ended"
    client = network.start(0, [_python(), "-c", PUBLISHER])
    assert client.wait(60) == 0
    inspecting.until("connection.close-ok")
    row = inspecting.end()
    said = Counter(line["what"] for line in inspecting.lines if "what" in line)
    assert said["basic.publish"] == said["basic.get-ok"] == 20
    published = [line["facts"] for line in inspecting.lines if line.get("what") == "basic.publish"]
    assert [(facts["bytes"], facts["headers"]["n"]) for facts in published] == [
        (n * 10_000, n) for n in range(20)
    ]
    assert (row["published"], row["delivered"], row["bytes_published"]) == (20, 20, 1_900_000)
    assert (row["malformed"], row["missing_bytes"], row["skipped_bytes"]) == (0, 0, 0)
    assert row["confirm_max_ms"] > 0


@pytest.mark.peer("libzmq with PGM")
@pytest.mark.peer("nft")
@pytest.mark.peer("tshark")
@pytest.mark.parametrize(
    "publisher, subscriber", [(LIBZMQ, KERNEL), (KERNEL, LIBZMQ)], ids=["libzmq", "kernel"]
)
def test_epgm_with_losses_as_tshark_captures_it(
    publisher: str, subscriber: str, network: Lan, tmp_path: Path
) -> None:
    network.lose(1, 10.0, PORT, every=True)
    file = tmp_path / "epgm.pcapng"
    tshark = network.start(0, ["sh", "-c", f"exec tshark -q -i {INTERFACE} -w {file} 2>&1"])
    inspecting = Inspecting(network, 0, "--live", INTERFACE, "--protocol", "pgm")
    assert tshark.stdout is not None
    while "Capturing" not in tshark.stdout.readline():
        assert tshark.poll() is None
    listening = network.python(1, subscriber, "subscribe", _where(subscriber, 1), MESSAGES)
    assert listening.stdout is not None
    assert listening.stdout.readline() == "ready\n"
    source = network.python(0, publisher, "publish", _where(publisher, 0), MESSAGES, 100, 0.002)
    assert source.stdin is not None
    source.stdin.write("go\n")
    source.stdin.flush()
    assert sum(1 for _, _ in zip(range(MESSAGES), listening.stdout, strict=False)) == MESSAGES
    source.stdin.write("enough\n")
    source.stdin.close()
    assert source.wait(60) == 0
    live = inspecting.end()
    _until_written(file, live["repaired"])
    tshark.send_signal(signal.SIGINT)
    assert tshark.wait(60) == 0
    assert live["asked"] == live["repaired"] > 0
    assert (live["malformed"], live["missing"]) == (0, 0)
    assert live["repair_max_ms"] > 0
    _tshark_agrees(file, one_by_one=publisher == LIBZMQ)


def _where(peer: str, member: int) -> str:
    if peer == LIBZMQ:  # by address: OpenPGM asks a name server for names
        return f"epgm://{Lan.address(member)};{GROUP}:{PORT}"
    return f"zmtp1+epgm://{INTERFACE};{GROUP}:{PORT}"


def _until_written(file: Path, repaired: int) -> None:
    """Wait for what tshark has captured and not written yet: it does not when it is interrupted."""
    deadline = monotonic() + TIMEOUT
    while (row := _row(file, check=False)) is None or row["repaired"] < repaired:
        assert monotonic() < deadline, f"{row}, where {repaired} repairs should be"


def _row(file: Path, *, check: bool = True) -> dict[str, Any] | None:
    """Return what ``kernel inspect`` says of the file's one conversation; None where it is not there yet."""
    command = [_python(), "-m", "kernel", "inspect", str(file), "--json", "--protocol", "pgm"]
    shown = subprocess.run(command, capture_output=True, text=True, check=check)
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    return lines[-1] if lines and "repaired" in lines[-1] else None


def _tshark_agrees(file: Path, *, one_by_one: bool) -> None:
    """Its dissector finds nothing malformed, and as many packets of each type as ours.

    Unless they are sent together, for the system to cut (UDP_SEGMENT): there tshark sees the first only.
    """
    ports = [f"pgm.udp.encap_{cast}_port:{PORT}" for cast in ("mcast", "ucast")]
    reading = [
        "tshark",
        "-r",
        str(file),
        "-Y",
        "pgm",
        "-T",
        "fields",
        "-e",
        "pgm.hdr.type",
        "-e",
        "_ws.malformed",
    ]
    done = subprocess.run(
        [*reading, "-o", ports[0], "-o", ports[1]], capture_output=True, text=True, check=True
    )
    theirs = Counter(line.rstrip("\t") for line in done.stdout.splitlines())
    row = _row(file)
    assert row is not None
    ours = Counter({f"0x{kind:02x}": row[name] for name, kind in TYPES.items() if row[name]})
    found = Counter({kind: count for kind, count in theirs.items() if kind in ours})
    assert found == ours if one_by_one else found <= ours
    assert set(theirs) - set(ours) <= {"0x0c"}
    assert row["asked"] == row["repaired"] > 0
    assert row["malformed"] == 0


TYPES = {"spm": 0, "odata": 4, "rdata": 5, "nak": 8, "ncf": 10}
"""RFC 3208, 8."""
