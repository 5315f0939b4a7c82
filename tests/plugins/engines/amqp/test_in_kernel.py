"""The engine inside a real kernel: real threads, real routes, real clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kernel.contracts.message import Envelope, Message
from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.events import Acknowledged, Delivered
from plugins.protocols.amqp091.methods import basic, confirm, queue
from tests.plugins.engines.amqp.raw_client import RawClient

MARKS = WaterMarks(high=100)


def _plan(*routes: RoutePlan, **options: Any) -> Plan:
    broker = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", **options})
    return Plan(engines=(broker, EnginePlan(name="app", kind="native")), routes=routes)


@pytest.fixture
def out() -> Iterator[tuple[Kernel, Any, RawClient]]:
    """What is published to the broker goes to the application, confirmed."""
    route = RoutePlan(source="broker", targets=("app",), match=("feed.#",), confirm=True, marks=MARKS)
    with Kernel(_plan(route)) as kernel:
        kernel.wait_running()
        port = int(kernel.address_of("broker").rpartition(":")[2])
        with kernel.open("app", auto_confirm=False) as app, RawClient(port) as client:
            yield kernel, app, client


def test_what_is_published_reaches_the_application(out: tuple[Kernel, Any, RawClient]) -> None:
    _, app, client = out
    client.ask(queue.Declare(queue="q"), queue.DeclareOk)
    client.ask(queue.Bind(queue="q", exchange="amq.topic", routing_key="#"), queue.BindOk)
    client.publish(b"one", "feed.a", "amq.topic")
    client.publish(b"not matched", "other", "amq.topic")
    client.publish(b"two", "feed.b", "amq.topic")
    messages = [app.receive_message(timeout=60) for _ in range(2)]
    assert [(bytes(m), m.key, m.envelope.exchange) for m in messages] == [
        (b"one", "feed.a", "amq.topic"),
        (b"two", "feed.b", "amq.topic"),
    ]
    assert client.ask(queue.Declare(queue="q", passive=True), queue.DeclareOk).message_count == 3


def test_a_publisher_is_confirmed_when_the_application_has_confirmed(
    out: tuple[Kernel, Any, RawClient],
) -> None:
    _, app, client = out
    client.ask(confirm.Select(), confirm.SelectOk)
    client.publish(b"one", "feed.a")
    app.receive(timeout=60)
    client.ask(basic.Qos(), basic.QosOk)  # not confirmed yet: this answer came first
    app.confirm()
    assert client.wait_for(Acknowledged).last_delivery_tag == 1


def test_a_full_route_holds_the_publisher_back_and_loses_nothing(out: tuple[Kernel, Any, RawClient]) -> None:
    _, app, client = out
    count = 1000
    for number in range(count):
        client.publish(b"%d" % number, "feed.a")
    client.send(basic.Qos())
    received: list[bytes] = []
    while len(received) < count:
        received += app.receive_many(timeout=60)
        app.confirm()
    assert received == [b"%d" % number for number in range(count)]
    client.answer(basic.QosOk)


def test_what_the_application_sends_is_published() -> None:
    route = RoutePlan(source="app", targets=("broker",), confirm=True)
    options = {"queues": [{"name": "q"}], "bindings": [{"exchange": "amq.topic", "queue": "q", "key": "#"}]}
    with Kernel(_plan(route, default_exchange="amq.topic", **options)) as kernel:
        kernel.wait_running()
        port = int(kernel.address_of("broker").rpartition(":")[2])
        with kernel.open("app") as app, RawClient(port) as client:
            app.send_message(Message(b"x", Envelope(key="a.b", properties={"content_type": "text/plain"})))
            app.wait_confirmed(timeout=60)
            client.send(basic.Consume(queue="q", no_ack=True))
            batch = client.wait_for(Delivered).batch
    assert (list(batch.bodies), batch.envelope.key, batch.envelope.exchange) == ([b"x"], "a.b", "amq.topic")
    assert batch.envelope.properties["content_type"] == "text/plain"
