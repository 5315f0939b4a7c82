"""Addresses: what is one, what is none, and what the error says."""

from __future__ import annotations

import pytest

from kernel.hosting.address import SOCKET_TRANSPORTS, parse_address
from tests.notes import for_each


@pytest.mark.parametrize(
    "text, protocol, transport, host, port",
    [
        ("backend+tcp://127.0.0.1:5555", "backend", "tcp", "127.0.0.1", 5555),
        ("backend+tcp://:0", "backend", "tcp", "", 0),
        ("backend+tls://example.org:443", "backend", "tls", "example.org", 443),
        ("amqp091+tcp://[::1]:5672", "amqp091", "tcp", "::1", 5672),
        ("x-y.z+tcp://localhost:65535", "x-y.z", "tcp", "localhost", 65535),
        ("backend+tcp://my_broker.example.:80", "backend", "tcp", "my_broker.example.", 80),
        (f"backend+tcp://{'x' * 63}:80", "backend", "tcp", "x" * 63, 80),
        ("backend+tcp://b\u00fccher.example:80", "backend", "tcp", "b\u00fccher.example", 80),
    ],
)
def test_network_addresses_are_read(text: str, protocol: str, transport: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert (address.protocol, address.transport, address.host, address.port) == (
        protocol,
        transport,
        host,
        port,
    )
    assert str(address) == text


@pytest.mark.parametrize(
    "text, transport, place",
    [
        ("backend+unix:///run/feed.sock", "unix", "/run/feed.sock"),
        ("backend+unix://relative:odd", "unix", "relative:odd"),
        ("backend+inproc://name", "inproc", "name"),
    ],
)
def test_local_addresses_are_read(text: str, transport: str, place: str) -> None:
    address = parse_address(text)
    assert (address.transport, address.place) == (transport, place)


@for_each(
    "text, says",
    [
        ("", "is no address"),
        ("tcp://127.0.0.1:1", "protocol+transport"),
        ("backend+tcp:127.0.0.1:1", "is no address"),
        ("+tcp://h:1", "is no address"),
        ("backend+tcp://", "is no address"),
        ("backend+://h:1", "no transport ''"),
        ("backend+sctp://h:1", "only tcp, tls, unix, ws, wss, inproc"),
        ("backend+tcp://host", "no host:port"),
        ("backend+tcp://host:", "no host:port"),
        ("backend+tcp://host:-1", "no host:port"),
        ("backend+tcp://host:65536", "the port 65536 is not between 0 and 65535"),
        ("backend+tcp://host:http", "no host:port"),
        ("backend+tcp://::1:80", "stands in brackets"),
        ("backend+tcp://host:\u0665", "no host:port"),
        ("backend+tcp://host:\u00b2", "no host:port"),
        ("backend+tcp://a..b:80", "'a..b' is no name of a host"),
        ("backend+tcp://.:80", "'.' is no name of a host"),
        (f"backend+tls://{'x' * 64}.de:80", "is no name of a host"),
        ("ws+ws://a..b:80/path", "'a..b' is no name of a host"),
        ("backend+tcp://\u00fc..b:80", "is no name of a host"),
    ],
)
def test_a_bad_address_is_refused_and_said_why(text: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert says in str(caught.value)


def test_other_engines_bring_transports_of_their_own() -> None:
    assert parse_address("backend+pgm://239.0.0.1:1", ("pgm",)).transport == "pgm"
    with pytest.raises(ValueError, match="only pgm"):
        parse_address("backend+tcp://h:1", ("pgm",))


@pytest.mark.parametrize(
    "text, read",
    [
        ("there:1", "amqp+tcp://there:1"),
        ("[::1]:1", "amqp+tcp://[::1]:1"),
        ("amqp+tls://there:1", "amqp+tls://there:1"),
        ("amqp+unix:///socket", "amqp+unix:///socket"),
    ],
)
def test_where_one_protocol_alone_is_spoken_it_may_be_left_out(text: str, read: str) -> None:
    assert str(parse_address(text, SOCKET_TRANSPORTS, "amqp")) == read


def test_where_one_protocol_alone_is_spoken_another_is_refused() -> None:
    with pytest.raises(ValueError, match=r"begins with one of amqp\+tcp, amqp\+tls, amqp\+unix$"):
        parse_address("backend+tcp://there:1", SOCKET_TRANSPORTS, "amqp")
