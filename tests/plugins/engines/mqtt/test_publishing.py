"""What clients publish, and the answers: MQTT 5.0, 3.3 to 3.7 and 4.3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, RoutePlan
from kernel.contracts.message import Envelope, batch_of
from kernel.testing.fixtures import KernelFactory
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt.conftest import Shared
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    TIMEOUT,
    Ack,
    Message,
    connect_packet,
    publish,
    subscription,
)
from tests.plugins.engines.mqtt.still_server import StillServer

Still = Callable[..., StillServer]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_delivered_and_answered(broker: Shared, version: int, own: str, qos: int) -> None:
    """[MQTT-4.3.1-1], [MQTT-4.3.2-2], [MQTT-4.3.3-2]; the lower of both QoS counts [MQTT-3.8.4-8]."""
    readers = [broker.connect(version) for _ in range(3)]
    for wanted, reader in enumerate(readers):
        assert reader.subscribe(own, qos=wanted) == (wanted,)
    client = broker.connect(version)
    for payload in (b"", b"one", b"two" * 100_000):
        assert client.publish(own, payload, qos, number=65_535) == 0
        for wanted, reader in enumerate(readers):
            number = reader.expect_message(own, payload, min(qos, wanted))
            if min(qos, wanted) == 1:
                reader.ack(PUBACK, number)
            elif min(qos, wanted) == 2:
                reader.ack(PUBREC, number)
                reader.expect_acks(PUBREL, number)
                reader.ack(PUBCOMP, number)
    for reader in readers:
        reader.expect_nothing()


def test_nobody_has_subscribed(quiet: StillServer) -> None:
    """MQTT 5.0, 3.4.2.1: the publisher of version 5 may be told."""
    client = quiet.connect(5)
    assert client.publish("t", qos=1) == ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert client.publish("t", qos=2) == ReasonCode.NO_MATCHING_SUBSCRIBERS
    client.subscribe("t")
    other = quiet.connect(5)
    assert other.publish("t", qos=1) == 0
    assert quiet.connect(4).publish("u", qos=1) == 0


def test_answers_come_in_the_order_of_the_messages(quiet: StillServer, version: int) -> None:
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3]."""
    client = quiet.connect(version)
    packets = [
        publish("a", qos=1, number=5),
        publish("a", qos=2, number=1),
        publish("b", qos=1, number=9),
        publish("$SYS/a", qos=1, number=3),
        publish("$SYS/a", qos=2, number=4),
        publish("b", qos=1, number=2),
    ]
    client.send(*packets)
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS if version == 5 else 0
    refused = ReasonCode.NOT_AUTHORIZED if version == 5 else 0
    assert [client.expect(Ack) for _ in packets] == [
        Ack(PUBACK, 5, nobody),
        Ack(PUBREC, 1, nobody),
        Ack(PUBACK, 9, nobody),
        Ack(PUBACK, 3, refused),
        Ack(PUBREC, 4, refused),
        Ack(PUBACK, 2, nobody),
    ]
    client.ack(PUBREL, 1)
    client.expect_acks(PUBCOMP, 1)


def test_the_dup_flag_is_not_passed_on(quiet: StillServer, version: int) -> None:
    """[MQTT-3.3.1-3]."""
    client = quiet.connect(version)
    client.subscribe("t", qos=2)
    for qos in (1, 2):
        client.send(publish("t", qos=qos, dup=True))
        came = {type(one): one for one in (client.next(), client.next())}
        assert not came[Message].dup  # type: ignore[attr-defined]


def test_a_message_of_qos_1_may_come_twice(quiet: StillServer, version: int) -> None:
    """[MQTT-4.3.2-5]: its identifier is free again once it is acknowledged."""
    reader, client = quiet.connect(version), quiet.connect(version)
    reader.subscribe("t")
    client.send(publish("t", b"1", 1, 7))
    client.send(publish("t", b"1", 1, 7, dup=True))
    client.expect_acks(PUBACK, 7, 7)
    assert [reader.next().payload for _ in range(2)] == [b"1", b"1"]


def test_a_message_of_qos_2_comes_once(quiet: StillServer, version: int) -> None:
    """[MQTT-4.3.3-10] and [MQTT-4.3.3-12]: until PUBREL it is the same message, whatever it says."""
    reader, client = quiet.connect(version), quiet.connect(version)
    reader.subscribe("#")
    client.send(publish("t", b"first", 2, 7), publish("t", b"other", 2, 8))
    client.expect_acks(PUBREC, 7, 8)
    client.send(
        publish("t", b"again", 2, 7, dup=True),
        publish("t", b"third", 2, 9),
        publish("u", b"more", 2, 8),
    )
    client.expect_acks(PUBREC, 7, 9, 8)
    assert [reader.next().payload for _ in range(3)] == [b"first", b"other", b"third"]
    reader.expect_nothing()
    client.ack(PUBREL, 7, 8, 9)
    client.expect_acks(PUBCOMP, 7, 8, 9)
    client.send(publish("t", b"same", 2, 3), publish("t", b"read", 2, 3))
    client.expect_acks(PUBREC, 3)
    reader.expect_message("t", b"same")
    reader.expect_nothing()
    client.send(publish("t", b"new", 2, 7, dup=True))
    client.expect_acks(PUBREC, 7)
    reader.expect_message("t", b"new")


def test_qos_2_goes_on_with_another_connection(quiet: StillServer, version: int) -> None:
    """[MQTT-4.4.0-1]: the identifiers that were received are part of the session (4.1)."""
    reader = quiet.connect(version)
    reader.subscribe("t")
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False}
    if version == 5:
        kept["session_expiry_interval"] = 60
    client = quiet.connect(version, **kept)
    client.send(publish("t", b"1", 2, 1))
    client.expect_acks(PUBREC, 1)
    client.close()
    client = quiet.connect(version, **kept)
    client.send(publish("t", b"1", 2, 1, dup=True))
    client.expect_acks(PUBREC, 1)
    client.close()
    client = quiet.connect(version, **kept)
    client.ack(PUBREL, 1)
    client.expect_acks(PUBCOMP, 1)
    client.close()
    # It does not know that the answer was sent.
    client = quiet.connect(version, **kept)
    client.ack(PUBREL, 1)
    client.expect_acks(PUBCOMP, 1)
    reader.expect_message("t", b"1")
    reader.expect_nothing()
    client.close()
    client = quiet.connect(version, **{**kept, "clean_start": True})
    client.send(publish("t", b"2", 2, 1, dup=True))
    client.expect_acks(PUBREC, 1)
    reader.expect_message("t", b"2")


def test_a_release_of_what_is_unknown_is_completed(quiet: StillServer, version: int) -> None:
    """MQTT 5.0, 3.7.2.1: with the code that says so."""
    client = quiet.connect(version)
    client.send(Acknowledgement(PUBREL, (3, 4)))
    code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if version == 5 else 0
    client.expect_acks(PUBCOMP, 3, 4, code=code)


# The receive maximum


@pytest.mark.parametrize("again", [False, True])
def test_a_client_may_use_its_receive_maximum(still: Still, again: bool) -> None:
    """MQTT 5.0, 3.3.4: a message counts once, also if it is sent again."""
    server = still({"receive_maximum": 4})
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 60}
    client = server.connect(5, **kept)
    packets = [publish(f"t{number}", qos=2, number=number) for number in (1, 2, 3, 4)]
    client.send(*packets)
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS
    client.expect_acks(PUBREC, 1, 2, 3, 4, code=nobody)
    if again:
        client.close()
        client = server.connect(5, **kept)
        client.send(*[publish(f"t{number}", qos=2, number=number, dup=True) for number in (1, 2, 3, 4)])
        client.expect_acks(PUBREC, 1, 2, 3, 4)
    client.ack(PUBREL, 1)
    client.expect_acks(PUBCOMP, 1)
    client.send(publish("t", qos=1, number=1), publish("t", qos=1, number=1))
    client.expect_end(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_a_client_that_exceeds_its_receive_maximum_is_sent_away(still: Still) -> None:
    """[MQTT-3.3.4-7], [MQTT-3.3.4-8]."""
    client = still({"receive_maximum": 4}).connect(5)
    client.send(*[publish(f"t{number}", qos=2, number=number) for number in range(1, 6)])
    while isinstance(came := client.next(), Ack):
        assert came.kind == PUBREC
    assert came.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED  # type: ignore[union-attr]
    client.expect_close()


def test_messages_of_qos_0_are_not_limited(still: Still) -> None:
    client = still({"receive_maximum": 1}).connect(5)
    client.send(*[publish(f"t{number}") for number in range(100)])
    client.expect_nothing()


# Topic aliases


def test_a_client_uses_aliases(quiet: StillServer) -> None:
    """MQTT 5.0, 3.3.2.3.4."""
    reader, client = quiet.connect(5), quiet.connect(5)
    reader.subscribe("#")
    client.send(
        publish("one", topic_alias=1),
        publish("two", topic_alias=64),
        publish("", topic_alias=1),
        publish("", topic_alias=64),
        publish("three", topic_alias=1),
        publish("", topic_alias=1, retain=True),
        publish("", b"y", 1, topic_alias=64),
    )
    topics = ["one", "two", "one", "two", "three", "three", "two"]
    assert [reader.next().topic for _ in topics] == topics
    client.expect_acks(PUBACK, 1)


@pytest.mark.parametrize("alias", [65, 65_535])
def test_an_alias_that_is_too_large_ends_the_connection(quiet: StillServer, alias: int) -> None:
    """[MQTT-3.3.2-9]."""
    client = quiet.connect(5)
    client.send(publish("t", topic_alias=alias))
    client.expect_end(ReasonCode.TOPIC_ALIAS_INVALID)


def test_an_alias_that_stands_for_nothing_ends_the_connection(quiet: StillServer) -> None:
    """It does not outlive its connection [MQTT-3.3.2-7]."""
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 60}
    client = quiet.connect(5, **kept)
    client.publish("t", topic_alias=1)
    client.close()
    client = quiet.connect(5, **kept)
    client.send(publish("", topic_alias=1))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


def test_without_aliases_none_may_be_used(still: Still) -> None:
    client = still({"topic_alias_maximum": 0}).connect(5)
    client.send(publish("t", topic_alias=1))
    client.expect_end(ReasonCode.TOPIC_ALIAS_INVALID)


# What is passed on


EVERYTHING: dict[str, Any] = {
    "content_type": "text/plain; é",
    "response_topic": "answer.s/to/here",
    "correlation_data": b"\x00\xff",
    "user_properties": (("b", "1"), ("a", ""), ("b", "2"), ("", "x")),
}


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("text", [0, 1])
def test_properties_are_passed_on_unaltered(quiet: StillServer, qos: int, text: int) -> None:
    """[MQTT-3.3.2-4], -15, -16, -17, -18, -20."""
    reader, client, old = quiet.connect(5), quiet.connect(5), quiet.connect(4)
    for each in (reader, old):
        each.subscribe("t", qos=qos)
    client.publish("t", b"x", qos, payload_format_indicator=text, **EVERYTHING)
    reader.expect_message("t", b"x", qos, payload_format_indicator=text, **EVERYTHING)
    old.expect_message("t", b"x", qos)
    client.publish("t", b"x", qos)
    reader.expect_message("t", b"x", qos)


def test_a_message_expires(quiet: StillServer) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]: what is left of the time is passed on."""
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 600}
    reader, client = quiet.connect(5, **kept), quiet.connect(5)
    reader.subscribe("t", qos=1)
    reader.close()
    client.publish("t", b"short", 1, message_expiry_interval=10)
    client.publish("t", b"long", 1, message_expiry_interval=100)
    client.publish("t", b"for ever", 1)
    quiet.pass_time(40)
    reader = quiet.connect(5, **kept)
    reader.expect_message("t", b"long", 1, message_expiry_interval=60)
    reader.expect_message("t", b"for ever", 1)
    reader.expect_nothing()


@pytest.mark.parametrize("leaving", [b"", encode(Disconnect(), 5)], ids=["lost", "disconnected"])
def test_a_message_expires_that_came_while_its_reader_left(quiet: StillServer, leaving: bytes) -> None:
    """[MQTT-3.3.2-5]: in the turn in which a connection ends its queue still delivers; nothing is sent."""
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 600}
    client, reader = quiet.connect(5), quiet.connect(5, **kept)
    reader.subscribe("t", qos=1)
    client.wire.sendall(
        encode(publish("t", b"short", 1, 1, message_expiry_interval=10), 5)
        + encode(publish("t", b"long", 1, 2, message_expiry_interval=100), 5)
        + encode(publish("t", b"for ever", 1, 3), 5)
    )
    if leaving:
        reader.wire.sendall(leaving)
    reader.close()
    quiet.pass_time(40)
    reader = quiet.connect(5, **kept)
    reader.expect_message("t", b"long", 1, message_expiry_interval=60)
    reader.expect_message("t", b"for ever", 1)
    reader.expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 2


def test_messages_expire_across_protocols(quiet: StillServer) -> None:
    """What an MQTT client publishes expires in the queue of an AMQP client, and the other way round."""
    vhost = quiet.engine.broker.vhost("/")
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 600}
    reader, client = quiet.connect(5, **kept), quiet.connect(5)
    queue = vhost.declare_queue("amqp", None, 0.0)
    vhost.bind("amq.topic", queue, "plant.#")
    reader.subscribe("plant/#", qos=1)
    reader.close()
    client.publish("plant/a", b"from MQTT", 1, message_expiry_interval=10)
    for milliseconds in (10_000, 100_000):
        envelope = Envelope(exchange="amq.topic", key="plant.b", persistent=True, expiration=milliseconds)
        vhost.publish(batch_of([b"from AMQP"], envelope), quiet.host.now())
    assert queue.statistics()["messages_ready"] == 3
    quiet.pass_time(40)
    assert queue.statistics()["messages_ready"] == 1
    quiet.connect(5, **kept).expect_message("plant/b", b"from AMQP", 1, message_expiry_interval=60)


def test_a_message_that_is_delivered_at_once_has_all_its_time(quiet: StillServer) -> None:
    client = quiet.connect(5)
    client.subscribe("t", qos=1)
    for qos in (0, 1):
        client.send(publish("t", b"x", qos, message_expiry_interval=4_294_967_295))
        came = {type(one): one for one in [client.next() for _ in range(1 + qos)]}
        assert came[Message].properties.message_expiry_interval == 4_294_967_295  # type: ignore[attr-defined]


def test_topics_of_the_broker_are_not_published(quiet: StillServer, version: int) -> None:
    """MQTT 5.0, 4.7.2."""
    client = quiet.connect(version)
    client.subscribe("$SYS/x")
    client.send(publish("$SYS/x"), publish("$SYS/x", retain=True))
    client.expect_nothing()
    code = ReasonCode.NOT_AUTHORIZED if version == 5 else 0
    client.send(publish("$SYS/x", qos=1))
    client.expect_acks(PUBACK, 1, code=code)


@pytest.mark.parametrize("topic", ["a.b/c", "a/b.c", "/", "//", "a//b", "/a", "a/", "é/ü", " ", "a b", "."])
def test_a_topic_arrives_as_it_was(quiet: StillServer, version: int, topic: str) -> None:
    """[MQTT-4.7.3-4]: all characters count, and so do empty levels."""
    client = quiet.connect(version)
    client.subscribe(topic)
    client.send(publish(topic), publish(topic + "x"))
    client.expect_message(topic)
    client.expect_nothing()


# Refusals


def test_a_user_who_may_not_publish(still: Still, version: int) -> None:
    """[MQTT-3.3.5-2] of MQTT 3.1.1: refused, or the connection is closed."""
    server = still(users={"u": {"password": "p", "write": "nothing"}})
    login = {"user_name": "u", "password": b"p"}
    client = server.connect(version, **login)
    client.send(publish("t", qos=1, number=1), publish("t", qos=2, number=2), Pingreq())
    if version == 4:
        client.expect_close()
    else:
        refused = ReasonCode.NOT_AUTHORIZED
        came = [client.next() for _ in range(3)]
        came.remove(Pingresp())
        assert came == [Ack(PUBACK, 1, refused), Ack(PUBREC, 2, refused)]
        client.send(publish("t", qos=2, number=2))  # it is free again
        client.expect_acks(PUBREC, 2, code=refused)
    client = server.connect(version, **login)
    client.send(publish("t"))
    client.expect_end(ReasonCode.NOT_AUTHORIZED)


def full(server: StillServer) -> None:
    vhost = server.engine.broker.vhost("/")
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    vhost.declare_queue("full", None, 0.0, arguments=arguments)
    vhost.bind("amq.topic", vhost.queues["full"], "t")


def test_a_full_queue_refuses(quiet: StillServer) -> None:
    """MQTT 5.0, 3.4.2.1: the messages that it has taken are acknowledged."""
    full(quiet)
    client = quiet.connect(5)
    client.send(
        *[publish("t", b"%d" % number, 1, number) for number in (1, 2, 3)], publish("u", qos=1, number=4)
    )
    client.expect_acks(PUBACK, 1, 2)
    client.expect_acks(PUBACK, 3, code=ReasonCode.QUOTA_EXCEEDED)
    client.expect_acks(PUBACK, 4, code=ReasonCode.NO_MATCHING_SUBSCRIBERS)
    client.send(publish("t", qos=2, number=5))
    client.expect_acks(PUBREC, 5, code=ReasonCode.QUOTA_EXCEEDED)
    client.ack(PUBREL, 5)
    client.expect_acks(PUBCOMP, 5, code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)


def test_a_full_queue_ends_a_connection_that_cannot_be_told(quiet: StillServer) -> None:
    full(quiet)
    client = quiet.connect(4)
    client.send(*[publish("t", b"%d" % number, 1, number) for number in (1, 2, 3)])
    client.expect_acks(PUBACK, 1, 2)
    client.expect_close()


def test_a_publisher_waits_while_an_alarm_is_raised(still: Still, version: int) -> None:
    server = still(queued_limit=10_000)
    client, reader = server.connect(version, keep_alive=10), server.connect(version)
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False}
    if version == 5:
        kept["session_expiry_interval"] = 600
    away = server.connect(version, **kept)
    away.subscribe("t", qos=1)
    away.close()
    client.publish("t", b"x" * 20_000, 1)
    server.pass_time(1)
    client.publish("t", b"x" * 20_000, 1)
    client.send(publish("t", b"late", 1, 2))
    server.pass_time(100)  # it is not silent, it is not read
    client.wire.settimeout(0)
    with pytest.raises(BlockingIOError):
        client.next()
    client.wire.settimeout(1)
    reader.expect_nothing()
    away = server.connect(version, **kept)
    for _ in range(2):
        away.ack(PUBACK, away.expect(Message).id)
    server.pass_time(1)
    client.expect_acks(PUBACK, 2)


# The store


def test_answers_wait_for_the_disk(still: Still, tmp_path: Path, version: int) -> None:
    """[MQTT-4.3.2-4], [MQTT-4.3.3-8]: the broker has taken responsibility when it says so."""
    server = still(data_dir=str(tmp_path))
    server.vhost.declare_queue("q", None, 0.0, durable=True)
    server.vhost.bind("amq.topic", server.vhost.queues["q"], "t")
    client = server.connect(version)
    server.hold_disk()
    client.send(
        publish("t", b"1", 1, 1),
        publish("t", b"2", 2, 2),
        publish("t", b"0"),
        publish("u", qos=1, number=3),
    )
    client.expect_nothing()  # pings are answered
    server.free_disk()
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS if version == 5 else 0
    wanted = [Ack(PUBACK, 1), Ack(PUBREC, 2), Ack(PUBACK, 3, nobody)]
    assert [client.expect(Ack) for _ in wanted] == wanted


def test_a_lasting_session_is_told_of_what_is_on_disk(still: Still, tmp_path: Path, version: int) -> None:
    """What a client knows of its session must not be lost with the broker: CONNACK, SUBACK, PUBCOMP."""
    server = still(data_dir=str(tmp_path))
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False}
    if version == 5:
        kept["session_expiry_interval"] = 60
    server.connect(version, **{**kept, "client_id": "other"}).subscribe("u", qos=1)
    client = server.client(version)
    steps: list[tuple[Packet, type[Any]]] = [
        (connect_packet(version, **kept), Connack),
        (Subscribe(1, (subscription("t", 1),)), Suback),
        (publish("u", b"x", 2, 7), Ack),
        (Acknowledgement(PUBREL, (7,)), Ack),
        (publish("nobody", b"x", 1, 7, retain=True), Ack),
        (publish("nobody", b"", 2, 7, retain=True), Ack),
        (Unsubscribe(2, ("t",)), Unsuback),
    ]
    for packet, answer in steps:
        server.hold_disk()
        client.send(packet)
        client.wire.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.next()
        client.wire.settimeout(1)
        server.free_disk()
        client.expect(answer)


@pytest.mark.parametrize("qos", [1, 2])
def test_answers_wait_for_routes_that_confirm(kernel_factory: KernelFactory, version: int, qos: int) -> None:
    """An application takes what a route brings; until it has, there is no PUBACK and no PUBREC."""
    kernel = kernel_factory(
        EnginePlan(
            name="broker",
            kind="broker",
            options={"listeners": [{"protocol": "mqtt", "address": "127.0.0.1:0"}]},
        ),
        EnginePlan(name="application", kind="native"),
        RoutePlan(source="broker", targets=("application",), confirm=True, match=("a",)),
    )
    shared = Shared(kernel)
    with kernel.open("application") as application:
        client = shared.connect(version)
        client.send(publish("a", b"routed", qos, 5))
        assert bytes(application.receive(timeout=TIMEOUT)) == b"routed"
        # The ping is answered behind it, and alone.
        client.expect_nothing()
        application.confirm()
        client.expect_acks(PUBACK if qos == 1 else PUBREC, 5, code=0)
    shared.close_clients()
    kernel.close(linger=0)
