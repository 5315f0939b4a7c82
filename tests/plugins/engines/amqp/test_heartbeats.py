"""Heartbeats of the server, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable

from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.still_host import StillServer
from tests.plugins.engines.broker.client import run


def test_the_first_one_is_sent_in_time_however_long_the_handshake_might_have_taken(
    still: Callable[..., StillServer],
) -> None:
    server = still(heartbeat=2, handshake_seconds=60.0)
    client = server.connect(heartbeat=2)
    client.read_all()
    before = client.hosted.bytes_out
    server.host.pass_time(3)
    assert client.hosted.bytes_out > before
    assert client.hosted.is_open


def test_a_client_is_not_silent_because_the_thread_was_busy(still: Callable[..., StillServer]) -> None:
    server = still(heartbeat=2)
    client = server.connect(heartbeat=2)
    client.wire.send(HEARTBEAT_FRAME)
    server.host.clock += 10  # what it has sent waits in the socket
    server.host.pass_time(0)
    assert client.hosted.is_open
    server.host.pass_time(7)
    assert not client.hosted.is_open


def test_a_silent_client_is_given_up_though_it_has_not_read_what_was_written(
    still: Callable[..., StillServer],
) -> None:
    server = still(heartbeat=2)
    client = server.connect(heartbeat=2)
    client.ask(queue.Declare(queue="q"), queue.DeclareOk)
    client.connection.publish(1, run(b"x" * 4_000_000, key="q"))
    client.flush()
    client.send(basic.Consume(queue="q"))
    server.host.process()
    assert client.hosted.writing
    server.host.pass_time(7)
    assert not client.hosted.is_open
    server.engine.finish_turn(server.host.now())
    assert server.engine.broker.vhost("/").queues["q"].backlog.count == 1
