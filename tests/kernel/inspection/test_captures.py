"""Files: pcap and pcapng as scapy writes them, whole, cut short, damaged, and made up."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kernel.inspection.captures import SCAPY, CaptureError, CaptureFile, LiveCapture, Packet
from kernel.inspection.ip_packets import ETHERNET, IPV4_ONLY, RAW
from tests.peers import optional
from tests.seeds import many

inet, l2, utils = optional("scapy.layers.inet"), optional("scapy.layers.l2"), optional("scapy.utils")

pytestmark = pytest.mark.peer("scapy")


MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}  # else scapy would ask the network for them


def datagrams(count: int = 3) -> list[Any]:
    made = [inet.IP(src="192.0.2.1", dst="192.0.2.2") / inet.UDP() / bytes(n) for n in range(count)]
    for number, packet in enumerate(made):
        packet.time = 1_700_000_000 + number / 8
    return made


def read(path: Path) -> tuple[list[Packet], str]:
    capture = CaptureFile(str(path))
    try:
        return list(capture.packets()), capture.complaint
    finally:
        capture.close()


@pytest.mark.parametrize("endian", ["<", ">"])
def test_pcap_of_either_byte_order(endian: str, tmp_path: Path) -> None:
    path = tmp_path / "it.pcap"
    utils.wrpcap(str(path), datagrams(), endianness=endian)
    packets, complaint = read(path)
    assert packets == [Packet(IPV4_ONLY, bytes(each), n / 8, 0) for n, each in enumerate(datagrams())]
    assert complaint == ""


def test_pcap_with_nanoseconds_and_pcapng_and_gzip(tmp_path: Path) -> None:
    expected = [
        Packet(ETHERNET, bytes(l2.Ether(**MACS) / each), n / 8, 0) for n, each in enumerate(datagrams())
    ]
    framed = []
    for each in datagrams():
        framed.append(l2.Ether(**MACS) / each)
        framed[-1].time = each.time
    utils.wrpcap(str(tmp_path / "nano.pcap"), framed, nano=True)
    utils.wrpcapng(str(tmp_path / "it.pcapng"), framed)
    (tmp_path / "it.pcap.gz").write_bytes(gzip.compress((tmp_path / "nano.pcap").read_bytes()))
    for name in ("nano.pcap", "it.pcapng", "it.pcap.gz"):
        packets, complaint = read(tmp_path / name)
        assert (packets, complaint) == (expected, ""), name


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils.wrpcap(str(tmp_path / "it.pcap"), datagrams())
    piped = io.TextIOWrapper(io.BytesIO((tmp_path / "it.pcap").read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert len(read(Path("-"))[0]) == 3


def test_what_the_capture_cut_off_is_known(tmp_path: Path) -> None:
    path = tmp_path / "short.pcap"
    whole = bytes(datagrams()[0])
    path.write_bytes(
        pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 20, 101) + pack("<IIII", 1, 0, 20, 28) + whole[:20]
    )
    assert read(path) == ([Packet(RAW, whole[:20], 0.0, 8)], "")


def test_a_file_that_ends_within_a_packet_says_so(tmp_path: Path) -> None:
    path = tmp_path / "it.pcap"
    utils.wrpcap(str(path), datagrams())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    packets, complaint = read(path)
    assert len(packets) == 3  # of the last, what is there
    assert complaint == f"{path} ends within a packet, after {len(whole) - 1} bytes"


def test_no_capture_at_all(tmp_path: Path) -> None:
    path = tmp_path / "it.pcap"
    for content, why in (
        (b"", "it is empty"),
        (b"GIF89a", "bad magic"),
        (b"\xd4\xc3\xb2\xa1\x02", "too short"),
    ):
        path.write_bytes(content)
        with pytest.raises(CaptureError, match=rf"it.pcap is no capture in pcap or pcapng format: .*{why}"):
            read(path)
    with pytest.raises(CaptureError, match="nowhere cannot be read: No such file"):
        CaptureFile(str(tmp_path / "nowhere"))


def test_a_record_that_announces_gigabytes_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"
    utils.wrpcapng(str(path), datagrams())
    path.write_bytes(path.read_bytes() + pack("<II", 6, 0xFFFF_FFF0) + b"x" * 100)
    packets, complaint = read(path)
    assert len(packets) == 3
    assert "is damaged at byte" in complaint
    assert "a record of 4294967268 bytes" in complaint


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_pipe_can_be_read_packed_or_not(
    by_name: bool, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``kernel inspect <(...)`` has it, or ``... | kernel inspect -``."""
    path = tmp_path / "it.pcap"
    utils.wrpcap(str(path), datagrams())
    data = gzip.compress(path.read_bytes()) if packed else path.read_bytes()
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    with open(reading, "rb") as pipe:
        if not by_name:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        packets, complaint = read(Path(f"/dev/fd/{reading}" if by_name else "-"))
    assert [packet.data for packet in packets] == [bytes(each) for each in datagrams()]
    assert complaint == ""


def test_packets_are_given_as_they_come_through_a_pipe() -> None:
    """Not only when thousands of bytes have come."""
    reading, writing = os.pipe()
    head = pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW)
    os.write(writing, head + pack("<IIII", 1, 0, 4, 4) + b"\x45xyz")
    capture = CaptureFile(f"/dev/fd/{reading}")
    os.close(reading)
    assert next(capture.packets()).data == b"\x45xyz"
    os.close(writing)
    capture.close()


@pytest.mark.parametrize("name", ["it.pcap", "it.pcapng", "it.pcap.gz"])
@pytest.mark.parametrize("seed", many(0, 10))
def test_damaged_files_are_read_or_refused(name: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = tmp_path / name.removesuffix(".gz")
    (utils.wrpcapng if name.endswith("ng") else utils.wrpcap)(str(path), datagrams())
    good = path.read_bytes()
    good = gzip.compress(good) if name.endswith(".gz") else good
    for _ in range(30):
        damaged = bytearray(good[: chance.randint(1, len(good))])
        for _ in range(chance.randrange(6)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        path.write_bytes(damaged)
        try:
            packets, _ = read(path)
        except CaptureError:
            continue
        assert all(isinstance(packet.time, float) for packet in packets)


def test_an_interface_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(CaptureError, match="there is no interface 'nowhere0'; there are: lo"):
        LiveCapture("nowhere0")


def test_without_the_right_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("scapy.arch.linux.L2Socket.__init__", refused)
    monkeypatch.setattr("scapy.arch.linux.L2Socket.__del__", lambda self: None)
    with pytest.raises(
        CaptureError, match=r"listening at lo takes the right .*CAP_NET_RAW.*tcpdump -w FILE -i lo"
    ):
        LiveCapture("lo")


def test_without_scapy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    SCAPY.need()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        Exception, match=r"^kernel inspect needs scapy: pip install 'messaging-kernel\[inspect\]'$"
    ):
        SCAPY.need()
