"""Receiving, packet by packet: acknowledgements, QoS 2, back-pressure, keep-alive, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.hosting.connection import Connection
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Disconnect,
    Pingreq,
    Suback,
    Subscribe,
)
from plugins.protocols.mqtt.properties import Properties
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt_client.conftest import bodies
from tests.plugins.engines.mqtt_client.in_memory import InMemory

SUBSCRIPTIONS: tuple[dict[str, Any], ...] = ({"filter": "t/#", "qos": 2},)


def _world(**options: Any) -> InMemory:
    world = InMemory(
        **{"subscriptions": SUBSCRIPTIONS, "reconnect": {"first": 1.0, "jitter": 0.0}, **options}
    )
    world.port.confirms = True
    return world


def test_messages_become_batches_with_their_keys_and_properties() -> None:
    world = _world(receive_prefix="there/", exchange="amq.topic")
    broker = world.connect()
    properties = Properties(content_type="text/plain", user_properties=(("a", "b"),), response_topic="r/s")
    broker.publish(1, [1], b"0", topic="t/v1.2", properties=properties, retain=True)
    broker.publish(0, (), b"1", topic="t")
    first, second = world.port.batches_sent
    assert (first.envelope.key, first.envelope.reply_to) == ("there.t.v1/2", "r.s")
    assert first.envelope.persistent
    assert first.envelope.exchange == "amq.topic"
    assert first.envelope.properties == {
        "mqtt_qos": 1,
        "mqtt_retain": True,
        "content_type": "text/plain",
        "user_properties": (("a", "b"),),
    }
    assert (second.envelope.key, second.envelope.persistent) == ("there.t", False)


def test_qos_1_is_acknowledged_when_the_routes_have_confirmed() -> None:
    world = _world()
    broker = world.connect()
    broker.publish(1, [7, 8, 9], *bodies(0, 3))
    assert broker.acknowledged(PacketType.PUBACK) == []
    world.confirm(2)
    assert broker.acknowledged(PacketType.PUBACK) == [7, 8]
    world.confirm(3)
    assert broker.acknowledged(PacketType.PUBACK) == [9]


def test_without_confirming_routes_it_is_acknowledged_at_once() -> None:
    world = _world()
    world.port.confirms = False
    broker = world.connect()
    broker.publish(1, [7], b"x")
    assert broker.acknowledged(PacketType.PUBACK) == [7]


def test_qos_2_comes_once_over_several_connections() -> None:
    world = _world()
    broker = world.connect()
    broker.publish(2, [5, 6], b"0", b"1")
    broker.publish(2, [5], b"0", dup=True)
    world.confirm(1)
    assert broker.acknowledged(PacketType.PUBREC) == [5]
    world.cut(broker)
    broker = world.connect(present=True)
    broker.publish(2, [5, 6, 7], b"0", b"1", b"2", dup=True)
    # What is confirmed is answered at once, the other when it is.
    assert broker.acknowledged(PacketType.PUBREC) == [5]
    world.confirm(2)
    assert broker.acknowledged(PacketType.PUBREC) == [6]
    broker.say(Acknowledgement(PacketType.PUBREL, (5, 6)))
    assert broker.acknowledged(PacketType.PUBCOMP) == [5, 6]
    # Released, so this is a new message.
    broker.publish(2, [5], b"3")
    assert world.sent() == bodies(0, 4)


def test_pubrel_of_a_message_that_is_not_known_is_answered() -> None:
    """After a restart of the engine."""
    for version, code in ((5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), (4, ReasonCode.SUCCESS)):
        broker = _world(version=version).connect(present=True)
        broker.say(Acknowledgement(PacketType.PUBREL, (5,)))
        (answer,) = broker.take(Acknowledgement)
        assert (answer.kind, list(answer.ids), answer.reason_code) == (PacketType.PUBCOMP, [5], code)


def test_a_late_confirmation_says_nothing_about_a_later_message_of_the_same_identifier() -> None:
    world = _world()
    broker = world.connect()
    broker.publish(1, [1], b"0")
    broker.publish(2, [2], b"1")
    world.cut(broker)
    broker = world.connect(present=False)
    broker.publish(1, [1], b"2")
    broker.publish(2, [2], b"3")
    world.confirm(2)
    assert broker.take(Acknowledgement) == []
    world.confirm(4)
    assert broker.acknowledged(PacketType.PUBACK) == [1]
    assert broker.acknowledged(PacketType.PUBREC) == [2]


def test_while_the_routes_are_full_nothing_is_acknowledged_and_then_nothing_is_read() -> None:
    world = _world(receive_maximum=10, version=4)
    broker = world.connect()
    world.port.room = False
    broker.publish(1, [1], b"0")
    broker.publish(1, range(2, 12), *bodies(1, 11))
    assert world.sent() == [b"0"]
    # PUBACK of what this side publishes is read all the same.
    world.feed(b"out")
    broker.acknowledge(PacketType.PUBACK, [broker.published()[0][0]])
    assert world.port.confirmed_in == 1
    # One more than it may send: the socket is not read.
    broker.publish(1, [12], b"11")
    broker.publish(1, [13], b"12")
    world.port.room = True
    world.engine.on_writable()
    world.run()
    assert world.sent() == bodies(0, 13)
    world.confirm(13)
    assert broker.acknowledged(PacketType.PUBACK) == list(range(1, 14))


def test_what_waits_for_the_routes_is_not_lost_with_the_connection() -> None:
    world = _world()
    broker = world.connect()
    world.port.room = False
    broker.publish(0, (), b"0")
    broker.publish(2, [1], b"1")
    world.cut(broker)
    broker = world.connect(present=True)
    broker.publish(2, [1], b"1", dup=True)
    world.port.room = True
    world.engine.on_writable()
    world.run()
    assert world.sent() == [b"0", b"1"]
    world.confirm(2)
    assert broker.acknowledged(PacketType.PUBREC) == [1]


def test_subscriptions_are_made_once_for_a_session() -> None:
    world = _world(
        subscriptions=(
            {
                "filter": "a/+",
                "qos": 1,
                "no_local": True,
                "retain_as_published": True,
                "retain_handling": "new",
            },
            {"filter": "$share/g/b", "qos": 0},
        )
    )
    broker = world.dial()
    broker.say(Connack())
    (packet,) = broker.take(Subscribe)
    one, two = packet.subscriptions
    assert (one.topic_filter, one.qos, one.no_local, one.retain_as_published) == ("a/+", 1, True, True)
    assert one.retain_handling == 1
    assert (two.topic_filter, two.share_name, two.qos) == ("b", "g", 0)
    assert world.what() == []
    broker.say(Suback(packet.id, (1, 0)))
    assert world.what() == ["connected"]
    world.cut(broker)
    for _ in range(2):
        broker = world.dial()
        broker.say(Connack(session_present=True))
        assert broker.take(Subscribe) == []
        world.cut(broker)
    broker = world.dial()
    broker.say(Connack(session_present=False))
    assert len(broker.take(Subscribe)) == 1


def test_a_subscription_that_is_refused_is_named_and_tried_again() -> None:
    world = _world(subscriptions=({"filter": "a"}, {"filter": "secret/#"}))
    broker = world.dial()
    broker.say(Connack())
    (packet,) = broker.take(Subscribe)
    broker.say(Suback(packet.id, (0, ReasonCode.NOT_AUTHORIZED)))
    limited, refused, connected = world.host.events
    assert (limited.what, refused.what, connected.what) == ("limited", "refused", "connected")
    assert "'a': the broker grants QoS 0" in limited.detail
    assert "'secret/#': 0x87 Not authorized" in refused.detail
    assert world.engine.state == "refused"
    world.run(1.1)
    (packet,) = broker.take(Subscribe)
    assert [each.topic_filter for each in packet.subscriptions] == ["secret/#"]
    broker.say(Suback(packet.id, (1,)))
    assert world.engine.state == "connected"


@pytest.mark.parametrize("version", [4, 5])
def test_a_refused_login_names_the_broker_and_says_what_to_do(version: int) -> None:
    world = _world(version=version, user="me")
    broker = world.dial()
    broker.say(Connack(reason_code=ReasonCode.BAD_USER_NAME_OR_PASSWORD))
    (event,) = world.host.events
    assert event.what == "refused"
    assert "mqtt+tcp://127.0.0.1:1883 refuses the connection" in event.detail
    assert "check user 'me' and password" in event.detail
    assert world.engine.state == "refused"
    assert broker.ended


def test_a_broker_that_does_not_speak_version_5_is_refused_with_what_to_do() -> None:
    """[MQTT-3.1.2-2] of MQTT 3.1.1: return code 1, in a packet that has no properties (seen from aedes 1.2)."""
    world = _world(version=5)
    broker = world.dial()
    broker.say_octets(bytes.fromhex("20 02 00 01"))
    (event,) = world.host.events
    assert event.what == "refused"
    assert "does not speak this version: set version = 4" in event.detail
    assert broker.ended


def test_the_server_to_go_to_is_named() -> None:
    world = _world()
    broker = world.dial()
    properties = Properties(server_reference="other:1883")
    broker.say(Connack(reason_code=ReasonCode.SERVER_MOVED, properties=properties))
    assert "set address to 'other:1883'" in world.engine.statistics()["links"][0]["last_error"]


def test_why_the_broker_ends_the_connection_is_reported() -> None:
    world = _world()
    broker = world.connect()
    broker.say(Disconnect(reason_code=ReasonCode.SESSION_TAKEN_OVER))
    event = world.host.events[-1]
    assert event.what == "disconnected"
    assert "Session taken over; another client uses client_id 'c'" in event.detail


def test_what_mqtt_does_not_allow_ends_the_connection_with_the_reason() -> None:
    world = _world()
    broker = world.connect()
    broker.publish(0, (), b"before")
    broker.say(Connack())
    (packet,) = broker.take(Disconnect)
    assert packet.reason_code == ReasonCode.PROTOCOL_ERROR
    assert world.sent() == [b"before"]
    assert "has sent what MQTT does not allow: CONNACK" in world.host.events[-1].detail


def test_after_disconnect_nothing_is_sent_and_the_connection_is_closed() -> None:
    """[MQTT-3.14.4-1], -2"""
    world = _world()
    broker = world.connect()
    broker.say(Connack())
    world.feed(b"later")
    assert isinstance(broker.packets[-1], Disconnect)
    assert broker.ended
    # It is sent on the next connection.
    assert [each[1] for each in world.connect(present=True).published()] == [b"later"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_session_that_nobody_has_asked_for_ends_the_connection(version: int) -> None:
    """[MQTT-3.2.2-4]"""
    world = _world(version=version, session_seconds=0)
    broker = world.connect(present=True)
    assert broker.ended
    assert "a clean start was asked for" in world.engine.statistics()["links"][0]["last_error"]


def test_what_is_received_is_acknowledged_while_publishing_has_to_wait() -> None:
    """[MQTT-3.3.4-8], [MQTT-4.5.0-2]"""
    world = _world()
    broker = world.connect(receive_maximum=1)
    world.feed(b"first", b"second")
    broker.publish(1, (7,), b"from the broker")
    world.confirm(1)
    assert broker.acknowledged(PacketType.PUBACK) == [7]
    assert [each[1] for each in broker.published()] == [b"first"]


def test_a_silent_broker_is_asked_and_then_given_up() -> None:
    world = _world(keep_alive=100)
    broker = world.connect(server_keep_alive=20)  # its own value counts [MQTT-3.1.2-21]
    world.run(14.9)
    assert broker.take(Pingreq) == []
    world.run(0.2)
    assert len(broker.take(Pingreq)) == 1
    world.run(100.0)
    assert len(broker.take(Pingreq)) > 4
    assert not broker.ended
    broker.answers_pings = False
    world.run(60.0)
    assert broker.ended
    assert "has not answered PINGREQ within 20 s" in world.host.events[-1].detail


def test_a_broker_that_does_not_answer_the_login_is_given_up() -> None:
    world = _world(connect_timeout=3.0)
    broker = world.dial()
    world.run(3.1)
    assert broker.ended
    assert "has not answered CONNECT within 3 s" in world.engine.statistics()["links"][0]["last_error"]


def test_what_is_not_answered_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """mosquitto leaves Nagle's algorithm on: its next message may wait behind its acknowledgement of ours."""
    calls = 0

    def acknowledge(self: Connection) -> None:
        nonlocal calls
        calls += 1

    monkeypatch.setattr(Connection, "acknowledge", acknowledge)
    # Without subscriptions it is the acknowledgements of further messages that wait.
    for subscriptions in (SUBSCRIPTIONS, ()):
        world = _world(subscriptions=subscriptions, qos=1)
        world.port.confirms = False
        broker = world.connect()
        calls = 0
        world.feed(b"a")
        broker.acknowledge(PacketType.PUBACK, [1])
        assert calls == 1
    world, calls = _world(), 0
    world.port.confirms = False
    broker = world.connect()
    calls = 0
    broker.publish(1, [1], b"answered", topic="t")
    assert broker.acknowledged(PacketType.PUBACK) == [1]
    assert calls == 0
