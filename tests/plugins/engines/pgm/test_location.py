"""Addresses of PGM, good and bad."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from plugins.engines.pgm.location import Location, parse_pgm_address
from tests.notes import for_each


@pytest.mark.parametrize(
    "text, location",
    [
        ("zmtp1+epgm://eth0;239.192.1.1:5555", Location("eth0", ip_address("239.192.1.1"), 5555)),
        ("zmtp1+pgm://10.0.0.0/8;239.192.1.1:7500", Location("10.0.0.0/8", ip_address("239.192.1.1"), 7500)),
        ("backend+epgm://239.192.1.1:1", Location("", ip_address("239.192.1.1"), 1)),
        ("backend+epgm://fe80::1;[ff15::1]:5", Location("fe80::1", ip_address("ff15::1"), 5)),
    ],
)
def test_good_ones(text: str, location: Location) -> None:
    assert parse_pgm_address(text)[1] == location


@for_each(
    "text, complaint",
    [
        ("epgm://eth0;239.192.1.1:5555", "protocol[+]transport"),
        ("zmtp1+tcp://eth0;239.192.1.1:5555", "no transport 'tcp'"),
        ("amqp+epgm://eth0;239.192.1.1:5555", "zmtp1 or backend"),
        ("zmtp1+epgm://eth0;239.192.1.1", "interface;group:port"),
        ("zmtp1+epgm://eth0;239.192.1.1:0", "interface;group:port"),
        ("zmtp1+epgm://eth0;239.192.1.1:x", "interface;group:port"),
        ("zmtp1+epgm://eth0;group:5555", "no address of a group"),
        ("zmtp1+epgm://eth0;10.0.0.1:5555", "no multicast address"),
    ],
)
def test_bad_ones_say_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_pgm_address(text)
