"""A packet that a client has begun and not finished counts as memory of the broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from plugins.engines.broker.alarms import PERIOD
from plugins.engines.broker.host.alarm_watch import MEMORY_SECONDS
from plugins.engines.broker.public import StreamClient
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Disconnect
from tests.plugins.engines.mqtt.raw_client import RawClient, publish
from tests.plugins.engines.mqtt.still_server import StillServer

MEGABYTE = 1_000_000


@pytest.fixture
def small(still: Callable[..., StillServer]) -> StillServer:
    """Messages may take a megabyte."""
    return still(memory_limit=0, queued_limit=MEGABYTE)


def connect(server: StillServer, version: int) -> tuple[RawClient, StreamClient]:
    """Return a client, and what the broker has of it."""
    before = set(server.engine.clients)
    client = server.connect(version)
    (hosted,) = set(server.engine.clients) - before
    assert isinstance(hosted, StreamClient)
    return client, hosted


def begin(server: StillServer, client: RawClient, size: int) -> bytes:
    """Send the first half of a packet with a payload of twice the size; return the other half."""
    octets = encode(publish("t", bytes(2 * size)), client.version)
    for start in range(0, size, 65536):
        # What the broker does not read fills the socket.
        with suppress(TimeoutError):
            client.wire.sendall(octets[start : min(start + 65536, size)])
        server.process()
    return octets[size:]


def test_half_a_packet_counts_until_it_is_whole(small: StillServer, version: int) -> None:
    client, hosted = connect(small, version)
    client.subscribe("t")
    rest = begin(small, client, 1000)
    assert hosted.unpublished_bytes == 1000
    client.send_bytes(rest)
    assert hosted.unpublished_bytes == 0
    client.expect_message("t", bytes(2000))


def test_who_holds_memory_is_blocked_and_then_closed(small: StillServer, version: int) -> None:
    """It cannot finish what it has begun, since it is not read, and nobody else can free the memory."""
    (culprit, held), (victim, other) = connect(small, version), connect(small, version)
    reader, _ = connect(small, version)
    reader.subscribe("t")
    begin(small, culprit, MEGABYTE + 1)
    rest = begin(small, victim, 1000)
    small.pass_time(PERIOD)
    victim.send_bytes(rest[:1])
    assert small.engine.alarm_watch.alarms.raised == ("memory",)
    small.pass_time(MEMORY_SECONDS - PERIOD)
    assert (held.is_open, other.is_open) == (True, True)
    small.pass_time(2 * PERIOD)
    assert (held.is_open, other.is_open) == (False, True)
    if version == 5:
        said = culprit.expect(Disconnect)
        assert "low on memory: 1,000," in said.properties.reason_string
    culprit.expect_close()
    victim.send_bytes(rest[1:])
    reader.expect_message("t", bytes(2000))
