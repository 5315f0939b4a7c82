"""What one client does to the others: nothing that they would notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.contracts.message import Batch, Envelope
from plugins.engines.amqp.channel import Channel
from plugins.engines.broker.host.stream_client import WINDOW_BYTES
from plugins.engines.broker.queue import Queue
from plugins.protocols.amqp091.events import Acknowledged, Delivered
from plugins.protocols.amqp091.methods import basic, confirm, queue
from tests.plugins.engines.amqp.still_host import StillClient, StillServer

CHANNELS = 10_000
WIRE_BYTES = 1 << 20
"""What a socket pair takes, at the most."""


@pytest.fixture
def server(still: Callable[..., StillServer]) -> StillServer:
    return still(channel_max=CHANNELS)


def publish(client: StillClient, body: bytes, key: str, count: int = 1) -> None:
    client.connection.publish(1, Batch([body] * count, count * len(body), Envelope(key=key)))
    client.write()


def received(client: StillClient) -> int:
    return sum(len(event.batch) for event in client.read_all() if isinstance(event, Delivered))


@pytest.mark.slow
@pytest.mark.parametrize("size, count", [(1000, 10_000), (1, 200_000), (0, 50_000)])
def test_a_consumer_that_never_reads_costs_its_window_and_the_others_nothing(
    server: StillServer, size: int, count: int
) -> None:
    body = bytes(size)
    stuck, lively, publisher = server.connect(), server.connect(), server.connect()
    for consumer in (stuck, lively):
        consumer.ask(queue.Declare(queue="q"), queue.DeclareOk)
        consumer.ask(basic.Consume(queue="q", no_ack=True), basic.ConsumeOk)
    publish(publisher, body, "q", count)
    got = received(lively)
    while publisher.unwritten:
        publisher.write()
        got += received(lively)
    assert stuck.hosted.unwritten <= 2 * WINDOW_BYTES
    assert got >= count - (2 * WINDOW_BYTES + WIRE_BYTES) // (size + 64)
    assert server.engine.broker.vhost("/").queues["q"].backlog.count == 0


@pytest.mark.slow
def test_a_firehose_gets_one_read_in_a_turn(server: StillServer) -> None:
    """However much it sends: what comes in the same turn from others is answered in that turn."""
    firehose, other = server.connect(), server.connect()
    other.ask(queue.Declare(queue="q"), queue.DeclareOk)
    publish(firehose, bytes(100), "nowhere", 100_000)
    turns = 0
    while firehose.unwritten:
        other.send(basic.Qos())
        before = firehose.hosted.bytes_in
        server.host.turn()
        firehose.write()
        assert firehose.hosted.bytes_in - before <= 256 * 1024
        assert len(other.read()) == 1
        turns += 1
    assert turns > 10


@pytest.mark.slow
def test_ten_thousand_channels_are_served_in_turn_and_only_as_far_as_the_window_goes(
    server: StillServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, other = server.connect(channel_max=0), server.connect()
    for number in range(2, CHANNELS + 1):
        many.connection.open_channel(number)
    many.flush()
    many.read()
    for number in range(1, CHANNELS + 1):
        many.connection.send_method(number, queue.Declare(queue=f"q{number}", nowait=True))
        many.connection.send_method(number, basic.Consume(queue=f"q{number}", no_ack=True, nowait=True))
    many.flush()
    many.read()
    body = bytes(1000)
    for number in range(1, CHANNELS + 1):
        publish(other, body, f"q{number}")
        publish(other, body, f"q{number}")
    other.flush()
    processed = _count_processing(monkeypatch)
    assert received(many) == 2 * CHANNELS
    assert processed[0] < 3 * CHANNELS, "who has written some asks no more queues than fill that"


def _count_processing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count from here on how often a queue is processed."""
    count = [0]
    process = Queue.process

    def counted(self: Queue, now: float) -> None:
        count[0] += 1
        process(self, now)

    monkeypatch.setattr(Queue, "process", counted)
    return count


@pytest.mark.slow
def test_ten_thousand_channels_may_wait_for_confirms(
    server: StillServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come for one of them is told without asking the others."""
    port = server.host.ports["broker"]
    port.confirms, server.engine.feed.wanted = True, ["a route"]
    many = server.connect(channel_max=0)
    for number in range(2, CHANNELS + 1):
        many.connection.open_channel(number)
    many.flush()
    many.read()
    for number in range(1, CHANNELS + 1):
        many.connection.send_method(number, confirm.Select(nowait=True))
        many.connection.publish(number, Batch([b"a", b"b"], 2, Envelope(key="nowhere")))
    many.flush()
    asked: list[int] = []
    send_confirms = Channel.send_confirms

    def counted(here: Channel, confirmed: int, safe: int) -> None:
        asked.append(here.number)
        send_confirms(here, confirmed, safe)

    monkeypatch.setattr(Channel, "send_confirms", counted)
    many.ask(basic.Qos(), basic.QosOk)
    assert asked == []
    server.engine.on_confirmed(3)
    server.host.process()
    assert acknowledged(many) == [(1, 2), (2, 1)]
    server.engine.on_confirmed(4)
    many.connection.close_channel(3, 200, "")
    many.flush()
    server.host.process()
    assert acknowledged(many) == [(2, 2)]
    assert set(asked) == {1, 2}
    server.engine.on_confirmed(2 * CHANNELS)
    server.host.process()
    assert acknowledged(many) == [(number, 2) for number in range(4, CHANNELS + 1)]
    assert not many.hosted.session.confirming


def acknowledged(client: StillClient) -> list[tuple[int, int]]:
    """Return which channels were told, and up to which message."""
    events = [event for event in client.read_all() if isinstance(event, Acknowledged)]
    return [(event.channel, event.last_delivery_tag) for event in events]


@pytest.mark.slow
def test_consumers_that_have_all_gone_at_once_cost_the_broker_nothing(server: StillServer) -> None:
    """What one gives back is handed to the next, which is found gone in the same turn."""
    publisher = server.connect()
    publisher.ask(queue.Declare(queue="q"), queue.DeclareOk)
    consumers = [server.connect() for _ in range(400)]
    for consumer in consumers:
        consumer.ask(basic.Consume(queue="q"), basic.ConsumeOk)
    for consumer in consumers:
        consumer.wire.close()
    publish(publisher, b"x", "q")
    publisher.flush()
    declared = publisher.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk)
    assert (declared.message_count, declared.consumer_count) == (1, 0)
