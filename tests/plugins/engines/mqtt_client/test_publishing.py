"""Publishing, packet by packet: identifiers, limits, sending again, refusals."""

from __future__ import annotations

import msgspec
import pytest

from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Acknowledgement, Connect, Publish
from plugins.protocols.mqtt.properties import Properties
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt_client.conftest import bodies
from tests.plugins.engines.mqtt_client.in_memory import InMemory

TRANSIENT = Envelope()


def test_a_run_is_one_run_and_is_confirmed_as_it_is_acknowledged() -> None:
    world = InMemory()
    broker = world.connect()
    world.feed(*bodies(0, 4))
    (packet,) = broker.take(Publish)
    assert [bytes(body) for body in packet.payloads] == bodies(0, 4)
    assert (packet.qos, packet.dup, packet.topic) == (1, False, "t")
    broker.acknowledge(PacketType.PUBACK, packet.ids[:3])
    assert world.port.confirmed_in == 3
    broker.acknowledge(PacketType.PUBACK, packet.ids[3:])
    assert world.port.confirmed_in == 4


def test_the_port_is_told_in_order_when_the_broker_is_not() -> None:
    world = InMemory()
    broker = world.connect()
    world.feed(*bodies(0, 3))
    first, second, third = [each[0] for each in broker.published()]
    broker.acknowledge(PacketType.PUBACK, [third, second, third, 60_000])
    assert world.port.confirmed_in == 0
    broker.acknowledge(PacketType.PUBACK, [first])
    assert world.port.confirmed_in == 3


def test_qos_2_is_confirmed_with_pubcomp() -> None:
    world = InMemory(qos=2)
    broker = world.connect()
    world.feed(b"x")
    ((identifier, _, qos, _),) = broker.published()
    assert qos == 2
    broker.acknowledge(PacketType.PUBREC, [identifier])
    assert broker.acknowledged(PacketType.PUBREL) == [identifier]
    assert world.port.confirmed_in == 0
    broker.acknowledge(PacketType.PUBCOMP, [identifier])
    assert world.port.confirmed_in == 1


def test_qos_0_is_confirmed_when_the_socket_has_it_and_behind_what_came_before() -> None:
    world = InMemory()
    broker = world.connect()
    world.feed(b"0", envelope=TRANSIENT)
    assert world.port.confirmed_in == 1
    world.feed(b"1")
    world.feed(b"2", envelope=TRANSIENT)
    assert [(body, qos) for _, body, qos, _ in broker.published()] == [(b"0", 0), (b"1", 1), (b"2", 0)]
    assert world.port.confirmed_in == 1
    broker.acknowledge(PacketType.PUBACK, [2])
    assert world.port.confirmed_in == 3


def test_qos_0_that_the_socket_has_not_taken_is_sent_on_the_next_connection() -> None:
    world = InMemory(qos=0, capacity=1000)
    broker = world.dial()
    world.cut(broker)
    broker = world.connect()
    world.host.watch(broker.wire.fileno())  # it reads nothing any more
    world.feed(b"x" * 5000)
    assert world.port.confirmed_in == 0
    world.cut(broker)
    again = world.connect(present=True)
    assert again.published() == [(0, b"x" * 5000, 0, False)]
    assert world.port.confirmed_in == 1


def test_no_more_is_in_flight_than_the_broker_takes() -> None:
    world = InMemory(qos=2)
    broker = world.connect(receive_maximum=3)
    world.feed(*bodies(0, 8))
    ids = [each[0] for each in broker.published()]
    assert len(ids) == 3
    broker.acknowledge(PacketType.PUBREC, ids)
    assert broker.published() == []
    broker.acknowledge(PacketType.PUBCOMP, ids[:2])
    assert [each[1] for each in broker.published()] == bodies(3, 5)


def test_what_is_not_acknowledged_is_sent_again_in_the_session_with_dup() -> None:
    world = InMemory()
    broker = world.connect()
    world.feed(*bodies(0, 4))
    sent = broker.published()
    broker.acknowledge(PacketType.PUBACK, [sent[1][0]])
    world.cut(broker)
    world.feed(b"new")
    broker = world.connect(present=True)
    again = broker.published()
    assert again[:3] == [(number, body, 1, True) for number, body, _, _ in (sent[0], sent[2], sent[3])]
    assert [(body, dup) for _, body, _, dup in again[3:]] == [(b"new", False)]
    broker.acknowledge(PacketType.PUBACK, [each[0] for each in again])
    assert world.port.confirmed_in == 5
    assert world.engine.counters.messages_resent == 3


def test_the_next_connection_keeps_to_its_own_receive_maximum() -> None:
    world = InMemory()
    broker = world.connect()
    world.feed(*bodies(0, 5))
    broker.take(Publish)
    world.cut(broker)
    broker = world.connect(present=True, receive_maximum=2)
    first = broker.published()
    assert [each[1] for each in first] == bodies(0, 2)
    broker.acknowledge(PacketType.PUBACK, [each[0] for each in first])
    assert [each[1] for each in broker.published()] == bodies(2, 4)


def test_what_the_broker_has_received_is_released_again() -> None:
    world = InMemory(qos=2)
    broker = world.connect()
    world.feed(*bodies(0, 2))
    first, second = [each[0] for each in broker.published()]
    broker.acknowledge(PacketType.PUBREC, [first])
    world.cut(broker)
    broker = world.connect(present=True)
    assert broker.acknowledged(PacketType.PUBREL) == [first]
    assert broker.published() == [(second, b"1", 2, True)]
    broker.acknowledge(PacketType.PUBCOMP, [first], ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert world.port.confirmed_in == 1


def test_a_broker_that_has_lost_the_session_gets_everything_as_new() -> None:
    world = InMemory(qos=2)
    broker = world.connect()
    world.feed(*bodies(0, 2))
    broker.acknowledge(PacketType.PUBREC, [broker.published()[0][0]])
    world.cut(broker)
    broker = world.connect(present=False)
    assert [(body, dup) for _, body, _, dup in broker.published()] == [(b"0", False), (b"1", False)]
    assert broker.acknowledged(PacketType.PUBREL) == []


def test_a_new_engine_frees_identifiers_of_qos_2_before_it_uses_them() -> None:
    world = InMemory(qos=2)
    broker = world.connect(present=True)
    world.feed(b"x")
    release, publish = broker.packets
    assert isinstance(release, Acknowledgement)
    assert isinstance(publish, Publish)
    assert release.kind is PacketType.PUBREL
    assert list(release.ids) == list(publish.ids)
    # The connection is lost before the broker has answered: it may not have read PUBREL either.
    world.cut(broker)
    broker = world.connect(present=True)
    release, publish = broker.packets
    assert list(release.ids) == list(publish.ids)
    broker.acknowledge(PacketType.PUBCOMP, publish.ids, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert world.port.confirmed_in == 0
    broker.acknowledge(PacketType.PUBREC, publish.ids)
    broker.acknowledge(PacketType.PUBCOMP, publish.ids)
    assert world.port.confirmed_in == 1


def test_identifiers_begin_anew_and_are_never_used_twice() -> None:
    world = InMemory(in_flight=65_535)
    broker = world.connect()
    world.feed(b"stays")
    ((stays, _, _, _),) = broker.published()
    for _ in range(7):
        world.feed(*[b"x"] * 10_000)
        ids = [each[0] for each in broker.published()]
        assert stays not in ids
        broker.say(Acknowledgement(PacketType.PUBACK, ids)) if ids else None
    # All identifiers but that of the first message were used: the rest waits for it.
    assert world.port.confirmed_in == 0
    broker.acknowledge(PacketType.PUBACK, [stays])
    rest = [each[0] for each in broker.published()]
    broker.say(Acknowledgement(PacketType.PUBACK, rest))
    assert world.port.confirmed_in == 70_001


@pytest.mark.parametrize("qos,kind", [(1, PacketType.PUBACK), (2, PacketType.PUBREC)])
def test_a_refused_message_is_refused_alone_with_the_reason(qos: int, kind: PacketType) -> None:
    world = InMemory(qos=qos)
    broker = world.connect()
    world.feed(*bodies(0, 3))
    ids = [each[0] for each in broker.published()]
    properties = Properties(reason_string="full")
    broker.acknowledge(kind, ids[1:2], ReasonCode.QUOTA_EXCEEDED, properties=properties)  # type: ignore[arg-type]
    (refused,) = world.port.refused
    assert refused[:2] == (2, 2)
    assert "Quota exceeded (full)" in refused[2]
    assert "refused" in world.what()
    assert world.engine.counters.messages_refused == 1
    done = PacketType.PUBACK
    if qos == 2:
        broker.acknowledge(PacketType.PUBREC, [ids[0], ids[2]])
        assert broker.acknowledged(PacketType.PUBREL) == [ids[0], ids[2]]
        done = PacketType.PUBCOMP
    broker.acknowledge(done, [ids[0], ids[2]])
    assert world.port.confirmed_in == 3
    assert world.engine.outgoing.in_flight == 0


def test_what_the_broker_cannot_take_is_refused_and_the_rest_goes_out() -> None:
    world = InMemory(topic=None)
    broker = world.connect(maximum_packet_size=100)
    world.feed(b"a", b"x" * 100, b"b", envelope=Envelope(key="k", persistent=True))
    world.feed(b"c", envelope=Envelope(key="a.*", persistent=True))
    world.feed(b"d", envelope=Envelope(key="", persistent=True))
    assert [each[1] for each in broker.published()] == [b"a", b"b"]
    assert [each[:2] for each in world.port.refused] == [(2, 2), (4, 4), (5, 5)]
    assert "maximum packet size" in world.port.refused[0][2]
    assert "wildcards" in world.port.refused[1][2]


def test_a_limit_that_the_broker_does_not_tell_can_be_given() -> None:
    world = InMemory(topic=None, version=4, broker_max_packet_bytes=100)
    broker = world.connect()
    world.feed(b"a", b"x" * 100, b"b", envelope=Envelope(key="k", persistent=True))
    assert [each[1] for each in broker.published()] == [b"a", b"b"]
    assert [each[:2] for each in world.port.refused] == [(2, 2)]


def test_the_lower_of_two_limits_counts() -> None:
    for told, given in ((100, 1000), (1000, 100)):
        world = InMemory(topic=None, broker_max_packet_bytes=given)
        broker = world.connect(maximum_packet_size=told)
        world.feed(b"x" * 100, b"b", envelope=Envelope(key="k", persistent=True))
        assert [each[1] for each in broker.published()] == [b"b"]


def test_a_message_that_ends_each_connection_is_told_with_what_to_do() -> None:
    """A broker of version 4 has no other answer to one that is too large for it."""
    world = InMemory(version=4)

    def last_error() -> str:
        return str(world.engine.statistics()["links"][0]["last_error"])

    broker = world.connect()
    world.feed(b"a", b"x" * 5000, b"b", envelope=Envelope(key="k", persistent=True))
    for _ in range(2):
        world.cut(broker)
        assert "broker_max_packet_bytes" not in last_error()
        broker = world.connect()
    # An answer to the oldest one: it is another one that is in the way now.
    broker.acknowledge(PacketType.PUBACK, [broker.published()[0][0]])
    for _ in range(3):
        world.cut(broker)
        assert "broker_max_packet_bytes" not in last_error()
        broker = world.connect()
    world.cut(broker)
    assert last_error().endswith(
        "3 connections in a row have ended without an answer to the oldest message; the largest message in flight has "
        "5000 bytes (key 'k'): if that is more than the broker takes, say so with broker_max_packet_bytes"
    )
    assert world.port.refused == []


def test_the_brokers_limits_of_qos_and_retained_messages() -> None:
    world = InMemory(qos=2, retain="always")
    broker = world.connect(maximum_qos=1, retain_available=0)
    world.feed(b"x")
    (packet,) = broker.take(Publish)
    assert (packet.qos, packet.retain) == (1, False)


def test_topic_properties_and_retain_come_from_the_envelope() -> None:
    world = InMemory(topic=None, publish_prefix="from/here/")
    broker = world.connect()
    properties = {"content_type": "text/plain", "mqtt_retain": True, "headers": {"n": 1}}
    envelope = Envelope(key="a.b/c", reply_to="r", expiration=2500, persistent=True, properties=properties)
    world.feed(b"x", envelope=envelope)
    (packet,) = broker.take(Publish)
    assert packet.topic == "from/here/a/b.c"
    assert packet.retain
    assert packet.properties == Properties(
        content_type="text/plain",
        response_topic="r",
        message_expiry_interval=3,
        user_properties=(("n", "1"),),
    )


def test_the_parts_of_a_message_are_joined() -> None:
    world = InMemory()
    broker = world.connect()
    world.port.waiting.append(batch_of([(b"a", b"bc")], Envelope(persistent=True), multipart=True))
    world.engine.on_output()
    world.run()
    assert [each[1] for each in broker.published()] == [b"abc"]


def test_a_broker_that_acknowledges_nothing_is_given_up() -> None:
    world = InMemory(confirm_timeout=5.0)
    broker = world.connect()
    world.feed(b"x")
    world.run(4.9)
    assert not broker.ended
    world.run(0.2)
    assert broker.ended
    assert "acknowledged none of 1 message within 5 s" in world.host.events[-1].detail


def test_what_nobody_waits_for_is_sent_again_all_the_same() -> None:
    world = InMemory()
    world.port.wants_confirm = False
    broker = world.connect()
    world.feed(b"x")
    broker.take(Publish)
    world.cut(broker)
    broker = world.connect(present=True)
    assert [each[1] for each in broker.published()] == [b"x"]


def test_connect_says_what_the_options_say() -> None:
    world = InMemory(user="u", password="p", keep_alive=7, session_seconds=9, receive_maximum=5)
    (packet,) = world.dial().take(Connect)
    assert (packet.client_id, packet.user_name, packet.password) == ("c", "u", b"p")
    assert (packet.clean_start, packet.keep_alive) == (False, 7)
    assert packet.properties.session_expiry_interval == 9
    assert packet.properties.receive_maximum == 5
    (packet,) = InMemory(version=4, session_seconds=0).dial().take(Connect)
    assert (packet.version, packet.clean_start) == (4, True)
    assert msgspec.structs.asdict(packet.properties) == msgspec.structs.asdict(Properties())
