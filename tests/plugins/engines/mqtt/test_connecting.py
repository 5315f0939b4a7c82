"""CONNECT and CONNACK: MQTT 5.0, 3.1 and 3.2."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from plugins.engines.broker.host.passwords import Password
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Auth, Connack, Connect, Disconnect, Packet, Pingreq, Pingresp
from plugins.protocols.mqtt.properties import Properties
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt.conftest import Shared
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    Ack,
    RawClient,
    connect_packet,
    publish,
    subscription,
    will,
)
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.plugins.protocols.mqtt.scram_client import ScramClient

Still = Callable[..., StillServer]


def test_something_else_than_connect_is_not_answered(broker: Shared, version: int) -> None:
    """[MQTT-3.1.0-1]."""
    client = broker.client(version)
    client.send(Pingreq())
    client.expect_close()


def test_a_second_connect_ends_the_connection(broker: Shared, version: int) -> None:
    """[MQTT-3.1.0-2]."""
    client = broker.connect(version)
    client.send(connect_packet(version))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


def test_a_protocol_level_that_is_unknown_is_refused(broker: Shared) -> None:
    """[MQTT-3.1.2-2]: with the code that the nearest version has for it."""
    for level, version in ((6, 5), (2, 4)):
        client = broker.client(version)
        octets = bytearray(encode(connect_packet(version), version))
        octets[8] = level
        client.send_bytes(bytes(octets))
        assert client.expect(Connack).reason_code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        client.expect_close()


def test_a_connect_that_is_malformed_is_refused_with_the_reason(broker: Shared) -> None:
    client = broker.client(5)
    octets = bytearray(encode(connect_packet(5), 5))
    octets[9] |= 1  # the reserved flag [MQTT-3.1.2-3]
    client.send_bytes(bytes(octets))
    connack = client.expect(Connack)
    assert connack.reason_code == ReasonCode.MALFORMED_PACKET
    assert "reserved" in connack.properties.reason_string
    client.expect_close()


def test_mqtt_3_1_1_has_no_code_for_a_malformed_connect(broker: Shared) -> None:
    """[MQTT-3.2.2-6] of MQTT 3.1.1."""
    client = broker.client(4)
    octets = bytearray(encode(connect_packet(4), 4))
    octets[9] |= 1
    client.send_bytes(bytes(octets))
    client.expect_close()


def test_packets_behind_connect_are_taken_before_connack_has_come(
    broker: Shared, version: int, own: str
) -> None:
    """MQTT 5.0, 3.1.4: clients may send at once."""
    client = broker.client(version)
    client.send(connect_packet(version), publish(own, qos=1, number=7), Pingreq())
    assert client.expect(Connack).reason_code == 0
    came = [client.next(), client.next()]
    assert Pingresp() in came
    assert {one.id for one in came if isinstance(one, Ack)} == {7}


def test_mqtt_3_1_is_served_as_3_1_1(broker: Shared, own: str) -> None:
    client = broker.client(4)
    client.send(Connect(level=3, client_id=own, user_name="guest", password=b"guest"))
    assert client.expect(Connack) == Connack()
    client.expect_nothing()


# Sessions


def test_a_session_is_present_if_it_outlived_the_connection(broker: Shared, version: int, own: str) -> None:
    """[MQTT-3.2.2-2], [MQTT-3.2.2-3]."""
    kept: dict[str, Any] = {"client_id": own, "clean_start": False}
    if version == 5:
        kept["session_expiry_interval"] = 100
    first = broker.connect(version, **kept)
    assert not first.connack.session_present
    first.subscribe(own, qos=1)
    first.disconnect()
    second = broker.connect(version, **kept)
    assert second.connack.session_present
    assert second.publish(own, qos=1) == 0
    second.expect_message(own, qos=1)
    second.disconnect()
    third = broker.connect(version, **{**kept, "clean_start": True})
    assert not third.connack.session_present
    third.publish(own, qos=1)
    third.expect_nothing()
    third.disconnect()
    if version == 4:  # a clean session ends with its connection
        assert not broker.connect(version, **kept).connack.session_present


def test_a_session_without_expiry_ends_with_its_connection(broker: Shared, own: str) -> None:
    broker.connect(5, client_id=own, clean_start=False).disconnect()
    assert not broker.connect(5, client_id=own, clean_start=False).connack.session_present


def test_a_client_without_identifier_gets_one(broker: Shared, own: str) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7], [MQTT-3.2.2-16]."""
    first, second = broker.connect(5), broker.connect(5)
    names = [each.connack.properties.assigned_client_identifier for each in (first, second)]
    assert all(names)
    assert len(set(names)) == 2
    again = broker.connect(5, client_id=names[0])  # it is the session's name
    first.expect_end(ReasonCode.SESSION_TAKEN_OVER)
    again.expect_nothing()


def test_a_client_of_3_1_1_without_identifier_may_have_a_clean_session_only(broker: Shared) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-8] of MQTT 3.1.1."""
    broker.connect(4)
    client = broker.client(4)
    octets = bytearray(encode(connect_packet(4), 4))
    octets[9] &= ~2
    client.send_bytes(bytes(octets))
    assert client.expect(Connack).reason_code == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    client.expect_close()


@pytest.mark.parametrize("sign", ["x", "é", "/"])
def test_client_identifiers_may_be_long(broker: Shared, version: int, own: str, sign: str) -> None:
    """[MQTT-3.1.3-5] and beyond: the name of the queue stays short enough for AMQP clients."""
    name = own + sign * 30_000
    client = broker.connect(version, client_id=name)
    client.subscribe(own, qos=1)
    client.publish(own, qos=1)
    client.expect_message(own, qos=1)
    assert all(len(row["name"].encode()) <= 255 for row in broker.kernel.inspect("queues").rows)


def test_a_client_takes_its_identifier_over(broker: Shared, version: int, own: str) -> None:
    """[MQTT-3.1.4-3]."""
    kept = {"client_id": own, "clean_start": False}
    if version == 5:
        kept["session_expiry_interval"] = 100
    first = broker.connect(version, **kept)
    first.subscribe(own, qos=1)
    second = broker.connect(version, **kept)
    assert second.connack.session_present
    said = first.expect_end(ReasonCode.SESSION_TAKEN_OVER)
    assert said is None or "client identifier" in said.properties.reason_string
    second.publish(own, qos=1)
    second.expect_message(own, qos=1)


def test_a_will_of_the_connection_that_is_taken_over_is_published(broker: Shared, own: str) -> None:
    """MQTT 5.0, 3.1.4: unless it has a delay and the session goes on."""
    watching = broker.connect(5)
    watching.subscribe(f"{own}/#")
    kept = {"client_id": own, "clean_start": False, "session_expiry_interval": 100}
    broker.connect(5, **kept, will=will(f"{own}/now"))
    broker.connect(5, **kept, will=will(f"{own}/late", will_delay_interval=50))
    watching.expect_message(f"{own}/now", b"will")
    broker.connect(5, **kept, will=will(f"{own}/late", b"other", will_delay_interval=50))
    watching.expect_nothing()
    broker.connect(5, client_id=own, clean_start=True)  # the session has ended
    watching.expect_message(f"{own}/late", b"other")


# What CONNACK says


def test_connack_tells_the_limits(still: Still) -> None:
    server = still(
        {
            "max_packet_bytes": 2048,
            "receive_maximum": 10,
            "topic_alias_maximum": 3,
            "max_keep_alive_seconds": 30,
            "max_session_seconds": 60,
            "retain": False,
        }
    )
    client = server.connect(5, client_id="c", keep_alive=31, session_expiry_interval=61)
    assert client.connack.properties == Properties(
        session_expiry_interval=60,
        receive_maximum=10,
        retain_available=0,
        maximum_packet_size=2048,
        topic_alias_maximum=3,
        server_keep_alive=30,
    )
    client = server.connect(5, client_id="c", keep_alive=30, session_expiry_interval=60)
    assert client.connack.properties.session_expiry_interval is None
    assert client.connack.properties.server_keep_alive is None


def test_a_client_that_is_never_silent_for_too_long_is_told(still: Still) -> None:
    client = still({"max_keep_alive_seconds": 30}).connect(5, keep_alive=0)
    assert client.connack.properties.server_keep_alive == 30


def test_connack_of_a_refusal_says_why_if_it_is_wanted(still: Still) -> None:
    server = still({"redirect": "elsewhere:1883"})
    client = server.client(5)
    connack = client.connect()
    assert connack.reason_code == ReasonCode.USE_ANOTHER_SERVER
    assert connack.properties.server_reference == "elsewhere:1883"
    assert connack.properties.reason_string
    client.expect_close()
    client = server.client(5)
    connack = client.connect(request_problem_information=0)
    assert connack.properties == Properties(server_reference="elsewhere:1883")
    client = server.client(4)
    assert client.connect().reason_code == ReasonCode.SERVER_UNAVAILABLE
    client.expect_close()


# Keep-alive


@pytest.mark.parametrize("asked", [0, 10])
def test_a_silent_client_is_given_up(still: Still, version: int, asked: int) -> None:
    """[MQTT-3.1.2-22], [MQTT-3.2.2-21]: after one and a half of the keep-alive."""
    server = still({"max_keep_alive_seconds": 10} if not asked else {})
    client = server.connect(version, keep_alive=asked)
    server.pass_time(14)
    client.send(Pingreq())
    client.expect(Pingresp())
    server.pass_time(14.9)
    client.send(publish("a"))
    server.pass_time(14.9)
    client.expect_nothing()
    server.pass_time(15.1)
    client.expect_end(ReasonCode.KEEP_ALIVE_TIMEOUT)


def test_a_client_without_keep_alive_may_be_silent(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version)
    quiet.pass_time(1_000_000)
    client.expect_nothing()


def test_a_client_without_connect_is_given_up(quiet: StillServer) -> None:
    client = quiet.client()
    quiet.pass_time(11)
    client.expect_close()


def test_a_silent_client_leaves_its_will(quiet: StillServer, version: int) -> None:
    watching = quiet.connect(version)
    watching.subscribe("w")
    quiet.connect(version, keep_alive=10, will=will("w"))
    quiet.pass_time(16)
    watching.expect_message("w", b"will")


# Session expiry


def test_a_session_expires(quiet: StillServer) -> None:
    """[MQTT-3.1.2-23]."""
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 10}
    client = quiet.connect(5, **kept)
    client.subscribe("t", qos=1)
    quiet.pass_time(20)  # it counts from the end of the connection
    client.disconnect()
    quiet.pass_time(9)
    client = quiet.connect(5, **kept)
    assert client.connack.session_present
    client.disconnect()
    quiet.pass_time(11)
    assert not [row for row in quiet.engine.inspect("queues") if row["name"].startswith("mqtt.")]
    assert not quiet.connect(5, **kept).connack.session_present


def test_a_session_of_3_1_1_is_kept_as_long_as_any(still: Still) -> None:
    server = still({"max_session_seconds": 100})
    server.connect(4, client_id="c", clean_start=False).disconnect()
    server.pass_time(99)
    client = server.connect(4, client_id="c", clean_start=False)
    assert client.connack.session_present
    client.disconnect()
    server.pass_time(101)
    assert not server.connect(4, client_id="c", clean_start=False).connack.session_present


def test_a_session_that_never_expires(still: Still) -> None:
    server = still({"max_session_seconds": 0xFFFF_FFFF})
    client = server.connect(5, client_id="c", session_expiry_interval=0xFFFF_FFFF)
    assert client.connack.properties.session_expiry_interval is None
    client.disconnect()
    server.pass_time(1e9)
    assert server.connect(5, client_id="c", clean_start=False).connack.session_present


def test_disconnect_changes_the_session_expiry(quiet: StillServer) -> None:
    """MQTT 5.0, 3.14.2.2.2."""
    quiet.connect(5, client_id="c", session_expiry_interval=10).disconnect(session_expiry_interval=100)
    quiet.pass_time(99)
    client = quiet.connect(5, client_id="c", clean_start=False, session_expiry_interval=10)
    assert client.connack.session_present
    client.disconnect(session_expiry_interval=0)
    assert not quiet.connect(5, client_id="c", clean_start=False).connack.session_present


def test_disconnect_cannot_keep_a_session_that_was_to_end(quiet: StillServer) -> None:
    client = quiet.connect(5, client_id="c")
    client.send(Disconnect(properties=Properties(session_expiry_interval=10)))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


def test_disconnect_may_repeat_what_the_broker_has_not_granted(still: Still) -> None:
    """It is an error only if CONNECT had none."""
    client = still({"max_session_seconds": 0}).connect(5, client_id="c", session_expiry_interval=10)
    client.send(Disconnect(properties=Properties(session_expiry_interval=10)))
    client.expect_close()


# Wills


def test_a_will_is_published_with_all_it_has(broker: Shared, version: int, own: str) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-15]."""
    watching = broker.connect(version)
    watching.subscribe(subscription(own, 2, retain_as_published=version == 5))
    more: dict[str, Any] = (
        {
            "payload_format_indicator": 1,
            "content_type": "text/plain",
            "response_topic": "answer/here",
            "correlation_data": b"\x00\xff",
            "user_properties": (("a", "1"), ("a", "2")),
        }
        if version == 5
        else {}
    )
    for qos in (0, 1, 2):
        client = broker.connect(version, will=will(own, b"", qos, **more))
        client.close()
        watching.expect_message(own, b"", qos, **more)
    if version == 5:
        client = broker.connect(version, will=will(own, qos=1, message_expiry_interval=90))
        client.close()
        assert watching.next().properties.message_expiry_interval in (89, 90)
    client = broker.connect(version, will=will(own, qos=1, retain=True))
    client.close()
    watching.expect_message(own, b"will", 1, retain=version == 5)
    later = broker.connect(version)
    later.subscribe(own, qos=1)
    later.expect_message(own, b"will", 1, retain=True)


def test_a_client_that_disconnects_leaves_no_will(broker: Shared, version: int, own: str) -> None:
    """[MQTT-3.14.4-3]."""
    watching = broker.connect(version)
    watching.subscribe(own)
    broker.connect(version, will=will(own)).disconnect()
    watching.expect_nothing()


@pytest.mark.parametrize(
    "code",
    [
        ReasonCode.DISCONNECT_WITH_WILL_MESSAGE,
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.ADMINISTRATIVE_ACTION,
    ],
)
def test_disconnect_with_another_reason_leaves_the_will(broker: Shared, own: str, code: int) -> None:
    """[MQTT-3.1.2-8]: only the reason code 0 deletes it."""
    watching = broker.connect(5)
    watching.subscribe(own)
    broker.connect(5, will=will(own)).disconnect(code)
    watching.expect_message(own, b"will")


def test_a_client_that_breaks_the_protocol_leaves_its_will(broker: Shared, version: int, own: str) -> None:
    watching = broker.connect(version)
    watching.subscribe(own)
    client = broker.connect(version, will=will(own))
    client.send(connect_packet(version))
    watching.expect_message(own, b"will")


def test_a_will_waits_for_its_delay(quiet: StillServer) -> None:
    """MQTT 5.0, 3.1.3.2.2."""
    watching = quiet.connect(5)
    watching.subscribe("w")
    quiet.connect(
        5, client_id="c", session_expiry_interval=60, will=will("w", will_delay_interval=10)
    ).close()
    quiet.pass_time(9)
    watching.expect_nothing()
    quiet.pass_time(2)
    watching.expect_message("w", b"will")
    quiet.pass_time(100)
    watching.expect_nothing()


def test_a_will_is_cancelled_by_a_client_that_comes_back_in_time(quiet: StillServer) -> None:
    """[MQTT-3.1.3-9]."""
    watching = quiet.connect(5)
    watching.subscribe("w")
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 60}
    quiet.connect(5, **kept, will=will("w", will_delay_interval=10)).close()
    quiet.pass_time(9)
    quiet.connect(5, **kept)
    quiet.pass_time(100)
    watching.expect_nothing()


def test_a_will_waits_no_longer_than_its_session(quiet: StillServer) -> None:
    watching = quiet.connect(5)
    watching.subscribe("#")
    quiet.connect(5, client_id="c", session_expiry_interval=5, will=will("w", will_delay_interval=10)).close()
    quiet.pass_time(6)
    watching.expect_message("w", b"will")
    quiet.connect(5, client_id="c", will=will("w2", will_delay_interval=10)).close()
    watching.expect_message("w2", b"will")


def test_a_will_that_must_not_be_published_is_refused(still: Still, version: int) -> None:
    server = still(users={"u": {"password": "p", "write": "nothing"}})
    login = {"user_name": "u", "password": b"p"}
    assert server.client(version).connect(**login).reason_code == 0
    client = server.client(version)
    assert client.connect(**login, will=will("w")).reason_code == ReasonCode.NOT_AUTHORIZED
    client.expect_close()


def test_a_will_under_a_topic_of_the_broker_is_dropped(quiet: StillServer, version: int) -> None:
    """Clients do not publish under ``$`` (MQTT 5.0, 4.7.2).  mosquitto accepts such a client, too."""
    watching = quiet.connect(version)
    watching.subscribe("$SYS/uptime", "$own/#")
    for topic in ("$SYS/uptime", "$own/a"):
        quiet.connect(version, client_id="c", will=will(topic, retain=True)).close()
        quiet.process()
        (ignored,) = [
            event for event in quiet.host.events if event.what == "ignored" and topic in event.detail
        ]
        assert "the broker's own" in ignored.detail
    watching.expect_nothing()


@pytest.mark.parametrize("level", [0x83, 0x84])
def test_a_bridge_of_mosquitto_is_one(quiet: StillServer, level: int) -> None:
    """What mosquitto 2.0.11 sends with its defaults: the bit of bridges, and its state as a will."""
    state = "$SYS/broker/connection/here.there/state"
    watching, other = quiet.connect(5), quiet.connect(5)
    watching.subscribe(subscription("$SYS/broker/connection/#", retain_as_published=True))
    bridge = quiet.client(4)
    connect = connect_packet(
        4, client_id="bridge", level=level & 0x7F, is_bridge=True, will=will(state, retain=True)
    )
    octets = encode(connect, 4)
    assert octets[8 if level == 0x84 else 10] == level
    bridge.send_bytes(octets)
    assert bridge.expect(Connack).reason_code == 0
    bridge.publish(state, b"1", 1, retain=True)
    watching.expect_message(state, b"1", retain=True)
    # It gets nothing back, and what is retained says so.
    bridge.subscribe("both/#", qos=1)
    bridge.publish("both/a", b"own", 1)
    other.publish("both/b", b"kept", 1, retain=True)
    bridge.ack(PUBACK, bridge.expect_message("both/b", b"kept", qos=1, retain=True))
    bridge.expect_nothing()
    bridge.close()
    watching.expect_message(state, b"will", retain=True)


def test_a_retained_will_is_refused_where_nothing_is_retained(still: Still) -> None:
    """[MQTT-3.2.2-13]."""
    client = still({"retain": False}).client(5)
    assert client.connect(will=will("w", retain=True)).reason_code == ReasonCode.RETAIN_NOT_SUPPORTED
    client.expect_close()


# Logging in


@pytest.fixture
def guarded(still: Still) -> StillServer:
    users = {
        "guest": {"password": "guest", "from_anywhere": False},
        "u": {"password": "secret", "vhosts": ["/", "other"]},
        "device-7": {"vhosts": ["/"]},
        "one": {"password": "p", "max_connections": 1},
        "a:b": {"password": "p"},
    }
    return still(users=users, vhosts=["/", "other", "third"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"user_name": "u", "password": b"wrong"},
        {"user_name": "u", "password": b""},
        {"user_name": "u", "password": None},
        {"user_name": "u", "password": b"\xff"},
        {"user_name": "nobody", "password": b"secret"},
        {"user_name": "device-7", "password": b""},
        {"user_name": "", "password": b""},
        {"user_name": None, "password": None},
    ],
)
def test_a_login_that_fails_is_answered_after_a_while(
    guarded: StillServer, version: int, wrong: dict[str, Any]
) -> None:
    """[MQTT-3.1.4-2]."""
    client = guarded.client(version)
    client.send(connect_packet(version, **wrong))
    guarded.pass_time(0.9)
    client.send(Pingreq())  # it is not read
    guarded.pass_time(0.2)
    assert client.expect(Connack).reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    client.expect_close()
    assert guarded.engine.statistics()["logins_refused"] == 1


def test_a_password_without_a_name_is_refused(guarded: StillServer) -> None:
    client = guarded.client(5)
    client.send(connect_packet(5, user_name=None, password=b"secret"))
    guarded.pass_time(2)
    assert client.expect(Connack).reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


@pytest.mark.parametrize("empty", [None, ""])
def test_anonymous_clients_are_let_in_if_the_listener_says_so(
    still: Still, version: int, empty: str | None
) -> None:
    server = still({"anonymous": "guest"})
    client = server.connect(version, user_name=empty, password=None if empty is None else b"")
    client.expect_nothing()
    (row,) = server.engine.inspect("connections")
    assert row["user"] == "guest"


def test_a_certificate_logs_in(guarded: StillServer, version: int) -> None:
    client = guarded.client(version, certified="device-7")
    assert client.connect(user_name=None, password=None).reason_code == 0
    (row,) = guarded.engine.inspect("connections")
    assert (row["user"], row["certificate"]) == ("device-7", "device-7")
    client = guarded.client(version, certified="stranger")
    client.send(connect_packet(version, user_name=None, password=None))
    guarded.pass_time(2)
    assert client.expect(Connack).reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_guest_is_for_this_machine_only(guarded: StillServer, version: int) -> None:
    client = guarded.client(version, loopback=False)
    client.send(connect_packet(version))
    guarded.pass_time(2)
    assert client.expect(Connack).reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_user_name_can_have_the_virtual_host(guarded: StillServer, version: int) -> None:
    client = guarded.connect(version, client_id="c", user_name="other:u", password=b"secret")
    elsewhere = guarded.connect(version, client_id="c", user_name="u", password=b"secret")
    for each in (client, elsewhere):
        each.subscribe("t")
    client.send(publish("t"))
    client.expect_message("t")
    elsewhere.expect_nothing()
    # A colon behind what is no virtual host is part of the name.
    guarded.connect(version, user_name="a:b", password=b"p")


def test_a_virtual_host_can_be_closed_to_a_user(guarded: StillServer, version: int) -> None:
    client = guarded.client(version)
    answer = client.connect(user_name="third:u", password=b"secret")
    assert answer.reason_code == ReasonCode.NOT_AUTHORIZED
    client.expect_close()


def test_a_session_is_only_for_those_who_may_read(still: Still, version: int) -> None:
    """Its subscriptions were granted to another user, or before permissions were changed."""
    server = still(users={"u": {"password": "p"}, "v": {"password": "p", "read": "nothing"}})
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False, "password": b"p"}
    if version == 5:
        kept["session_expiry_interval"] = 60
    client = server.connect(version, **kept, user_name="u")
    client.subscribe("t", qos=1)
    stranger = server.client(version)
    assert stranger.connect(**kept, user_name="v").reason_code == ReasonCode.NOT_AUTHORIZED
    stranger.expect_close()
    client.publish("t", qos=1)
    client.expect_message("t", qos=1)
    client.close()
    assert server.client(version).connect(**kept, user_name="v").reason_code == ReasonCode.NOT_AUTHORIZED
    assert server.connect(version, **kept, user_name="u").connack.session_present
    server.connect(version, **{**kept, "clean_start": True}, user_name="v").expect_nothing()


@pytest.mark.parametrize("read", ["^amq.topic$", "^mqtt.share.g.a$"])
def test_a_session_with_a_shared_subscription_is_for_those_who_may_read_its_queue(
    still: Still, version: int, read: str
) -> None:
    """To continue a session takes the rights that its subscriptions have taken."""
    server = still(users={"u": {"password": "p"}, "v": {"password": "p", "read": read}})
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False, "password": b"p"}
    if version == 5:
        kept["session_expiry_interval"] = 60
    server.connect(version, **kept, user_name="u").subscribe("$share/g/a", qos=1)
    assert server.client(version).connect(**kept, user_name="v").reason_code == ReasonCode.NOT_AUTHORIZED
    assert server.connect(version, **kept, user_name="u").connack.session_present


def test_a_session_whose_queue_has_messages_is_only_for_those_who_may_read(
    still: Still, version: int
) -> None:
    """Also if it is not subscribed any more."""
    server = still(users={"u": {"password": "p"}, "v": {"password": "p", "read": "nothing"}})
    kept: dict[str, Any] = {"client_id": "c", "clean_start": False, "password": b"p"}
    if version == 5:
        kept["session_expiry_interval"] = 60
    client = server.connect(version, **kept, user_name="u")
    client.subscribe("t", qos=1)
    client.publish("t", b"secret", 1)
    client.expect_message("t", b"secret", 1)
    client.unsubscribe("t")
    client.close()
    assert server.client(version).connect(**kept, user_name="v").reason_code == ReasonCode.NOT_AUTHORIZED


TOPICS = {"amq.topic": {"write": "^of[.]{username}[.]{client_id}$", "read": "^(of[.]{username}[.]|open$)"}}


def test_topics_may_be_for_single_users_and_clients(still: Still, version: int) -> None:
    users = {"u": {"password": "p", "topics": TOPICS}, "guest": {"password": "guest"}}
    server = still(users=users)
    login: dict[str, Any] = {"user_name": "u", "password": b"p"}
    client = server.connect(version, client_id="c1", **login)
    refused = 0x80 if version == 4 else ReasonCode.NOT_AUTHORIZED
    names = "of/u/#", "open", "of/v/#", "#", "$share/g/of/u/+", "$share/g/of/v/+"
    codes = client.subscribe(*names)
    assert codes == (0, 0, refused, refused, 0, refused)
    server.connect(version, client_id="other").publish("open")
    client.expect_message("open")
    client.send(publish("of/u/c2", qos=1))
    if version == 5:
        client.expect_acks(PUBACK, 1, code=ReasonCode.NOT_AUTHORIZED)
    else:
        client.expect_close()
    wills: dict[str, Any] = {"will": will("of/u/c2")}
    # A client chooses its identifier: it is a text, and no pattern.
    for client_id in ("c1", ".*"):
        answer = server.client(version).connect(client_id=client_id, **login, **wills)
        assert answer.reason_code in (5, ReasonCode.NOT_AUTHORIZED)
    server.connect(version, client_id="c2", **login, **wills).publish("of/u/c2")


def test_a_user_can_have_too_many_connections(guarded: StillServer, version: int) -> None:
    login = {"user_name": "one", "password": b"p"}
    first = guarded.connect(version, **login)
    client = guarded.client(version)
    assert client.connect(**login).reason_code == ReasonCode.NOT_AUTHORIZED
    first.disconnect()
    guarded.connect(version, **login).close()
    guarded.connect(version, **login)


# Enhanced authentication


def plain(name: str, password: str) -> bytes:
    return b"\0%s\0%s" % (name.encode(), password.encode())


PLAIN: dict[str, Any] = {"user_name": None, "password": None, "authentication_method": "PLAIN"}


def test_plain_logs_in(guarded: StillServer) -> None:
    """[MQTT-4.12.0-1], [MQTT-4.12.0-5]."""
    client = guarded.connect(5, **PLAIN, authentication_data=plain("u", "secret"))
    assert client.connack.properties.authentication_method == "PLAIN"
    client.expect_nothing()


@pytest.mark.parametrize("data", [plain("u", "wrong"), b"", b"u\0secret", b"\0\0", None])
def test_plain_that_is_wrong_is_refused(guarded: StillServer, data: bytes | None) -> None:
    client = guarded.client(5)
    client.send(connect_packet(5, **PLAIN, authentication_data=data))
    guarded.pass_time(2)
    assert client.expect(Connack).reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    client.expect_close()


def test_another_method_is_refused(guarded: StillServer) -> None:
    """[MQTT-4.12.0-1]."""
    client = guarded.client(5)
    answer = client.connect(authentication_method="SCRAM-SHA-1")
    assert answer.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD
    client.expect_close()


def again(method: str, data: bytes | None, code: int = ReasonCode.RE_AUTHENTICATE) -> Auth:
    return Auth(code, Properties(authentication_method=method, authentication_data=data))


def test_a_client_authenticates_again(guarded: StillServer) -> None:
    """[MQTT-4.12.1-1], [MQTT-4.12.1-2]."""
    client = guarded.connect(5, **PLAIN, authentication_data=plain("u", "secret"))
    client.send(again("PLAIN", plain("u", "secret")))
    assert client.expect(Auth) == Auth(0, Properties(authentication_method="PLAIN"))
    client.send(again("PLAIN", plain("guest", "guest")))  # it is somebody else
    client.expect_end(ReasonCode.NOT_AUTHORIZED)


@pytest.mark.parametrize(
    "packet, code",
    [
        (again("PLAIN", plain("u", "wrong")), ReasonCode.NOT_AUTHORIZED),
        (again("OTHER", plain("u", "secret")), ReasonCode.PROTOCOL_ERROR),
        (again("PLAIN", b"", ReasonCode.CONTINUE_AUTHENTICATION), ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_a_client_that_cannot_authenticate_again_is_sent_away(
    guarded: StillServer, packet: Auth, code: int
) -> None:
    client = guarded.connect(5, **PLAIN, authentication_data=plain("u", "secret"))
    client.send(packet)
    client.expect_end(code)


def test_a_client_without_method_must_not_send_auth(quiet: StillServer) -> None:
    """[MQTT-4.12.0-6], [MQTT-4.12.0-7]."""
    client = quiet.connect(5)
    client.send(again("PLAIN", plain("guest", "guest")))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


# SCRAM-SHA-256

SCRAM: dict[str, Any] = {**PLAIN, "authentication_method": "SCRAM-SHA-256"}


def step(data: bytes | None, code: int = ReasonCode.CONTINUE_AUTHENTICATION) -> Auth:
    return again("SCRAM-SHA-256", data, code)


def begin(client: RawClient, scram: ScramClient, **connect: Any) -> bytes:
    """Send CONNECT; return the server's first message."""
    client.send(connect_packet(5, **SCRAM, **connect, authentication_data=scram.first()))
    answer = client.expect(Auth)
    assert answer == step(answer.properties.authentication_data)
    return bytes(answer.properties.authentication_data)


def scrammed(server: StillServer, name: str = "u", password: str = "secret", **connect: Any) -> RawClient:
    """Return a client that has logged in, and whom the server has convinced."""
    client, scram = server.client(5), ScramClient(name, password)
    client.send(step(scram.final(begin(client, scram, **connect))))
    client.connack = client.expect(Connack)
    assert client.connack.reason_code == 0
    assert client.connack.properties.authentication_method == "SCRAM-SHA-256"
    scram.verify(client.connack.properties.authentication_data)
    return client


def test_scram_logs_in(guarded: StillServer) -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3], [MQTT-4.12.0-5]."""
    client = scrammed(guarded, client_id="c")
    client.expect_nothing()
    (row,) = guarded.engine.inspect("connections")
    assert (row["user"], row["vhost"]) == ("u", "/")


def test_scram_can_choose_a_virtual_host(guarded: StillServer) -> None:
    scrammed(guarded, "other:u")
    (row,) = guarded.engine.inspect("connections")
    assert (row["user"], row["vhost"]) == ("u", "other")


def refused(server: StillServer, client: RawClient) -> None:
    """The login has failed, and the client is not told why."""
    server.pass_time(0.9)
    client.send(Pingreq())  # it is not read
    server.pass_time(0.2)
    answer = client.expect(Connack)
    assert answer.reason_code == ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert answer.properties == Properties(reason_string="login refused")
    client.expect_close()


HASHED = Password.from_plain("secret", b"salt").as_hash()


@pytest.mark.parametrize(
    "name, password",
    [("u", "wrong"), ("nobody", "secret"), ("device-7", ""), ("hashed", "secret"), ("nowhere:u", "secret")],
)
def test_scram_tells_nobody_which_names_there_are(still: Still, name: str, password: str) -> None:
    """The course is the same for a wrong password, a name that is unknown, and one without a plain password."""
    server = still(users={"u": {"password": "secret"}, "device-7": {}, "hashed": {"password_hash": HASHED}})
    salts, lengths = set(), set()
    for _ in range(2):
        client, scram = server.client(5), ScramClient(name, password)
        first = begin(client, scram)
        client.send(step(scram.final(first)))
        refused(server, client)
        salts.add(scram.salt)
        lengths.add(len(scram.salt))
    assert len(salts) == 1, "a name has one salt"
    assert lengths == {16}
    right = ScramClient("u", "secret")
    right.final(begin(server.client(5), right))
    assert (right.salt in salts) == (name == "u")


def test_an_operator_is_told_that_a_hash_does_not_do(still: Still) -> None:
    server = still(users={"hashed": {"password_hash": HASHED}})
    client, scram = server.client(5), ScramClient("hashed", "secret")
    client.send(step(scram.final(begin(client, scram))))
    refused(server, client)
    assert any("'password' in the topology file" in event.detail for event in server.host.events)


def test_scram_is_for_this_machine_only_if_the_user_is(guarded: StillServer) -> None:
    client, scram = guarded.client(5, loopback=False), ScramClient("guest", "guest")
    client.send(step(scram.final(begin(client, scram))))
    refused(guarded, client)


@pytest.mark.parametrize("data", [None, b"", b"n,,n=u", b"p=tls-unique,,n=u,r=abc"])
def test_a_first_message_that_is_none_is_refused(guarded: StillServer, data: bytes | None) -> None:
    client = guarded.client(5)
    client.send(connect_packet(5, **SCRAM, authentication_data=data))
    refused(guarded, client)


@pytest.mark.parametrize("data", [None, b"", b"c=biws,r=other,p=AAAA"])
def test_a_final_message_that_is_none_is_refused(guarded: StillServer, data: bytes | None) -> None:
    client, scram = guarded.client(5), ScramClient("u", "secret")
    begin(client, scram)
    client.send(step(data))
    refused(guarded, client)


@pytest.mark.parametrize(
    "packet",
    [
        publish("a"),
        Pingreq(),
        again("PLAIN", plain("u", "secret")),
        again("PLAIN", b"", ReasonCode.CONTINUE_AUTHENTICATION),
        step(b"", ReasonCode.RE_AUTHENTICATE),
    ],
)
def test_before_connack_a_client_may_go_on_or_leave_only(guarded: StillServer, packet: Packet) -> None:
    """[MQTT-3.1.2-30], [MQTT-4.12.0-5]."""
    client, scram = guarded.client(5), ScramClient("u", "secret")
    begin(client, scram)
    client.send(packet)
    assert client.expect(Connack).reason_code == ReasonCode.PROTOCOL_ERROR
    client.expect_close()


def test_a_client_may_leave_in_the_middle(guarded: StillServer) -> None:
    client, scram = guarded.client(5), ScramClient("u", "secret")
    begin(client, scram)
    client.send(Disconnect())
    client.expect_close()


def test_a_client_that_stops_in_the_middle_is_given_up(guarded: StillServer) -> None:
    client, scram = guarded.client(5), ScramClient("u", "secret")
    begin(client, scram)
    guarded.pass_time(11)
    client.expect_close()


def test_a_final_message_is_not_taken_twice(guarded: StillServer) -> None:
    """Who has listened cannot use it again."""
    client, scram = guarded.client(5), ScramClient("u", "secret")
    final = scram.final(begin(client, scram))
    client.send(step(final))
    client.expect(Connack)
    other = guarded.client(5)
    begin(other, ScramClient("u", "unknown"))
    other.send(step(final))
    refused(guarded, other)


def test_a_client_authenticates_again_with_scram(guarded: StillServer) -> None:
    """[MQTT-4.12.1-1]: the connection goes on meanwhile."""
    client = scrammed(guarded, client_id="c")
    client.subscribe("t")
    for _ in range(2):
        scram = ScramClient("u", "secret")
        client.send(step(scram.first(), ReasonCode.RE_AUTHENTICATE))
        challenge = client.expect(Auth).properties.authentication_data
        client.send(publish("t"))
        client.expect_message("t")
        client.send(step(scram.final(challenge)))
        answer = client.expect(Auth)
        assert answer == step(answer.properties.authentication_data, ReasonCode.SUCCESS)
        scram.verify(answer.properties.authentication_data)


@pytest.mark.parametrize("name, password", [("u", "wrong"), ("guest", "guest"), ("nobody", "x")])
def test_a_client_that_fails_to_authenticate_again_is_sent_away(
    guarded: StillServer, name: str, password: str
) -> None:
    """[MQTT-4.12.1-2]."""
    client, scram = scrammed(guarded), ScramClient(name, password)
    client.send(step(scram.first(), ReasonCode.RE_AUTHENTICATE))
    client.send(step(scram.final(client.expect(Auth).properties.authentication_data)))
    client.expect_end(ReasonCode.NOT_AUTHORIZED)


def test_a_second_exchange_does_not_begin_in_the_middle_of_one(guarded: StillServer) -> None:
    client = scrammed(guarded)
    client.send(step(ScramClient("u", "secret").first(), ReasonCode.RE_AUTHENTICATE))
    client.expect(Auth)
    client.send(step(ScramClient("u", "secret").first(), ReasonCode.RE_AUTHENTICATE))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


# Malformed packets, and the end


@pytest.mark.parametrize(
    "octets, code",
    [
        (b"\xf5\x00", ReasonCode.MALFORMED_PACKET),
        (b"\x00\x00", ReasonCode.MALFORMED_PACKET),
        (b"\x36\x05\x00\x01a\x00\x01", ReasonCode.MALFORMED_PACKET),
        (b"\x80\x02\x00\x01", ReasonCode.MALFORMED_PACKET),
        (b"\x20\x02\x00\x00", ReasonCode.PROTOCOL_ERROR),
        (b"\xd0\x00", ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_a_packet_that_is_wrong_ends_the_connection(
    quiet: StillServer, version: int, octets: bytes, code: int
) -> None:
    """[MQTT-4.13.1-1]."""
    client = quiet.connect(version)
    client.send_bytes(octets)
    client.expect_end(code)


def test_what_came_before_a_fault_is_done(quiet: StillServer, version: int) -> None:
    watching = quiet.connect(version)
    watching.subscribe("t")
    client = quiet.connect(version)
    client.send_bytes(encode(publish("t"), version) + b"\x00\x00")
    watching.expect_message("t")


def test_reasons_are_kept_from_clients_that_do_not_want_them(quiet: StillServer) -> None:
    """[MQTT-3.1.2-29]."""
    client = quiet.connect(5, request_problem_information=0)
    client.send_bytes(b"\x00\x00")
    said = client.expect_end(ReasonCode.MALFORMED_PACKET)
    assert said is not None
    assert said.properties == Properties()


def test_reasons_are_kept_from_clients_that_take_no_packets_of_that_size(quiet: StillServer) -> None:
    """[MQTT-3.14.2-3], [MQTT-3.2.2-19]."""
    client = quiet.connect(5, client_id="c", maximum_packet_size=30)
    client.send_bytes(b"\x00\x00")
    said = client.expect_end(ReasonCode.MALFORMED_PACKET)
    assert said is not None
    assert said.properties == Properties()


def test_a_refusal_is_no_larger_than_the_client_takes(still: Still) -> None:
    """[MQTT-3.2.2-19]."""
    client = still({"redirect": "elsewhere:1883"}).client(5)
    answer = client.connect(maximum_packet_size=30)
    assert answer.properties == Properties(server_reference="elsewhere:1883")
    client = still({"redirect": "elsewhere:1883"}).client(5)
    assert client.connect(maximum_packet_size=20) == Connack(reason_code=ReasonCode.USE_ANOTHER_SERVER)


LIMITED: dict[str, Any] = {"max_keep_alive_seconds": 30, "max_session_seconds": 60}
ASKED: dict[str, Any] = {"client_id": "c", "keep_alive": 31, "session_expiry_interval": 61}


def test_a_connack_has_no_more_than_the_client_takes(still: Still) -> None:
    """[MQTT-3.1.2-24]: a client that is told of no topic aliases uses none."""
    server = still(LIMITED)
    whole = server.connect(5, **ASKED).connack
    size = len(encode(whole, 5))
    assert server.connect(5, **ASKED, maximum_packet_size=size).connack.properties == whole.properties
    less = server.connect(5, **ASKED, maximum_packet_size=size - 1).connack
    assert less.properties == msgspec.structs.replace(whole.properties, topic_alias_maximum=None)


def test_a_client_that_takes_no_connack_is_refused_and_changes_nothing(still: Still) -> None:
    """[MQTT-3.1.2-24]: without its limits it would break them."""
    server = still(LIMITED)
    first = server.connect(5, **ASKED)
    most = len(encode(first.connack, 5)) - 4
    client = server.client(5)
    assert client.connect(**ASKED, maximum_packet_size=most) == Connack(
        reason_code=ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    )
    client.expect_close()
    first.expect_nothing()  # its session was not taken over
    client = server.client(5)
    client.send(connect_packet(5, **ASKED, maximum_packet_size=4))
    client.expect_close()


def test_a_client_whose_packets_are_too_small_for_scram_is_refused(guarded: StillServer) -> None:
    client = guarded.client(5)
    data = ScramClient("u", "secret").first()
    client.send(connect_packet(5, **SCRAM, authentication_data=data, maximum_packet_size=50))
    assert client.expect(Connack) == Connack(reason_code=ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    client.expect_close()


def test_a_packet_that_is_too_large_ends_the_connection(still: Still, version: int) -> None:
    """[MQTT-3.2.2-15]; what the client is told is the size of the whole packet."""
    server = still({"max_packet_bytes": 1024})
    client = server.connect(version)
    head = len(encode(publish("t", b"x" * 500), version)) - 500
    whole = publish("t", b"x" * (1024 - head), 1)
    client.send(publish("t", b"x" * (1024 - head)))
    client.expect_nothing()
    client.send(whole)  # its identifier has two bytes
    client.expect_end(ReasonCode.PACKET_TOO_LARGE)


def test_clients_are_told_that_the_broker_ends(still: Still, version: int) -> None:
    server = still()
    watching = server.connect(version)
    watching.subscribe("w")
    client = server.connect(version, client_id="c", will=will("w"))
    server.engine.stop()
    client.expect_end(ReasonCode.SERVER_SHUTTING_DOWN)
    # No will (decision 31): its readers are gone, too.
    watching.expect_end(ReasonCode.SERVER_SHUTTING_DOWN)


def test_an_operator_closes_a_connection(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version)
    quiet.engine.operate("close-connection", {"name": "client 0", "reason": "maintenance"})
    said = client.expect_end(ReasonCode.ADMINISTRATIVE_ACTION)
    assert said is None or said.properties.reason_string == "maintenance"


def test_nothing_is_done_after_disconnect(quiet: StillServer, version: int) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]: what follows in the same bytes is not read."""
    watching = quiet.connect(version)
    watching.subscribe("t")
    client = quiet.connect(version)
    client.send(publish("t", qos=1), Disconnect(), publish("t", b"late"))
    client.expect_acks(PacketType.PUBACK, 1)
    client.expect_close()
    watching.expect_message("t")
    watching.expect_nothing()


def test_connack_is_the_first_packet(quiet: StillServer) -> None:
    """[MQTT-3.2.0-1]: what waits in the session comes behind it."""
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 60}
    client = quiet.connect(5, **kept)
    client.subscribe("t", qos=1)
    client.publish("t", qos=1)
    client.expect_message("t", qos=1)
    client.close()
    quiet.connect(5, **kept).expect_message("t", qos=1, dup=True)


def test_a_client_that_has_gone_is_freed_without_a_collection_of_garbage(
    quiet: StillServer, version: int
) -> None:
    """A collection costs more than all else that a short connection needs."""
    gc.disable()
    try:
        client = quiet.connect(version, client_id="c")
        client.subscribe("t")
        client.publish("other")
        (theirs,) = quiet.engine.clients
        gone = weakref.ref(theirs), weakref.ref(quiet.session("c"))
        del theirs
        client.close()
        assert not quiet.engine.clients
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_a_session_is_ready_for_messages_from_queues_when_it_has_a_queue(
    quiet: StillServer, version: int
) -> None:
    """Most clients only publish, or come and go; there may be very many of them."""
    client = quiet.connect(version, client_id="c")
    client.subscribe("live")
    session = quiet.session("c")
    assert session is not None
    assert session.outgoing is None
    client.subscribe("queued", qos=1)
    quiet.publish("queued", persistent=True)
    client.ack(PUBACK, client.expect_message("queued", qos=1))
    assert quiet.row("mqtt.session.c")["messages"] == 0


def test_a_connection_takes_few_calls(quiet: StillServer, version: int) -> None:
    """From its CONNECT to its end: nothing is made for a client that it does not use."""
    quiet.connect(version).disconnect()
    client = quiet.client(version)
    before_and_after = encode(connect_packet(version), version) + encode(Disconnect(), version)
    client.wire.sendall(before_and_after)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    quiet.process()
    sys.setprofile(None)
    client.expect(Connack)
    client.expect_close()
    assert calls < {4: 270, 5: 340}[version]
