"""Heartbeats of the server, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable

from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from tests.plugins.engines.amqp.still_host import StillServer


def test_the_first_one_is_sent_in_time_however_long_the_handshake_might_have_taken(
    still: Callable[..., StillServer],
) -> None:
    server = still(heartbeat=2, handshake_seconds=60.0)
    client = server.connect(heartbeat=2)
    client.read_all()
    before = client.hosted.bytes_out
    server.host.pass_time(3)
    assert client.hosted.bytes_out > before
    assert not client.hosted.ended


def test_a_client_is_not_silent_because_the_thread_was_busy(still: Callable[..., StillServer]) -> None:
    server = still(heartbeat=2)
    client = server.connect(heartbeat=2)
    client.wire.send(HEARTBEAT_FRAME)
    server.host.clock += 10  # what it has sent waits in the socket
    server.host.pass_time(0)
    assert not client.hosted.ended
    server.host.pass_time(5)
    assert client.hosted.ended
