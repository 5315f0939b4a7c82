"""Everyday life with paho-mqtt: threads, both versions, every QoS, wills, retained messages, sessions, all transports."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes

from tests.interop.mqtt_brokers import MOSQUITTO_VERSION, MqttBroker
from tests.interop.paho_client import TIMEOUT, Paho, properties

pytestmark = pytest.mark.peer("paho-mqtt")

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_thousand_messages_in_order(mqtt_broker: MqttBroker, name: str, version: int, qos: int) -> None:
    with Paho(mqtt_broker, f"{name}-s", version=version) as subscriber:
        assert subscriber.subscribe(f"{name}/+", qos) == qos
        with Paho(mqtt_broker, f"{name}-p", version=version) as publisher:
            for number in range(999):
                publisher.client.publish(f"{name}/a", b"%d" % number, qos)
            publisher.publish(f"{name}/a", b"999", qos)
            messages = [subscriber.next() for _ in range(1000)]
    assert [bytes(each.payload) for each in messages] == [b"%d" % number for number in range(1000)]
    assert {(each.topic, each.qos, each.retain) for each in messages} == {(f"{name}/a", qos, False)}


@VERSIONS
@pytest.mark.parametrize("transport", ["websockets", "unix", "tls"])
def test_every_transport(mqtt_broker: MqttBroker, name: str, version: int, transport: str) -> None:
    if transport == "unix" and not mqtt_broker.unix:
        pytest.skip(f"{mqtt_broker.kind} does not listen at a Unix socket here")
    how: dict[str, Any] = {"tls": True} if transport == "tls" else {"transport": transport}
    with Paho(mqtt_broker, name, version=version, **how) as client:
        client.subscribe(name, 1)
        client.publish(name, b"x" * 200_000)
        client.publish(name, b"second")
        assert client.bodies(2) == [b"x" * 200_000, b"second"]


def test_a_wrong_password(mqtt_broker: MqttBroker, name: str) -> None:
    for version, text in ((4, "Bad user name or password"), (5, "Bad user name or password")):
        # mosquitto says in both versions that it is not authorized.
        wanted = "Not authorized" if mqtt_broker.kind == "mosquitto" else text
        client = Paho(mqtt_broker, f"{name}-{version}", version=version, password="wrong")
        assert str(client.code) == wanted
        client.client.loop_stop()


@VERSIONS
def test_a_will_when_the_connection_is_lost(mqtt_broker: MqttBroker, name: str, version: int) -> None:
    will = {"topic": f"{name}/will", "payload": b"gone", "qos": 1, "retain": True}
    with Paho(mqtt_broker, f"{name}-s", version=version) as witness:
        witness.subscribe(f"{name}/#", 1)
        with Paho(mqtt_broker, f"{name}-d", version=version, will=will):
            pass
        Paho(mqtt_broker, f"{name}-d", version=version, will={**will, "payload": b"lost"}).drop()
        message = witness.next()
        assert (message.topic, bytes(message.payload), message.qos) == (f"{name}/will", b"lost", 1)
    with Paho(mqtt_broker, f"{name}-t", version=version) as late:
        late.subscribe(f"{name}/will", 1)
        message = late.next()
        assert (bytes(message.payload), message.retain) == (b"lost", True)
        late.publish(f"{name}/will", b"", retain=True)


@VERSIONS
def test_retained_messages(mqtt_broker: MqttBroker, name: str, version: int) -> None:
    with Paho(mqtt_broker, f"{name}-p", version=version) as publisher:
        for number in range(3):
            for topic in range(3):
                publisher.publish(f"{name}/{topic}", b"%d" % number, number, retain=True)
        publisher.publish(f"{name}/1", b"", retain=True)
    with Paho(mqtt_broker, f"{name}-s", version=version) as subscriber:
        subscriber.subscribe(f"{name}/+", 2)
        found = sorted(
            (each.topic, bytes(each.payload), each.retain) for each in (subscriber.next(), subscriber.next())
        )
        assert found == [(f"{name}/0", b"2", True), (f"{name}/2", b"2", True)]
        subscriber.publish(f"{name}/0", b"live", retain=True)
        assert subscriber.next().retain is False
        for topic in (0, 2):
            subscriber.publish(f"{name}/{topic}", b"", retain=True)


@VERSIONS
def test_a_session_goes_on(mqtt_broker: MqttBroker, name: str, version: int) -> None:
    session: dict[str, Any] = {"version": version, "clean": False, "expiry": 300}
    with Paho(mqtt_broker, f"{name}-s", **session) as subscriber:
        assert subscriber.flags.session_present is False
        subscriber.subscribe(f"{name}/#", 2)
    with Paho(mqtt_broker, f"{name}-p", version=version) as publisher:
        for qos in (1, 1, 2):
            publisher.publish(f"{name}/a", b"%d" % qos, qos)
    subscriber = Paho(mqtt_broker, f"{name}-s", **session)
    assert subscriber.flags.session_present is True
    assert subscriber.bodies(3) == [b"1", b"1", b"2"]
    subscriber.drop()
    with Paho(mqtt_broker, f"{name}-p", version=version) as publisher:
        publisher.publish(f"{name}/b", b"while away")
    with Paho(mqtt_broker, f"{name}-s", **session) as subscriber:
        assert subscriber.bodies(1) == [b"while away"]
    with Paho(mqtt_broker, f"{name}-s", version=version) as subscriber:
        assert subscriber.flags.session_present is False


def test_what_was_not_acknowledged_comes_again(mqtt_broker: MqttBroker, name: str) -> None:
    with Paho(mqtt_broker, name, clean=False, manual_ack=True) as subscriber:
        subscriber.subscribe(name, 1)
        for number in range(3):
            subscriber.publish(name, b"%d" % number)
        messages = [subscriber.next() for _ in range(3)]
        subscriber.client.ack(messages[0].mid, 1)
        # The broker reads in order: with SUBACK it has the acknowledgement, too.
        subscriber.subscribe(f"{name}/other")
    with Paho(mqtt_broker, name, clean=False) as subscriber:
        again = [subscriber.next() for _ in range(2)]
        assert [(bytes(each.payload), each.dup, each.mid) for each in again] == [
            (b"1", True, messages[1].mid),
            (b"2", True, messages[2].mid),
        ]
    Paho(mqtt_broker, name).close()


def test_properties_of_version_5(mqtt_broker: MqttBroker, name: str) -> None:
    with Paho(mqtt_broker, name, version=5) as client:
        identified = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7)
        client.subscribe(f"{name}/+", properties=identified, options={})
        client.publish(
            f"{name}/a",
            b"text",
            PayloadFormatIndicator=1,
            MessageExpiryInterval=1000,
            ContentType="text/plain",
            ResponseTopic=f"{name}/answers",
            CorrelationData=b"\x00\xff",
            UserProperty=[("a", "1"), ("b", "2"), ("a", "3")],
        )
        got = client.next().properties
        assert got is not None
        expiry = got.json()["MessageExpiryInterval"]
        assert 900 < expiry <= 1000
        assert got.json() == {
            "PayloadFormatIndicator": 1,
            "MessageExpiryInterval": expiry,
            "ContentType": "text/plain",
            "ResponseTopic": f"{name}/answers",
            "CorrelationData": "00ff",
            "UserProperty": [("a", "1"), ("b", "2"), ("a", "3")],
            "SubscriptionIdentifier": [7],
        }


def test_options_of_subscriptions(mqtt_broker: MqttBroker, name: str) -> None:
    with (
        Paho(mqtt_broker, f"{name}-a", version=5) as first,
        Paho(mqtt_broker, f"{name}-b", version=5) as second,
    ):
        first.subscribe(f"{name}/own", 1, options={"noLocal": True})
        first.subscribe(f"{name}/kept", 1, options={"retainAsPublished": True, "retainHandling": 2})
        second.subscribe(f"{name}/#", 1, options={})
        first.publish(f"{name}/own", b"mine")
        second.publish(f"{name}/own", b"yours")
        second.publish(f"{name}/kept", b"kept", retain=True)
        assert [(bytes(each.payload), each.retain) for each in (first.next(), first.next())] == [
            (b"yours", False),
            (b"kept", True),
        ]
        assert second.bodies(3) == [b"mine", b"yours", b"kept"]
        first.subscribe(f"{name}/kept", 1, options={"retainHandling": 1})
        first.subscribe(f"{name}/kept", 1, options={"retainHandling": 0})
        assert first.next().retain is True
        first.publish(f"{name}/kept", b"", retain=True)


def test_shared_subscriptions(mqtt_broker: MqttBroker, name: str) -> None:
    with (
        Paho(mqtt_broker, f"{name}-a", version=5) as first,
        Paho(mqtt_broker, f"{name}-b", version=5) as second,
    ):
        for member in (first, second):
            member.subscribe(f"$share/workers/{name}/#", 1)
        with Paho(mqtt_broker, f"{name}-p", version=5) as publisher:
            for number in range(100):
                publisher.publish(f"{name}/{number}", b"%d" % number)
            publisher.publish(f"{name}/end", b"100")
        first.publish(f"{name}/x", b"101")
        got: list[int] = []
        while len(got) < 102:
            for member in (first, second):
                while not member.got.empty():
                    got.append(int(member.next().payload))
        assert sorted(got) == list(range(102))


def test_a_second_connection_takes_the_session_over(mqtt_broker: MqttBroker, name: str) -> None:
    first = Paho(mqtt_broker, name, version=5, expiry=60)
    first.subscribe(name, 1)
    with Paho(mqtt_broker, name, version=5, clean=False, expiry=60) as second:
        code = str(first.disconnected.get(timeout=TIMEOUT))
        # Before version 2.1 mosquitto closes the connection without a word.
        silent = mqtt_broker.kind == "mosquitto" and MOSQUITTO_VERSION < (2, 1)
        assert code == ("Unspecified error" if silent else "Session taken over")
        assert second.flags.session_present is True
        second.publish(name, b"x")
        assert second.bodies(1) == [b"x"]
    first.client.loop_stop()
    Paho(mqtt_broker, name, version=5).close()


def test_an_identifier_for_who_has_none(mqtt_broker: MqttBroker) -> None:
    with Paho(mqtt_broker, "", version=5) as client:
        assert client.properties.AssignedClientIdentifier
    with Paho(mqtt_broker, "") as client:
        assert str(client.code) == "Success"


def test_many_threads_publish_at_once(mqtt_broker: MqttBroker, name: str) -> None:
    with Paho(mqtt_broker, f"{name}-s") as subscriber, Paho(mqtt_broker, f"{name}-p") as publisher:
        subscriber.subscribe(f"{name}/#", 1)

        def publish(thread: int) -> None:
            for number in range(50):
                publisher.publish(f"{name}/{thread}", b"%d" % number)

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        messages = [subscriber.next() for _ in range(200)]
        for thread in threads:
            thread.join()
    for number in range(4):
        bodies = [int(each.payload) for each in messages if each.topic == f"{name}/{number}"]
        assert bodies == list(range(50))


@VERSIONS
def test_the_status_of_the_broker(mqtt_broker: MqttBroker, name: str, version: int) -> None:
    with Paho(mqtt_broker, name, version=version) as client:
        client.subscribe("$SYS/broker/version", 1)
        kind = "mosquitto" if mqtt_broker.kind == "mosquitto" else "messaging-kernel"
        assert bytes(client.next().payload).startswith(f"{kind} version ".encode())
        client.unsubscribe("$SYS/broker/version")
        client.subscribe("$SYS/broker/uptime")
        now, later = client.next(), client.next()
        assert (now.retain, later.retain) == (True, False)
        seconds = [int(bytes(each.payload).removesuffix(b" seconds")) for each in (now, later)]
        assert seconds[0] < seconds[1]
