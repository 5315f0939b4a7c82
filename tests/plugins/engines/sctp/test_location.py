"""Addresses of SCTP engines."""

from __future__ import annotations

import pytest

from plugins.engines.sctp.location import Location, parse_sctp_address
from tests.notes import for_each


@pytest.mark.parametrize(
    "text,framing,place",
    [
        ("backend+sctp://10.0.0.1:5000", "backend", Location(("10.0.0.1",), 5000, None)),
        ("plain+sctp://a.example,10.0.0.2:7/9900", "plain", Location(("a.example", "10.0.0.2"), 7, 9900)),
        ("backend+sctp://[::1],127.0.0.1:0/0", "backend", Location(("::1", "127.0.0.1"), 0, 0)),
        ("backend+sctp://:5000", "backend", Location(("",), 5000, None)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, framing: str, place: Location) -> None:
    address, found = parse_sctp_address(text)
    assert (address.protocol, found) == (framing, place)
    assert f"{framing}+sctp://{found}" == text


@for_each(
    "text,why",
    [
        ("backend+tcp://10.0.0.1:5000", "no transport 'tcp' here"),
        ("zmtp+sctp://10.0.0.1:5000", "as backend or plain"),
        ("backend+sctp://10.0.0.1", "is no host,host:port/udp-port"),
        ("backend+sctp://10.0.0.1:70000", "is no host,host:port/udp-port"),
        ("backend+sctp://10.0.0.1:5000/x", "is no host,host:port/udp-port"),
        ("backend+sctp://::1:5000", "in brackets"),
        ("backend+sctp://[zz]:5000", "is not an IPv6 address"),
        ("backend+sctp://,10.0.0.1:5000", "must be the only one"),
    ],
)
def test_a_wrong_address_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_sctp_address(text)
