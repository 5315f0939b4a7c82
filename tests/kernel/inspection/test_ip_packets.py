"""Links, IP, UDP and TCP: what scapy builds is read, and any bytes are read or counted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.dissector import Datagram
from kernel.inspection import ip_packets
from kernel.inspection.ip_packets import IpPackets
from kernel.inspection.tcp import Segment
from tests.peers import optional
from tests.seeds import many

base = optional("scapy.packet")
inet, inet6, l2 = optional("scapy.layers.inet"), optional("scapy.layers.inet6"), optional("scapy.layers.l2")

pytestmark = pytest.mark.peer("scapy")

MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}  # else scapy would ask the network for them
V4 = {"src": "192.0.2.1", "dst": "198.51.100.9"}
V6 = {"src": "2001:db8::1", "dst": "ff15::5555"}


def _built() -> dict[str, tuple[int, Any]]:
    ip, ip6, udp = inet.IP, inet6.IPv6, inet.UDP(sport=7, dport=8)
    return {
        "raw": (ip_packets.RAW, ip(**V4) / udp / b"data"),
        "raw, version 6": (ip_packets.RAW, ip6(**V6) / udp / b"data"),
        "Ethernet, filled up": (
            ip_packets.ETHERNET,
            l2.Ether(**MACS) / ip(**V4) / udp / b"data" / base.Padding(bytes(14)),
        ),
        "two VLANs": (
            ip_packets.ETHERNET,
            l2.Ether(**MACS) / l2.Dot1AD() / l2.Dot1Q() / ip6(**V6) / udp / b"data",
        ),
        "cooked": (ip_packets.LINUX_COOKED, l2.CookedLinux() / ip(**V4) / udp / b"data"),
        "cooked, version 2": (ip_packets.LINUX_COOKED_2, l2.CookedLinuxV2() / ip(**V4) / udp / b"data"),
        "null": (ip_packets.NULL, l2.Loopback() / ip(**V4) / udp / b"data"),
        "options of IP": (ip_packets.RAW, ip(options=[inet.IPOption_Router_Alert()], **V4) / udp / b"data"),
        "extension headers": (
            ip_packets.RAW,
            ip6(**V6) / inet6.IPv6ExtHdrHopByHop() / inet6.IPv6ExtHdrDestOpt() / udp / b"data",
        ),
    }


@pytest.mark.parametrize("name", list(_built()) if inet else [])
def test_datagrams_are_found_on_every_link(name: str) -> None:
    link, packet = _built()[name]
    read = IpPackets().read(link, bytes(packet), 1.5, 0)
    addresses = V6 if packet.haslayer(inet6.IPv6) else V4
    assert read == (
        17,
        Datagram(
            time=1.5,
            source=addresses["src"],
            destination=addresses["dst"],
            source_port=7,
            destination_port=8,
            data=b"data",
        ),
    )


def test_a_segment_of_tcp_with_options() -> None:
    tcp = inet.TCP(sport=1, dport=2, seq=3, ack=4, flags="PA", options=[("Timestamp", (1, 2))])
    packet = bytes(inet.IP(**V4) / tcp / b"data")
    expected = Segment(
        time=0.0,
        source=(V4["src"], 1),
        destination=(V4["dst"], 2),
        number=3,
        acknowledged=4,
        data=b"data",
    )
    assert IpPackets().read(ip_packets.RAW, packet, 0.0, 0) == (6, expected)
    segmented_later = packet[:2] + b"\0\0" + packet[4:]  # at the sender, a packet that its card will cut
    assert IpPackets().read(ip_packets.RAW, segmented_later, 0.0, 0) == (6, expected)


@pytest.mark.parametrize("number", [113, 132])
def test_what_ip_carries_itself(number: int) -> None:
    for packet in (inet.IP(proto=number, **V4) / b"data", inet6.IPv6(nh=number, **V6) / b"data"):
        read = IpPackets().read(ip_packets.RAW, bytes(packet)[:-3], 0.0, 3)
        assert read is not None
        assert (read[0], read[1].data, read[1].cut) == (number, b"d", 3)


_TCP_IN_ETHERNET = {
    "nothing but the link's filling": ("", b"", base.Padding(bytes(6)) if base else None, 56, b"", 0),
    "a header": ("with options", b"", None, 60, b"", 0),
    "a header and data": ("with options", b"12345", None, 60, b"", 5),
    "data": ("with options", b"12345", None, 68, b"12", 3),
    "data and filling": ("", b"12345", base.Padding(b"\0") if base else None, 55, b"1", 4),
}


@pytest.mark.parametrize("name", _TCP_IN_ETHERNET)
@pytest.mark.parametrize("version", [4, 6])
def test_missing_is_what_was_cut_off_of_the_data(name: str, version: int) -> None:
    options, data, filling, length, left, missing = _TCP_IN_ETHERNET[name]
    told = [("NOP", 0), ("NOP", 0), ("Timestamp", (1, 2))] if options else []
    ip = inet.IP(**V4) if version == 4 else inet6.IPv6(**V6)
    packet = l2.Ether(**MACS) / ip / inet.TCP(sport=1, dport=2, options=told) / data
    whole = bytes(packet / filling if filling else packet)
    length += 20 if version == 6 else 0
    read = IpPackets().read(ip_packets.ETHERNET, whole[:length], 0.0, len(whole) - length)
    assert read is not None
    assert (read[1].data, read[1].cut) == (left, missing)


def test_of_a_datagram_that_is_whole_nothing_is_missing() -> None:
    packet = l2.Ether(**MACS) / inet.IP(**V4) / inet.UDP(sport=1, dport=2) / b"data" / base.Padding(bytes(14))
    read = IpPackets().read(ip_packets.ETHERNET, bytes(packet)[:50], 0.0, 10)
    assert read is not None
    assert (read[1].data, read[1].cut) == (b"data", 0)


def test_fragments_and_others_are_counted() -> None:
    packets = IpPackets()
    for fragment in inet.fragment(inet.IP(**V4) / inet.UDP() / bytes(3000), 1000):
        assert packets.read(ip_packets.RAW, bytes(fragment), 0.0, 0) is None
    assert (
        packets.read(ip_packets.RAW, bytes(inet6.IPv6() / inet6.IPv6ExtHdrFragment(m=1) / b"x"), 0.0, 0)
        is None
    )
    assert packets.read(ip_packets.ETHERNET, bytes(l2.Ether(**MACS) / l2.ARP()), 0.0, 0) is None
    assert packets.read(147, b"a link of a type that nobody knows", 0.0, 0) is None
    assert (packets.fragments, packets.other) == (5, 2)


@given(st.binary(max_size=80), st.sampled_from([0, 1, 101, 113, 276]))
def test_any_bytes_are_read_or_counted(data: bytes, link: int) -> None:
    packets = IpPackets()
    assert (packets.read(link, data, 0.0, 0) is None) == (packets.fragments + packets.other == 1)


@pytest.mark.parametrize("seed", many(0, 10))
def test_damaged_packets_are_read_or_counted(seed: int) -> None:
    chance = random.Random(seed)
    built = [(link, bytes(packet)) for link, packet in _built().values()]
    packets = IpPackets()
    for _ in range(500):
        link, good = chance.choice(built)
        packet = bytearray(good[: chance.randint(0, len(good))])
        for _ in range(min(len(packet), 3)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        packets.read(link, bytes(packet), 0.0, 0)
