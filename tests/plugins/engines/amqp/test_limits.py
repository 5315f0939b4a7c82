"""Limits: how many may come, how fast, and how fast they may publish.  The clock is in the test's hand."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pika.exceptions
import pytest

from kernel.contracts.message import Batch, Envelope
from plugins.engines.broker.host.options import QueueOptions, User
from plugins.engines.broker.host.rates import Bucket
from plugins.protocols.amqp091.frames import BODY
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import frame
from tests.plugins.engines.amqp.still_host import StillServer


def test_a_bucket_gives_its_rate_and_as_much_at_once() -> None:
    bucket = Bucket(2.0, 10.0)
    assert [bucket.take_one(10.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take_one(10.5), bucket.take_one(10.5)] == [True, False]
    assert [bucket.take_one(99.0) for _ in range(3)] == [True, True, False]


def test_a_slow_bucket_gives_one_at_a_time() -> None:
    bucket = Bucket(0.1, 0.0)
    assert [bucket.take_one(now) for now in (0.0, 9.0, 10.0, 11.0)] == [True, False, True, False]


def test_a_bucket_that_is_overdrawn_says_how_long_to_wait() -> None:
    bucket = Bucket(100.0, 0.0)
    assert bucket.take(100, 0.0) == 0
    assert bucket.take(250, 0.0) == 2.5
    assert bucket.take(0, 1.0) == 1.5
    assert bucket.take(0, 2.5) == 0


def test_connections_that_come_too_fast_are_hung_up_on(still: Callable[..., StillServer]) -> None:
    server = still(connections_per_second=2)
    port = int(server.address.rpartition(":")[2])

    def seen() -> tuple[int, int]:
        figures = server.engine.statistics()
        return figures["accepted"], figures["refused"]

    def come() -> tuple[int, int]:
        before = seen()
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            while seen() == before:  # the system hands it over when it likes
                server.host.turn()
        return seen()

    assert [come() for _ in range(3)] == [(1, 0), (2, 0), (2, 1)]
    server.host.pass_time(0.5)
    assert [come() for _ in range(2)] == [(3, 1), (3, 2)]


def test_a_connection_is_read_no_faster_than_it_may_publish(still: Callable[..., StillServer]) -> None:
    server = still(publish_rate=100, heartbeat=1, queues=(QueueOptions(name="q"),))
    publisher = server.connect(heartbeat=1)
    publisher.connection.publish(1, Batch([bytes(1000)] * 600, 600_000, Envelope(key="q")))
    publisher.write()
    ready = server.engine.broker.vhost("/").queues["q"].backlog
    server.host.process()
    assert 100 < ready.count < 110
    assert [row["state"] for row in server.engine.inspect("connections")] == ["flow"]
    seen = []
    for _ in range(5):
        server.host.pass_time(1.0)
        publisher.write()
        server.host.process()
        seen.append(ready.count)
    assert seen == pytest.approx([200, 300, 400, 500, 600], abs=10)
    assert publisher.hosted.is_open, "it was not silent: it was not read"


def test_a_connection_that_ends_while_it_waits_is_forgotten(still: Callable[..., StillServer]) -> None:
    server = still(publish_rate=1)
    publisher = server.connect()
    publisher.connection.publish(1, Batch([b"x"] * 50, 50, Envelope(key="q")))
    publisher.write()
    server.host.process()
    assert [row["state"] for row in server.engine.inspect("connections")] == ["flow"]
    publisher.hosted.hang_up("the test is over")
    server.host.pass_time(100)
    assert server.engine.inspect("connections") == []


@pytest.mark.peer("pika")
def test_a_user_may_have_so_many_connections(serve: Callable[..., Server]) -> None:
    server = serve(users={"eve": User(password="p", max_connections=2), "adam": User(password="p")})
    first, _ = server.connect("eve", "p"), server.connect("eve", "p")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        server.connect("eve", "p")
    text = "NOT_ALLOWED - connection refused for user 'eve': user connection limit (2) is reached"
    assert text in str(refused.value)  # RabbitMQ's words
    assert server.connect("adam", "p").is_open
    first.close()
    assert server.connect("eve", "p").is_open


@pytest.mark.parametrize("answers", [True, False])
def test_the_event_of_the_end_says_why_the_server_has_closed(
    still: Callable[..., StillServer], answers: bool
) -> None:
    server = still()
    client = server.connect()
    client.send_octets(frame(BODY, 1, b"x"))
    server.host.process()
    client.read()
    if answers:
        client.write()
        server.host.process()
    client.wire.close()
    while server.host.turn():
        pass
    ended = server.host.events[-1]
    assert ended.what == "disconnected"
    assert ended.detail.startswith("505 UNEXPECTED_FRAME - expected method frame")


def test_a_client_that_is_gone_at_the_end_is_gone_once(still: Callable[..., StillServer]) -> None:
    server = still()
    client = server.connect()
    came = client.hosted.bytes_in
    client.wire.close()
    server.engine.stop()
    assert [event.what for event in server.host.events] == ["connected", "disconnected"]
    assert server.engine.statistics()["bytes_in"] == came
