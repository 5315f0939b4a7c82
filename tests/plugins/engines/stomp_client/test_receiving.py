"""Receiving, frame by frame: what becomes of MESSAGE frames, and when they are acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notes import for_each
from tests.plugins.engines.stomp.raw_client import frame
from tests.plugins.engines.stomp_client.in_memory import Broker, InMemory

A = {"destination": "/queue/a", "id": "a"}
B = {"destination": "/queue/b", "id": "b"}
EACH = "client-individual"


def world_of(*subscriptions: dict[str, Any], confirms: bool = True, **options: Any) -> InMemory:
    world = InMemory(subscriptions=subscriptions, **options)
    world.port.confirms = confirms
    return world


def message(number: int, subscription: str = "a", **headers: object) -> bytes:
    given = {"destination": f"/queue/{subscription}", "message_id": f"m{number}", "ack": f"k{number}"}
    return frame("MESSAGE", b"%d" % number, subscription=subscription, **{**given, **headers})


def acked(broker: Broker) -> list[str]:
    return [headers.get("id", headers.get("message-id", "")) for headers, _ in broker.take("ACK")]


def test_messages_are_acknowledged_when_the_routes_have_confirmed() -> None:
    world = world_of({**A, "ack": EACH})
    broker = world.connect()
    broker.say(b"".join(map(message, range(1, 5))))
    assert world.sent() == [b"1", b"2", b"3", b"4"]
    assert len(world.port.batches_sent) == 1
    assert acked(broker) == []
    world.confirm(2)
    assert acked(broker) == ["k1", "k2"]
    world.confirm(4)
    assert acked(broker) == ["k3", "k4"]


def test_a_cumulative_acknowledgement_is_one_frame() -> None:
    world = world_of(A)
    broker = world.connect()
    broker.say(b"".join(map(message, range(1, 5))))
    world.confirm(3)
    assert acked(broker) == ["k3"]
    world.confirm(4)
    assert acked(broker) == ["k4"]


def test_cumulative_acknowledgements_of_several_subscriptions_keep_the_order_of_the_messages() -> None:
    """RabbitMQ's are cumulative in the connection: a lower one behind a higher one would be unknown."""
    world = world_of(A, B)
    broker = world.connect()
    broker.say(message(1, "a") + message(2, "b") + message(3, "a") + message(4, "b") + message(5, "a"))
    world.confirm(4)
    assert acked(broker) == ["k3", "k4"]
    world.confirm(5)
    assert acked(broker) == ["k5"]


def test_without_a_route_that_confirms_they_are_acknowledged_when_the_port_has_them() -> None:
    world = world_of(A, confirms=False)
    broker = world.connect()
    broker.say(message(1))
    assert acked(broker) == ["k1"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_before_1_2_the_message_id_is_named(version: str) -> None:
    world = world_of(A)
    broker = world.connect(version=version)
    broker.say(message(1) + message(2))
    world.confirm(2)
    # In 1.0 nothing says that ``client`` is cumulative.
    assert acked(broker) == (["m1", "m2"] if version == "1.0" else ["m2"])


def unnamed(number: int, destination: str) -> bytes:
    return frame("MESSAGE", b"%d" % number, destination=destination, message_id=f"m{number}")


def test_in_1_0_the_destination_tells_the_subscription() -> None:
    """Ruby's stompserver is such a broker."""
    world = world_of(A, B)
    broker = world.connect(version="1.0")
    broker.say(unnamed(1, "/queue/b"))
    assert world.sent() == [b"1"]
    world.confirm(1)
    assert acked(broker) == ["m1"]
    broker.say(unnamed(2, "/queue/c"))
    assert world.sent() == [b"1"]
    assert broker.ended, "there are two that it may be for"


def test_in_1_0_the_only_subscription_has_all() -> None:
    world = world_of({"destination": "/topic/a.*", "id": "a"})
    broker = world.connect(version="1.0")
    broker.say(unnamed(1, "/topic/a.x"))
    assert world.sent() == [b"1"]


def test_from_1_1_on_the_subscription_is_named() -> None:
    world = world_of(A)
    broker = world.connect(version="1.1")
    broker.say(unnamed(1, "/queue/a"))
    assert world.sent() == []
    assert broker.ended


def test_acknowledgements_do_not_outlive_their_connection() -> None:
    world = world_of(A)
    broker = world.connect()
    broker.say(message(1))
    world.cut(broker)
    broker = world.connect()
    world.confirm(1)
    assert acked(broker) == []
    broker.say(message(2))
    world.confirm(2)
    assert acked(broker) == ["k2"]


def test_while_the_port_is_full_messages_wait_and_receipts_are_read() -> None:
    world = world_of({**A, "prefetch": 2})
    broker = world.connect()
    world.port.room = False
    broker.say(message(1))
    broker.say(message(2))
    assert world.sent() == [b"1"]
    assert not world.engine.incoming.stops_reading
    broker.say(message(3) + message(4))
    assert world.engine.incoming.stops_reading, "more than the prefetch"
    world.port.room = True
    world.engine.on_writable()
    world.run()
    assert world.sent() == [b"1", b"2", b"3", b"4"]
    assert not world.engine.incoming.stops_reading


def test_what_waits_for_the_port_when_the_connection_ends_comes_again_and_once() -> None:
    world = world_of(A)
    broker = world.connect()
    world.port.room = False
    broker.say(message(1))
    broker.say(message(2))
    world.cut(broker)
    broker = world.connect()
    world.port.room = True
    world.engine.on_writable()
    broker.say(message(2))
    assert world.sent() == [b"1", b"2"]


@pytest.mark.parametrize("ack", ["client", EACH])
def test_a_message_that_cannot_be_one_is_refused_in_its_order(ack: str) -> None:
    world = world_of({**A, "ack": ack})
    broker = world.connect()
    broker.say(message(1) + message(2, priority="high") + message(3))
    assert world.sent() == [b"1", b"3"]
    assert broker.take("NACK") == [], "a cumulative one would cover the first"
    world.confirm(1)
    names = [(command, headers["id"]) for command, headers, _ in broker.frames]
    assert names == [("ACK", "k1"), ("NACK", "k2")]
    assert broker.take("NACK")[0][0]["requeue"] == "false"
    acked(broker)
    world.confirm(2)
    assert acked(broker) == ["k3"]
    assert world.engine.counters.messages_nacked == 1
    assert "priority must be a number" in world.host.events[-1].detail


@pytest.mark.parametrize("confirms", [True, False])
def test_it_is_refused_at_once_if_nothing_is_before_it(confirms: bool) -> None:
    world = world_of(A, confirms=confirms)
    broker = world.connect()
    broker.say(message(1, priority="high"))
    assert [headers["id"] for headers, _ in broker.take("NACK")] == ["k1"]


def test_in_1_0_such_a_message_is_acknowledged() -> None:
    """There is no NACK, and the broker would wait for ever."""
    world = world_of(A)
    broker = world.connect(version="1.0")
    broker.say(message(1, priority="high"))
    assert acked(broker) == ["m1"]


@for_each(
    "destination, exchange, key",
    [
        ("/queue/a", "", "a"),
        ("/topic/a.b", "amq.topic", "a.b"),
        ("/exchange/e/k", "e", "k"),
        ("/queue/a%2Fb", "", "a/b"),
        ("a", "", "a"),
        ("jms/queue/a", "", "jms/queue/a"),
    ],
)
def test_exchange_and_key_are_those_of_the_destination(destination: str, exchange: str, key: str) -> None:
    world = world_of(A)
    broker = world.connect()
    broker.say(message(1, destination=destination))
    (batch,) = world.port.batches_sent
    assert (batch.envelope.exchange, batch.envelope.key) == (exchange, key)


def test_headers_become_properties_and_the_exchange_may_be_another() -> None:
    world = world_of(A, exchange="amq.topic")
    broker = world.connect()
    broker.say(
        message(1, content_type="t", persistent="true", reply_to="/queue/r", x="y", redelivered="true")
    )
    (batch,) = world.port.batches_sent
    envelope = batch.envelope
    assert (envelope.exchange, envelope.key, envelope.reply_to) == ("amq.topic", "a", "/queue/r")
    assert envelope.persistent
    assert dict(envelope.properties) == {"content_type": "t", "headers": {"x": "y"}}
