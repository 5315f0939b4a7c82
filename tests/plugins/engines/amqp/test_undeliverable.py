"""Messages that AMQP cannot carry: any front end may publish them, and no AMQP consumer suffers from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.host.options import QueueOptions
from tests.plugins.engines.amqp.conftest import Server

LONG = "k" * 300
DEAD_LETTERS = {"x-dead-letter-exchange": "amq.fanout"}


def publish(server: Server, *batches: Batch) -> None:
    """Publish as another front end would, in one turn."""

    def in_thread() -> None:
        vhost, now = server.engine.broker.vhost("/"), server.host.now()
        for batch in batches:
            vhost.publish(batch, now)
        server.engine.finish_turn(now)

    server.host.call(in_thread)


def with_long_key(*bodies: bytes, **fields: Any) -> Batch:
    """Messages to the exchange amq.topic, which no basic.deliver has room for."""
    return batch_of(bodies, Envelope(exchange="amq.topic", key=LONG, **fields))


def serve_queues(serve: Callable[..., Server], **queues: dict[str, Any]) -> Server:
    """Return a server with queues that get all of amq.topic, and ``dead`` for all of amq.fanout."""
    names = [QueueOptions(name=name, arguments=arguments) for name, arguments in queues.items()]
    server = serve(queues=(*names, QueueOptions(name="dead")))

    def bind() -> None:
        vhost = server.engine.broker.vhost("/")
        for name in queues:
            vhost.bind("amq.topic", vhost.queues[name], "#")
        vhost.bind("amq.fanout", vhost.queues["dead"])

    server.host.call(bind)
    return server


def undeliverable(server: Server) -> int:
    count: int = server.engine.statistics()["vhosts"]["/"]["messages_undeliverable"]
    return count


def dead_letters(server: Server) -> list[tuple[bytes, str, str]]:
    """Bodies in the queue ``dead``, with the reason and the queue of their death."""

    def look() -> list[tuple[bytes, str, str]]:
        queue = server.engine.broker.vhost("/").queues["dead"]
        return [
            (
                bytes(body),
                span.envelope.properties["headers"]["x-death"][0]["reason"],
                death_queue(span.envelope),
            )
            for level in queue.backlog.levels
            for span in level
            for body in span.as_batch().bodies
        ]

    found: list[tuple[bytes, str, str]] = server.host.call(look)
    return found


def death_queue(envelope: Envelope) -> str:
    return str(envelope.properties["headers"]["x-first-death-queue"])


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_consumer_goes_on_with_what_comes_after_it(serve: Callable[..., Server], auto_ack: bool) -> None:
    server = serve_queues(serve, q=DEAD_LETTERS)
    channel = server.channel()
    channel.basic_qos(prefetch_count=1)
    publish(server, with_long_key(b"bad", b"worse"), batch_of([b"good"], Envelope(key="q")))
    got = []
    for method, _, body in channel.consume("q", auto_ack=auto_ack, inactivity_timeout=60):
        got.append(body)
        if not auto_ack:
            channel.basic_ack(method.delivery_tag)
        if got == [b"good"]:
            publish(server, with_long_key(b"late"), batch_of([b"last"], Envelope(key="q")))
        else:
            break
    assert got == [b"good", b"last"]
    channel.queue_declare("q", passive=True)  # the connection lives
    assert undeliverable(server) == 3
    assert dead_letters(server) == [(body, "undeliverable", "q") for body in (b"bad", b"worse", b"late")]
    assert {event.what for event in server.host.events} >= {"undeliverable"}


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_get_returns_the_next_message_that_it_can(serve: Callable[..., Server], auto_ack: bool) -> None:
    server = serve_queues(serve, q=DEAD_LETTERS)
    channel = server.channel()
    publish(server, with_long_key(b"bad"), with_long_key(b"worse"), batch_of([b"good"], Envelope(key="q")))
    method, _, body = channel.basic_get("q", auto_ack=auto_ack)
    assert (body, method.message_count) == (b"good", 0)
    if not auto_ack:
        channel.basic_ack(method.delivery_tag)
    publish(server, with_long_key(b"last"))
    assert channel.basic_get("q", auto_ack=auto_ack) == (None, None, None)
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    assert [body for body, _, _ in dead_letters(server)] == [b"bad", b"worse", b"last"]


def test_each_queue_of_a_fan_out_decides_for_itself(serve: Callable[..., Server]) -> None:
    server = serve_queues(serve, kept=DEAD_LETTERS, dropped={}, waiting=DEAD_LETTERS)
    channel = server.channel()
    got: list[bytes] = []
    for name in ("kept", "dropped"):
        channel.basic_consume(
            name, lambda _channel, _method, _properties, body: got.append(body), auto_ack=True
        )
    publish(server, with_long_key(b"bad"), batch_of([b"good"], Envelope(exchange="amq.topic", key="k")))
    while len(got) < 2:
        channel.connection.process_data_events(time_limit=60)
    assert got == [b"good", b"good"]
    assert undeliverable(server) == 2
    assert dead_letters(server) == [(b"bad", "undeliverable", "kept")]
    assert channel.queue_declare("waiting", passive=True).method.message_count == 2


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(key="q", exchange="e" * 300),
        Envelope(key="q", reply_to="r" * 300),
        Envelope(key="q", priority=-1),
        Envelope(key="q", properties={"headers": "no table"}),
        Envelope(key="q", properties={"headers": {"h" * 300: 1}}),
        Envelope(key="q", properties={"headers": {"a": 1 << 64}}),
        Envelope(key="q", properties={"headers": {"a": object()}}),
        Envelope(key="q", properties={"headers": {1: "one"}}),
        Envelope(key="q", properties={"headers": {"a": "\ud800"}}),
        Envelope(key="q", properties={"content_type": 5}),
        Envelope(key="q", properties={"timestamp": "yesterday"}),
        Envelope(key="q", properties={"message_id": b"i" * 256}),
        Envelope(key="\ud800"),
        Envelope(key="q", expiration=10**400),
    ],
    ids=range(14),
)
def test_whatever_it_is_that_amqp_cannot_carry(serve: Callable[..., Server], envelope: Envelope) -> None:
    server = serve_queues(serve, q={})
    channel = server.channel()

    def bring() -> None:
        vhost, now = server.engine.broker.vhost("/"), server.host.now()
        vhost.queues["q"].publish(batch_of([b"bad"], envelope), now)
        vhost.queues["q"].publish(batch_of([b"good"], Envelope(key="q")), now)
        server.engine.finish_turn(now)

    server.host.call(bring)
    for _, _, body in channel.consume("q", inactivity_timeout=60):
        assert body == b"good"
        break
    assert undeliverable(server) == 1


def test_dead_letters_that_cannot_be_carried_either_do_not_go_round(serve: Callable[..., Server]) -> None:
    server = serve_queues(serve, q={"x-dead-letter-exchange": "amq.topic"})
    channel = server.channel()
    publish(server, with_long_key(b"bad"))
    assert channel.basic_get("q") == (None, None, None)
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    assert undeliverable(server) == 1


def test_a_flow_of_them_is_reported_now_and_then(serve: Callable[..., Server]) -> None:
    server = serve_queues(serve, q={})
    channel = server.channel()
    publish(server, *[with_long_key(b"bad") for _ in range(1000)])
    assert channel.basic_get("q") == (None, None, None)
    reports = [event for event in server.host.events if event.what == "undeliverable"]
    assert undeliverable(server) == 1000
    assert len(reports) == 10
    assert "queue 'q'" in reports[0].detail
