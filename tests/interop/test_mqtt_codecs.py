"""Codecs of others read what MQTT's encoder writes, and the parser reads what they write."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.fields import Fields, encode_properties
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.properties import TABLE, WILL, Properties
from tests.plugins.protocols.mqtt.conversation import fresh, opened, plain
from tests.plugins.protocols.mqtt.golden import EXAMPLES, LONGER

PROGRAM = Path(__file__).parent / "node" / "mqtt_packet.js"

# mqtt-packet 9.0: these it refuses, or writes in another order.
REFUSED = {
    "connect with a password alone": "Username is required",  # as in MQTT 3.1.1
    "auth": "Invalid auth reason code",  # a packet of two bytes is allowed (3.15.2.1)
}
REORDERED = {"publish of a client with all properties"}
"""It reads User Properties into an object by name, which loses their order."""


@pytest.mark.slow
@pytest.mark.peer("node-mqtt")
def test_mqtt_packet_writes_again_what_it_has_read() -> None:
    """Each packet comes back with the same bytes, or in a longer form that means the same."""
    examples = EXAMPLES + LONGER
    asked = json.dumps([[example.version, example.data.hex()] for example in examples])
    done = subprocess.run(
        ["node", str(PROGRAM)], input=asked, capture_output=True, text=True, timeout=120, check=True
    )
    for example, result in zip(examples, json.loads(done.stdout), strict=True):
        if example.name in REFUSED:
            assert REFUSED[example.name] in result[0]
            continue
        read, written = result
        assert read["cmd"] == example.packet.kind.name.lower(), example.name
        octets = bytes.fromhex(written)
        if example.name in REORDERED:
            assert sorted(octets) == sorted(example.data)
        elif octets != example.data:
            make = fresh if isinstance(example.packet, (Connect, Connack)) else opened
            parser = make(example.sides[0], example.version, topic_alias_maximum=10)
            assert plain(parser.receive_data(octets)) == plain([example.packet]), example.name


VALUES: dict[str, Any] = {
    "byte": 1,
    "two bytes": 258,
    "four bytes": 0x01020304,
    "variable": 300,
    "text": "é/x",
    "binary": b"\0\xff",
    "pair": ("name", "wert"),
}


@pytest.mark.peer("paho-mqtt")
@pytest.mark.parametrize("kind", [WILL, *PacketType], ids=lambda kind: getattr(kind, "name", "WILL"))
def test_properties_of_paho(kind: int) -> None:
    """All properties of each packet type, both ways."""
    from paho.mqtt import properties as paho
    from paho.mqtt.packettypes import PacketTypes

    rows = [row for row in TABLE if kind in row.packets]
    theirs = paho.Properties(kind or PacketTypes.WILLMESSAGE)
    values: dict[str, Any] = {}
    for row in rows:
        value = VALUES[row.type]
        setattr(theirs, row.name.replace(" ", ""), value)
        values[row.field] = (
            (value,) if row.field in ("user_properties", "subscription_identifiers") else value
        )
    ours = Properties(**values)
    octets = theirs.pack()
    assert Fields(octets, 0, len(octets), "a packet").properties(kind) == ours
    read = paho.Properties(kind or PacketTypes.WILLMESSAGE)
    read.unpack(encode_properties(ours, kind))
    assert read.json() == theirs.json()


def _gmqtt(version: int) -> Any:
    """What gmqtt's packet builders want to know of a connection."""
    numbers = iter(range(1, 1000))
    return SimpleNamespace(
        proto_ver=version, proto_name=b"MQTT", id_generator=SimpleNamespace(next_id=lambda: next(numbers))
    )


@pytest.mark.peer("gmqtt")
@pytest.mark.parametrize("version", [4, 5])
def test_packets_of_gmqtt(version: int) -> None:
    import gmqtt
    from gmqtt.mqtt import package

    protocol = _gmqtt(version)
    five = version == 5
    will = (
        gmqtt.Message("w", b"bye", qos=1, will_delay_interval=5)
        if five
        else gmqtt.Message("w", b"bye", qos=1)
    )
    wanted = {"receive_maximum": 10, "user_property": [("a", "1"), ("b", "2")]} if five else {}
    octets = package.LoginPackageFactor.build_package(
        "client", "user", b"secret", False, 60, protocol, will_message=will, **wanted
    )
    parser = fresh("server", version)
    assert parser.receive_data(bytes(octets)) == [
        Connect(
            level=version,
            client_id="client",
            clean_start=False,
            keep_alive=60,
            will=Will("w", b"bye", 1, False, Properties(will_delay_interval=5) if five else Properties()),
            user_name="user",
            password=b"secret",
            properties=Properties(receive_maximum=10, user_properties=(("a", "1"), ("b", "2")))
            if five
            else Properties(),
        )
    ]
    more = {"content_type": "text/plain", "response_topic": "r"} if five else {}
    run = b"".join(
        [
            bytes(
                package.PublishPacket.build_package(
                    gmqtt.Message("a/b", f"{at:03}", qos=1, **more), protocol
                )[1]
            )
            for at in range(200)
        ]
    )
    (packet,) = parser.receive_data(run)
    assert isinstance(packet, Publish)
    assert (packet.topic, list(packet.ids)) == ("a/b", list(range(1, 201)))
    assert packet.payloads == [b"%03d" % at for at in range(200)]
    assert packet.properties == (
        Properties(content_type="text/plain", response_topic="r") if five else Properties()
    )
    assert encode(packet, version) == run
    subscribe = package.SubscribePacket.build_package([gmqtt.Subscription("a/#", qos=2)], protocol)[1]
    unsubscribe = package.UnsubscribePacket.build_package(["a/#", "b"], protocol)[1]
    ack = package.CommandWithMidPacket.build_package(0x40, 7, False, proto_ver=version)
    end = package.DisconnectPacket.build_package(protocol)
    found = parser.receive_data(bytes(subscribe) + bytes(unsubscribe) + ack * 50 + end)
    assert found == [
        Subscribe(201, (Subscription("a/#", 2),)),
        Unsubscribe(202, ("a/#", "b")),
        Acknowledgement(PacketType.PUBACK, [7] * 50),
        Disconnect(),
    ]
