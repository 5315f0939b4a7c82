"""The engine's port: what clients publish goes out, what routes bring goes in, confirmations wait for both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.host.options import ExchangeOptions, QueueOptions
from plugins.engines.broker.queue import Queue
from plugins.protocols.amqp091.events import Acknowledged, Returned
from plugins.protocols.amqp091.methods import basic, confirm, queue
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.raw_client import RawClient


def test_without_routes_nothing_is_offered(server: Server) -> None:
    with RawClient(server.port) as client:
        client.publish(b"x", "q")
        client.ask(basic.Qos(), basic.QosOk)
    assert server.feed_port.batches_sent == []


def test_with_routes_a_message_is_offered_once_however_many_queues_get_it(server: Server) -> None:
    server.feed_port.routes.append("feed -> elsewhere")
    with RawClient(server.port) as client:
        for name in ("a", "b"):
            client.ask(queue.Declare(queue=name), queue.DeclareOk)
            client.ask(queue.Bind(queue=name, exchange="amq.fanout"), queue.BindOk)
        client.publish(b"x", "key", "amq.fanout")
        client.ask(basic.Qos(), basic.QosOk)
    (batch,) = server.feed_port.batches_sent
    assert (batch.envelope.exchange, batch.envelope.key, list(batch.bodies)) == ("amq.fanout", "key", [b"x"])


def test_a_confirm_waits_for_a_route_that_confirms(server: Server) -> None:
    port = server.feed_port
    port.routes.append("feed -> journal")
    port.confirms = True
    with RawClient(server.port) as client:
        client.ask(confirm.Select(), confirm.SelectOk)
        for number in range(3):
            client.publish(b"%d" % number, "q")
        client.ask(basic.Qos(), basic.QosOk)
        server.host.call(lambda: server.engine.on_confirmed(2))
        first = client.wait_for(Acknowledged)
        assert (first.last_delivery_tag, first.multiple) == (2, True)
        server.host.call(lambda: server.engine.on_confirmed(3))
        assert client.wait_for(Acknowledged).last_delivery_tag == 3


def test_a_publisher_is_not_read_while_a_route_is_full(server: Server) -> None:
    port = server.feed_port
    port.routes.append("feed -> slow")
    port.room = False
    with RawClient(server.port) as client, RawClient(server.port) as other:
        client.publish(b"one", "q")
        assert port.arrived.wait(60)
        client.send(basic.Qos())
        client.publish(b"two", "q")
        other.ask(basic.Qos(), basic.QosOk)  # who does not publish is served
        other.ask(basic.Qos(), basic.QosOk)
        assert port.count() == 1
        port.room = True
        server.host.call(server.engine.on_writable)
        client.answer(basic.QosOk)
        client.ask(basic.Qos(), basic.QosOk)
        assert port.count() == 2


@pytest.mark.parametrize(
    "envelope, default_exchange",
    [
        (Envelope(key="q"), ""),
        (Envelope(key="q", exchange="amq.direct"), ""),
        (Envelope(key="q", exchange="not here"), ""),
        (Envelope(key="anything"), "feed"),
        (Envelope(key="anything", exchange="not here"), "feed"),
    ],
)
def test_what_routes_bring_is_published(
    serve: Callable[..., Server], envelope: Envelope, default_exchange: str
) -> None:
    server = serve(
        default_exchange=default_exchange,
        exchanges=(ExchangeOptions(name="feed", type="fanout"),),
        queues=(QueueOptions(name="q"),),
    )
    port = server.feed_port
    port.wants_confirm = True
    with RawClient(server.port) as client:
        client.ask(queue.Bind(queue="q", exchange="feed"), queue.BindOk)
        client.ask(queue.Bind(queue="q", exchange="amq.direct", routing_key="q"), queue.BindOk)
        port.waiting.append(batch_of([b"1", b"2"], envelope))
        server.host.call(server.engine.on_output)
        declared = client.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk)
    assert (declared.message_count, port.confirmed_in, port.batches_sent) == (2, 2, [])


def test_the_parts_of_a_message_from_a_route_are_joined(serve: Callable[..., Server]) -> None:
    server = serve(queues=(QueueOptions(name="q"),))
    server.feed_port.waiting.append(batch_of([(b"a", b"b")], Envelope(key="q"), multipart=True))
    server.host.call(server.engine.on_output)
    bodies = server.host.call(
        lambda: server.engine.broker.vhost("/").queues["q"].backlog.take_all()[0].batch.bodies
    )
    assert bodies == [b"ab"]


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(key="q", properties={"content_type": "c" * 300, "headers": {"h" * 300: 1 << 100}}),
        Envelope(key="q", properties={"user_properties": [("a", "1")], "headers": "no table"}),
        Envelope(key="q", properties={"timestamp": "yesterday"}),
    ],
)
def test_what_amqp_cannot_carry_is_published_all_the_same(
    serve: Callable[..., Server], envelope: Envelope
) -> None:
    server = serve(queues=(QueueOptions(name="q"),))
    server.feed_port.waiting.append(batch_of([b"body"], envelope))
    server.host.call(server.engine.on_output)
    assert server.engine.statistics()["routed_in_refused"] == 0
    assert server.engine.broker.vhost("/").queues["q"].backlog.count == 1


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(key="q", properties={"headers": {"object": object()}}, persistent=True),
        Envelope(key="q", properties={"user_properties": {1, 2}}),
        Envelope(key=b"q", exchange="amq.topic"),  # type: ignore[arg-type]
        Envelope(key="q", exchange="amq.topic", properties=5),  # type: ignore[arg-type]
    ],
)
def test_what_can_be_neither_stored_nor_routed_is_refused_and_reported(
    serve: Callable[..., Server], tmp_path: Path, envelope: Envelope
) -> None:
    server = serve(queues=(QueueOptions(name="q", durable=False),), data_dir=str(tmp_path))
    server.host.call(lambda: server.engine.broker.vhost("/").bind("amq.topic", *_queue_and_key(server)))
    server.feed_port.wants_confirm = True
    server.feed_port.waiting.extend(
        [batch_of([b"bad", b"bad"], envelope), batch_of([b"good"], Envelope(key="q"))]
    )
    server.host.call(server.engine.on_output)
    assert server.engine.statistics()["routed_in_refused"] == 2
    assert server.engine.broker.vhost("/").queues["q"].backlog.count == 1
    assert [event.what for event in server.host.events] == ["refused"]
    assert server.feed_port.confirmed_in == 3


def _queue_and_key(server: Server) -> tuple[Queue, str]:
    return server.engine.broker.vhost("/").queues["q"], "q"


def test_what_a_full_queue_refuses_of_a_route_is_counted_and_reported_once(
    serve: Callable[..., Server],
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    server = serve(queues=(QueueOptions(name="q", arguments=arguments),))
    server.feed_port.wants_confirm = True
    for _ in range(2):
        server.feed_port.waiting.append(batch_of([b"1", b"2", b"3"], Envelope(key="q")))
        server.host.call(server.engine.on_output)
    assert server.engine.statistics()["routed_in_refused"] == 5
    assert server.engine.broker.vhost("/").queues["q"].backlog.count == 1
    (event,) = server.host.events
    assert (event.what, "reject-publish refuses messages to exchange '' with key 'q'" in event.detail) == (
        "refused",
        True,
    )
    assert server.feed_port.confirmed_in == 6


def test_a_mandatory_message_that_a_route_lets_pass_is_not_returned(server: Server) -> None:
    server.feed_port.routes.append("feed -> elsewhere")
    with RawClient(server.port) as client:
        client.publish(b"goes elsewhere", "no queue", mandatory=True)
        client.publish(b"nobody takes this", "unwanted", mandatory=True)
        assert list(client.wait_for(Returned).batch.bodies) == [b"nobody takes this"]


def test_without_routes_a_mandatory_message_needs_a_queue(server: Server) -> None:
    with RawClient(server.port) as client:
        client.publish(b"x", "no queue", mandatory=True)
        assert client.wait_for(Returned).reply_text == "NO_ROUTE"
