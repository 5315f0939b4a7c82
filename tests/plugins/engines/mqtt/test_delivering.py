"""What a client is sent, and when: flow control, resending, sizes, aliases, slow clients (MQTT 5.0, 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plugins.engines.mqtt.outgoing import OWN_IDS
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Acknowledgement, Pingresp
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Message,
    RawClient,
    everything,
    kept,
    publish,
    subscription,
)
from tests.plugins.engines.mqtt.still_server import StillServer

Still = Callable[..., StillServer]


def publish_all(server: StillServer, count: int, qos: int, topic: str = "t") -> None:
    publisher = server.connect(5)
    for number in range(1, count + 1):
        publisher.publish(topic, b"%d" % number, qos)
    publisher.disconnect()


def messages(client: RawClient, count: int) -> list[Message]:
    return [client.expect(Message) for _ in range(count)]


# Flow control


@pytest.mark.parametrize("by", ["the client", "the broker"])
def test_a_client_gets_no_more_than_it_takes(still: Still, by: str) -> None:
    """[MQTT-3.3.4-9]: QoS 1 counts until PUBACK, QoS 2 until PUBCOMP (4.9)."""
    server = still({} if by == "the client" else {"max_inflight": 3})
    client = server.connect(5, receive_maximum=3 if by == "the client" else 10)
    client.subscribe("t", qos=2)
    publish_all(server, 2, 2)
    publish_all(server, 4, 1)
    first, second, third = [message.id for message in messages(client, 3)]
    client.expect_nothing()
    client.ack(PUBREC, second)
    client.expect_acks(PUBREL, second)
    client.expect_nothing()
    client.ack(PUBCOMP, second)
    fourth = client.expect_message("t", b"2", 1)
    client.expect_nothing()
    client.ack(PUBACK, third)
    fifth = client.expect_message("t", b"3", 1)
    client.expect_nothing()
    client.ack(PUBREC, first, code=ReasonCode.UNSPECIFIED_ERROR)  # that ends it, too
    sixth = client.expect_message("t", b"4", 1)
    client.ack(PUBACK, sixth, fourth, fifth)
    client.expect_nothing()


def test_qos_0_is_not_limited(quiet: StillServer) -> None:
    """[MQTT-3.3.4-9] is of QoS 1 and 2 only: a subscription without a queue waits for nothing."""
    client = quiet.connect(5, receive_maximum=1)
    client.subscribe("t", qos=1)
    client.subscribe("u")
    publish_all(quiet, 2, 1)
    publish_all(quiet, 2, 0, "u")
    assert [message.topic for message in messages(client, 3)] == ["t", "u", "u"]
    client.expect_nothing()


def test_acknowledgements_in_any_order(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version, **kept(version))
    client.subscribe("t", qos=2)
    publish_all(quiet, 5, 1)
    ids = [message.id for message in messages(client, 5)]
    client.ack(PUBACK, ids[3], ids[0], ids[3], 60_000)  # twice, and one that is unknown
    client.close()
    client = quiet.connect(version, **kept(version))
    assert [(message.id, message.dup) for message in messages(client, 3)] == [
        (ids[1], True),
        (ids[2], True),
        (ids[4], True),
    ]
    client.ack(PUBACK, ids[4], ids[2], ids[1])
    client.expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 0


def test_a_pubrec_for_what_is_unknown(quiet: StillServer) -> None:
    """MQTT 5.0, 3.6.2.1."""
    client = quiet.connect(5)
    client.ack(PUBREC, 7)
    client.expect_acks(PUBREL, 7, code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    client.ack(PUBCOMP, 7)
    client.ack(PUBACK, 7)
    client.expect_nothing()


# Resending


def test_what_is_not_acknowledged_is_sent_again_in_order(quiet: StillServer, version: int) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.6.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-4]: with the same identifiers."""
    client = quiet.connect(version, **kept(version))
    client.subscribe("t", qos=2)
    publisher = quiet.connect(version)
    for number, qos in enumerate((1, 2, 2, 1, 2), 1):
        publisher.publish("t", b"%d" % number, qos)
    first = messages(client, 5)
    ids = [message.id for message in first]
    assert not any(message.dup for message in first)
    client.ack(PUBREC, ids[2], ids[1])
    client.expect_acks(PUBREL, ids[2], ids[1])
    client.close()
    publisher.publish("t", b"6", 2)
    for _ in range(2):  # and again
        client = quiet.connect(version, **kept(version))
        assert client.connack.session_present
        again = [client.next() for _ in range(6)]
        numbers = [message for message in again if isinstance(message, Message)]
        assert [(message.payload, message.id, message.dup) for message in numbers[:3]] == [
            (b"1", ids[0], True),
            (b"4", ids[3], True),
            (b"5", ids[4], True),
        ]
        assert numbers[3].payload == b"6"
        assert [one for one in again if isinstance(one, Ack)] == [Ack(PUBREL, ids[2]), Ack(PUBREL, ids[1])]
        client.close()
    client = quiet.connect(version, **kept(version))
    for _ in range(6):
        came = client.next()
        if isinstance(came, Ack):
            client.ack(PUBCOMP, came.id)
        elif came.qos == 1:  # type: ignore[union-attr]
            client.ack(PUBACK, came.id)  # type: ignore[union-attr]
        else:
            client.ack(PUBREC, came.id)  # type: ignore[union-attr]
    client.expect_acks(PUBREL, ids[4], numbers[3].id)
    client.ack(PUBCOMP, ids[4], numbers[3].id)
    client.close()
    quiet.connect(version, **kept(version)).expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_does_not_expire(quiet: StillServer, qos: int) -> None:
    """[MQTT-4.3.3-7]: it is completed, and sent again."""
    client, publisher = quiet.connect(5, **kept(5)), quiet.connect(5)
    client.subscribe("t", qos=qos)
    publisher.publish("t", qos=qos, message_expiry_interval=10)
    first = client.expect(Message)
    quiet.pass_time(20)
    client.close()
    client = quiet.connect(5, **kept(5))
    again = client.expect(Message)
    assert (again.id, again.dup) == (first.id, True)
    client.ack(PUBACK if qos == 1 else PUBREC, first.id)
    if qos == 2:
        client.expect_acks(PUBREL, first.id)
        client.ack(PUBCOMP, first.id)
    client.expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 0


def test_the_sequence_of_qos_2_goes_on_after_the_message_has_expired(quiet: StillServer) -> None:
    """[MQTT-4.3.3-13]."""
    client = quiet.connect(5)
    client.send(publish("t", b"x", 2, 7, message_expiry_interval=10))
    client.expect_acks(PUBREC, 7, code=ReasonCode.NO_MATCHING_SUBSCRIBERS)
    quiet.pass_time(20)
    client.ack(PUBREL, 7)
    client.expect_acks(PUBCOMP, 7)


def test_a_client_that_takes_less_than_before_gets_less(quiet: StillServer) -> None:
    """[MQTT-3.3.4-9] also where messages are sent again."""
    client = quiet.connect(5, **kept(5))
    client.subscribe("t", qos=2)
    publish_all(quiet, 3, 2)
    publish_all(quiet, 2, 1)
    ids = [message.id for message in messages(client, 5)]
    client.ack(PUBREC, ids[0])
    client.expect_acks(PUBREL, ids[0])
    client.close()
    publish_all(quiet, 1, 1)
    client = quiet.connect(5, **kept(5, receive_maximum=2))
    came = [client.next(), client.next()]
    assert Ack(PUBREL, ids[0]) in came
    came.remove(Ack(PUBREL, ids[0]))
    assert [(one.id, one.dup) for one in came if isinstance(one, Message)] == [(ids[1], True)]
    client.expect_nothing()
    client.ack(PUBCOMP, ids[0])
    assert client.expect_message("t", b"3", 2, dup=True) == ids[2]
    client.expect_nothing()
    client.ack(PUBREC, ids[1], ids[2])
    client.expect_acks(PUBREL, ids[1], ids[2])
    client.expect_nothing()
    client.ack(PUBCOMP, ids[1], ids[2])
    for number, payload in ((ids[3], b"1"), (ids[4], b"2")):
        assert client.expect_message("t", payload, 1, dup=True) == number
    client.expect_nothing()
    client.ack(PUBACK, ids[3])
    last = client.expect_message("t", b"1", 1)
    client.ack(PUBACK, ids[4], last)
    client.expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 0


def test_a_client_that_takes_smaller_packets_than_before(quiet: StillServer) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25] also where messages are sent again."""
    client = quiet.connect(5, **kept(5))
    client.subscribe("t", qos=1)
    publisher = quiet.connect(5)
    for payload in (b"1", b"x" * 200, b"2"):
        publisher.publish("t", payload, 1)
    ids = [message.id for message in messages(client, 3)]
    client.close()
    client = quiet.connect(5, **kept(5, maximum_packet_size=100))
    assert client.expect_message("t", b"1", 1, dup=True) == ids[0]
    assert client.expect_message("t", b"2", 1, dup=True) == ids[2]
    client.ack(PUBACK, ids[0], ids[2])
    client.expect_nothing()
    assert quiet.row("mqtt.session.c")["messages"] == 0


def test_a_session_without_connection_collects_messages(quiet: StillServer, version: int) -> None:
    """MQTT 5.0, 4.1: and in order [MQTT-4.6.0-5]."""
    client = quiet.connect(version, **kept(version))
    client.subscribe("t", qos=2)
    client.close()
    publisher = quiet.connect(version)
    for number in range(9):
        publisher.publish("t", b"%d" % number, number % 3)
    client = quiet.connect(version, **kept(version))
    got = messages(client, 9)
    assert [(message.payload, message.qos, message.dup) for message in got] == [
        (b"%d" % number, number % 3, False) for number in range(9)
    ]
    client.expect_nothing()


@pytest.mark.slow
def test_packet_identifiers_come_round(quiet: StillServer) -> None:
    """[MQTT-2.2.1-4]: one that is in use is not used again; what is behind it waits."""
    client, publisher = quiet.connect(5), quiet.connect(5)
    client.subscribe("t", qos=1)
    publisher.publish("t", b"held", 1)
    held = client.expect_message("t", b"held", 1)
    got: list[bytes] = []
    for _ in range(OWN_IDS // 512 + 1):
        publisher.send(*[publish("t", b"%d" % number, 1, number) for number in range(1, 513)])
        publisher.expect_acks(PUBACK, *range(1, 513))
        publisher.sync()
        came = everything(client)
        assert held not in [message.id for message in came]
        client.send(*[Acknowledgement(PUBACK, (message.id,)) for message in came])
        got += [message.payload for message in came]
    client.ack(PUBACK, held)
    got += [message.payload for message in everything(client)]
    assert got == [b"%d" % number for number in range(1, 513)] * (OWN_IDS // 512 + 1)


# Sizes


def packet_size(topic: str, payload: bytes, qos: int, **properties: Any) -> int:
    return len(encode(publish(topic, payload, qos, **properties), 5))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("aliases", [0, 1, 10])
@pytest.mark.parametrize("stays", [False, True])
def test_a_client_gets_no_packet_that_is_too_large(
    quiet: StillServer, qos: int, aliases: int, stays: bool
) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: it counts as delivered.

    The empty message has room for the topic and its alias.  With the alias alone the next ones are smaller.
    """
    most = 120
    topic = "a/long/topic"
    client = quiet.connect(
        5,
        **(kept(5) if stays else {"client_id": "c"}),
        maximum_packet_size=most,
        topic_alias_maximum=aliases,
    )
    client.subscribe("#", qos=qos)
    room = most - packet_size(topic, b"", qos)
    publisher = quiet.connect(5)
    for size in (room + 1, room, room + 100, 0):
        publisher.publish(topic, b"x" * size, qos)
    publisher.send(
        *[publish(topic, b"x" * size, qos, number + 1) for number, size in enumerate((room + 1, room))]
    )
    sizes = [room, 0, room + 1, room] if aliases else [room, 0, room]
    got = messages(client, len(sizes))
    assert [len(message.payload) for message in got] == sizes
    for message in got:
        if qos == 1:
            client.ack(PUBACK, message.id)
        elif qos == 2:
            client.ack(PUBREC, message.id)
            client.expect_acks(PUBREL, message.id)
            client.ack(PUBCOMP, message.id)
    client.expect_nothing()
    if stays or qos:
        assert quiet.row("mqtt.session.c")["messages"] == 0


def test_a_retained_message_may_be_too_large(quiet: StillServer) -> None:
    client = quiet.connect(5, maximum_packet_size=100)
    client.publish("a", b"x" * 80, retain=True)
    publisher = quiet.connect(5)
    publisher.publish("b", b"x" * 200, retain=True)
    client.subscribe("#")
    client.expect_message("a", b"x" * 80, retain=True)
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1])
def test_what_fits_only_with_an_alias_is_sent_with_it(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.1.2-24]: up to the last byte, each message by itself, and retained ones as well."""
    most, topic = 120, "a/long/topic"
    client = quiet.connect(5, client_id="c", maximum_packet_size=most, topic_alias_maximum=1)
    client.subscribe("#", qos=qos)
    publisher = quiet.connect(5)
    publisher.publish(topic, b"", qos)
    (first,) = messages(client, 1)
    alias = len(encode(publish("x", qos=qos, topic_alias=1), 5)) - len(encode(publish("x", qos=qos), 5))
    room = most - packet_size(topic, b"", qos) + len(topic) - alias
    for size in (room, room + 1):
        publisher.publish(topic, b"x" * size, qos)
    got = messages(client, 1)
    assert [len(message.payload) for message in got] == [room]
    client.ack(PUBACK, *[each.id for each in (first, *got) if qos])
    publisher.publish(topic, b"x" * room, qos, retain=True)
    client.ack(PUBACK, *[each.id for each in messages(client, 1) if qos])
    client.unsubscribe("#")
    client.subscribe(topic)
    assert [(len(message.payload), message.retain) for message in messages(client, 1)] == [(room, True)]
    client.expect_nothing()


# Topic aliases


@pytest.mark.parametrize("qos", [0, 1])
def test_aliases_are_used_for_a_client_that_takes_them(still: Still, qos: int) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27]: no more than it takes, each for one topic."""
    server = still({"topic_alias_maximum": 2})
    client, old, plain = server.connect(5, topic_alias_maximum=10), server.connect(4), server.connect(5)
    for each in (client, old, plain):
        each.subscribe("#", qos=qos)
    publisher = server.connect(5)
    for topic in ("a", "b", "c", "a", "b", "c", "a"):
        publisher.publish(topic, topic.encode(), qos)
    for each in (old, plain):
        assert [message.topic for message in messages(each, 7)] == ["a", "b", "c", "a", "b", "c", "a"]
    assert [(message.payload, message.properties.topic_alias) for message in messages(client, 7)] == [
        (b"a", 1),
        (b"b", 2),
        (b"c", None),
        (b"a", 1),
        (b"b", 2),
        (b"c", None),
        (b"a", 1),
    ]


# Slow clients


def test_a_slow_subscriber_of_qos_0_loses_messages(still: Still, version: int) -> None:
    """Nobody else waits for it, and what it loses is counted."""
    server = still({"max_unwritten_bytes": 65_536})
    slow, quick, publisher = server.connect(version), server.connect(version), server.connect(version)
    for each in (slow, quick):
        each.subscribe("t")
    body = b"x" * 100_000
    for _ in range(50):
        publisher.publish("t", body)
        quick.expect_message("t", body)
    front_end: Any = server.engine.front_ends[0]
    dropped = front_end.sessions.statistics()["dropped"]
    assert 0 < dropped < 50
    for _ in range(50 - dropped):
        slow.expect_message("t", body)
    slow.expect_nothing()
    publisher.publish("t", b"on")
    slow.expect_message("t", b"on")


def test_a_slow_subscriber_with_a_session_loses_nothing(still: Still, version: int) -> None:
    server = still({"max_unwritten_bytes": 65_536})
    slow, publisher = server.connect(version, **kept(version)), server.connect(version)
    slow.subscribe("t")
    body = b"x" * 100_000
    for number in range(50):
        publisher.publish("t", b"%d" % number + body)
    for number in range(50):
        slow.expect_message("t", b"%d" % number + body)
    slow.expect_nothing()


# The queue of a session


@pytest.mark.parametrize("name", ["t", "$share/g/t"])
@pytest.mark.parametrize("away", [False, True])
def test_somebody_deletes_a_queue(quiet: StillServer, version: int, name: str, away: bool) -> None:
    """The client is told.  Without its own queue it begins anew; that of a group is made again."""
    client = quiet.connect(version, **kept(version))
    client.subscribe(name, "other", qos=1)
    publisher = quiet.connect(version)
    publisher.publish("t", qos=1)
    client.expect_message("t", qos=1)
    if away:
        client.close()
    queue = "mqtt.session.c" if name == "t" else "mqtt.share.g.t"
    quiet.vhost.delete_queue(queue, None, quiet.host.now())
    quiet.engine.finish_turn(quiet.host.now())
    if not away:
        client.expect_end(ReasonCode.ADMINISTRATIVE_ACTION)
    publisher.publish("other", b"waits", 1)
    client = quiet.connect(version, **kept(version))
    assert client.connack.session_present == (name != "t")
    if name == "t":
        client.subscribe(name, qos=1)
    else:
        client.ack(PUBACK, client.expect_message("other", b"waits", 1))
    publisher.publish("t", qos=1)
    client.ack(PUBACK, client.expect_message("t", qos=1))
    client.expect_nothing()


def test_the_queue_of_a_session_is_not_for_others(quiet: StillServer, version: int) -> None:
    """A client that consumes from it would take the session's messages."""
    quiet.connect(version, **kept(version)).subscribe("t", qos=1)
    (row,) = quiet.engine.inspect("consumers")
    assert (row["queue_name"], row["exclusive"]) == ("mqtt.session.c", True)


def test_pings_are_answered(quiet: StillServer, version: int) -> None:
    """[MQTT-3.12.4-1]."""
    client = quiet.connect(version)
    client.send_bytes(b"\xc0\x00" * 3)
    for _ in range(3):
        client.expect(Pingresp())


@pytest.mark.parametrize("size", [1, 200, 20_000])
def test_the_first_message_of_a_topic_is_like_the_next(quiet: StillServer, version: int, size: int) -> None:
    """With and without what a packet may have besides a topic."""
    reader, publisher = quiet.connect(version), quiet.connect(5)
    reader.subscribe(subscription("t/#", retain_as_published=version == 5))
    properties: dict[str, Any] = {} if version == 4 else {"content_type": "text"}
    more: dict[str, Any]
    for topic, retain, more in (("t/é", False, {}), ("t/kept", True, {}), ("t/typed", False, properties)):
        for _ in range(3):
            publisher.send(publish(topic, bytes(size), retain=retain, **more))
            reader.expect_message(topic, bytes(size), retain=retain and version == 5, **more)
    reader.expect_nothing()
