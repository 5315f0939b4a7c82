"""Packets and their bytes, written by hand from the figures and tables of the specifications."""

from __future__ import annotations

from typing import NamedTuple

from kernel.contracts.protocol import Side
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.properties import Properties
from tests.plugins.protocols.mqtt.conversation import publish


class Example(NamedTuple):
    """One packet."""

    name: str
    version: int
    sides: tuple[Side, ...]
    """Who receives it."""
    packet: Packet
    data: bytes


def _example(name: str, version: int, sides: str, packet: Packet, octets: str) -> Example:
    """Return an example.  ``octets``: hexadecimal; what is between apostrophes is text."""
    data = b""
    for number, piece in enumerate(octets.split("'")):
        data += piece.encode() if number % 2 else bytes.fromhex(piece)
    receivers: tuple[Side, ...] = ("server", "client") if sides == "both" else (sides,)  # type: ignore[assignment]
    return Example(name, version, receivers, packet, data)


PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)

EXAMPLES = [
    # CONNECT: the variable headers of figure 3.6 (MQTT 3.1.1) and figure 3-6 (MQTT 5.0).
    _example(
        "connect figure 3.6",
        4,
        "server",
        Connect(
            level=4,
            client_id="c",
            keep_alive=10,
            will=Will("w", b"bye", 1),
            user_name="u",
            password=b"p",
        ),
        "10 1b  0004 'MQTT' 04 ce 000a  0001 'c'  0001 'w'  0003 'bye'  0001 'u'  0001 'p'",
    ),
    _example(
        "connect figure 3-6",
        5,
        "server",
        Connect(
            client_id="c",
            keep_alive=10,
            will=Will("w", b"bye", 1),
            user_name="u",
            password=b"p",
            properties=Properties(session_expiry_interval=10),
        ),
        "10 22  0004 'MQTT' 05 ce 000a  05 11 0000000a  0001 'c'  00 0001 'w'  0003 'bye'  0001 'u'  0001 'p'",
    ),
    # As mosquitto 2.0.11 writes it.
    _example(
        "connect of a bridge",
        4,
        "server",
        Connect(level=4, is_bridge=True, client_id="c", clean_start=False),
        "10 0d  0004 'MQTT' 84 00 0000  0001 'c'",
    ),
    _example(
        "connect of MQTT 3.1",
        4,
        "server",
        Connect(level=3, client_id="c", clean_start=False),
        "10 0f  0006 'MQIsdp' 03 00 0000  0001 'c'",
    ),
    _example(
        "connect with the least",
        4,
        "server",
        Connect(level=4),
        "10 0c  0004 'MQTT' 04 02 0000  0000",
    ),
    _example(
        "connect with a retained will of QoS 2",
        4,
        "server",
        Connect(level=4, client_id="c", clean_start=False, will=Will("w", b"", 2, True)),
        "10 12  0004 'MQTT' 04 34 0000  0001 'c'  0001 'w'  0000",
    ),
    _example(
        "connect with a password alone",
        5,
        "server",
        Connect(client_id="", password=b"\0\xff"),
        "10 11  0004 'MQTT' 05 42 0000  00  0000  0002 00ff",
    ),
    _example(
        "connect with all properties",
        5,
        "server",
        Connect(
            client_id="c",
            properties=Properties(
                session_expiry_interval=0xFFFFFFFF,
                authentication_method="m",
                authentication_data=b"\1",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=5,
                user_properties=(("a", "b"), ("a", "")),
                maximum_packet_size=0x100000,
            ),
            will=Will(
                "w",
                b"!",
                properties=Properties(
                    payload_format_indicator=1,
                    message_expiry_interval=60,
                    content_type="t",
                    response_topic="r",
                    correlation_data=b"\0",
                    will_delay_interval=30,
                    user_properties=(("k", "v"),),
                ),
            ),
        ),
        "10 5d  0004 'MQTT' 05 06 0000"
        "  29 11 ffffffff  15 0001 'm'  16 0001 01  17 00  19 01  21 0014  22 0005"
        "     26 0001 'a' 0001 'b'  26 0001 'a' 0000  27 00100000"
        "  0001 'c'"
        "  1f 01 01  02 0000003c  03 0001 't'  08 0001 'r'  09 0001 00  18 0000001e  26 0001 'k' 0001 'v'"
        "  0001 'w'  0001 '!'",
    ),
    # CONNACK: figures 3.8 and 3.9 (MQTT 3.1.1), 3-7 and 3-8 (MQTT 5.0).
    _example("connack", 4, "client", Connack(), "20 02 00 00"),
    _example("connack with a session", 4, "client", Connack(session_present=True), "20 02 01 00"),
    _example("connack that refuses a version", 4, "client", Connack(reason_code=0x84), "20 02 00 01"),
    _example("connack that refuses an identifier", 4, "client", Connack(reason_code=0x85), "20 02 00 02"),
    _example("connack: unavailable", 4, "client", Connack(reason_code=0x88), "20 02 00 03"),
    _example("connack: bad password", 4, "client", Connack(reason_code=0x86), "20 02 00 04"),
    _example("connack: not authorized", 4, "client", Connack(reason_code=0x87), "20 02 00 05"),
    _example("connack of 5", 5, "client", Connack(session_present=True), "20 03 01 00 00"),
    _example("connack of 5 that refuses", 5, "client", Connack(reason_code=0x8A), "20 03 00 8a 00"),
    _example(
        "connack with all properties",
        5,
        "client",
        Connack(
            properties=Properties(
                session_expiry_interval=1,
                assigned_client_identifier="id",
                server_keep_alive=60,
                authentication_method="m",
                authentication_data=b"",
                response_information="r",
                server_reference="s",
                reason_string="why",
                receive_maximum=65535,
                topic_alias_maximum=0,
                maximum_qos=1,
                retain_available=0,
                user_properties=(("", ""),),
                maximum_packet_size=1,
                wildcard_subscription_available=1,
                subscription_identifier_available=0,
                shared_subscription_available=1,
            )
        ),
        "20 3f 00 00"
        "  3c 11 00000001  12 0002 'id'  13 003c  15 0001 'm'  16 0000  1a 0001 'r'  1c 0001 's'"
        "     1f 0003 'why'  21 ffff  22 0000  24 01  25 00  26 0000 0000  27 00000001  28 01  29 00  2a 01",
    ),
    # PUBLISH: figure 3.11 (MQTT 3.1.1), figure 3-9 (MQTT 5.0): topic a/b, packet identifier 10.
    _example(
        "publish figure 3.11",
        4,
        "both",
        publish("a/b", b"hello", qos=1, id=10),
        "32 0c  0003 'a/b'  000a  'hello'",
    ),
    _example(
        "publish figure 3-9",
        5,
        "both",
        publish("a/b", b"hello", qos=1, id=10),
        "32 0d  0003 'a/b'  000a  00  'hello'",
    ),
    _example("publish with QoS 0", 4, "both", publish("a/b", b"hello"), "30 0a  0003 'a/b'  'hello'"),
    _example("publish with QoS 0 in 5", 5, "both", publish("a/b", b""), "30 06  0003 'a/b'  00"),
    _example(
        "publish with all flags",
        4,
        "both",
        publish("a", b"\0", qos=2, id=65535, retain=True, dup=True),
        "3d 06  0001 'a'  ffff  00",
    ),
    # Figure 1.1-2: the text A and U+2A6D4.  [MQTT-1.5.4-3]: U+FEFF stays.
    _example(
        "publish with the text of figure 1-2",
        5,
        "both",
        publish("A\U0002a6d4", b""),
        "30 08  0005 41 f0aa9b94  00",
    ),
    _example(
        "publish with U+FEFF", 4, "both", publish("\ufeffa\ufeff", b""), "30 09  0007 efbbbf 'a' efbbbf"
    ),
    _example("publish with U+FEFF in 5", 5, "both", publish("\ufeffa", b""), "30 07  0004 efbbbf 'a'  00"),
    _example(
        "publish of a client with all properties",
        5,
        "both",
        publish(
            "t",
            b"p",
            Properties(
                payload_format_indicator=0,
                message_expiry_interval=1,
                content_type="text",
                response_topic="r/1",
                correlation_data=b"\xff",
                topic_alias=10,
                user_properties=(("a", "1"), ("b", "2"), ("a", "1")),
            ),
            retain=True,
        ),
        "31 35  0001 't'"
        "  30 01 00  02 00000001  03 0004 'text'  08 0003 'r/1'  09 0001 ff  23 000a"
        "     26 0001 'a' 0001 '1'  26 0001 'b' 0001 '2'  26 0001 'a' 0001 '1'"
        "  'p'",
    ),
    # Table 1-1: 1, 127, 128 and 268,435,455.
    _example(
        "publish of a server with subscription identifiers",
        5,
        "client",
        publish("t", b"", Properties(subscription_identifiers=(1, 127, 128, 268435455))),
        "30 10  0001 't'  0c 0b 01  0b 7f  0b 8001  0b ffffff7f",
    ),
    # The acknowledgements: figures 3.12 to 3.19 (MQTT 3.1.1), 3-10 to 3-17 (MQTT 5.0).
    _example("puback", 4, "both", Acknowledgement(PUBACK, [1]), "40 02 0001"),
    _example("pubrec", 4, "both", Acknowledgement(PUBREC, [256]), "50 02 0100"),
    _example("pubrel", 4, "both", Acknowledgement(PUBREL, [65535]), "62 02 ffff"),
    _example("pubcomp", 4, "both", Acknowledgement(PUBCOMP, [10]), "70 02 000a"),
    _example("puback of 5", 5, "both", Acknowledgement(PUBACK, [1]), "40 02 0001"),
    _example("puback with a reason", 5, "both", Acknowledgement(PUBACK, [1], 0x10), "40 03 0001 10"),
    _example("pubrec with a reason", 5, "both", Acknowledgement(PUBREC, [1], 0x97), "50 03 0001 97"),
    _example(
        "pubrel with properties",
        5,
        "both",
        Acknowledgement(PUBREL, [2], 0x92, Properties(reason_string="?", user_properties=(("a", "b"),))),
        "62 0f 0002 92  0b 1f 0001 '?'  26 0001 'a' 0001 'b'",
    ),
    _example(
        "pubcomp with properties",
        5,
        "both",
        Acknowledgement(PUBCOMP, [2], 0, Properties(reason_string="?")),
        "70 08 0002 00  04 1f 0001 '?'",
    ),
    # SUBSCRIBE: figures 3.21 and 3.23 (MQTT 3.1.1), 3-19 and 3-21 (MQTT 5.0).
    _example(
        "subscribe figure 3.23",
        4,
        "server",
        Subscribe(10, (Subscription("a/b", 1), Subscription("c/d", 2))),
        "82 0e 000a  0003 'a/b' 01  0003 'c/d' 02",
    ),
    _example(
        "subscribe figure 3-21",
        5,
        "server",
        Subscribe(10, (Subscription("a/b", 1), Subscription("c/d", 2))),
        "82 0f 000a 00  0003 'a/b' 01  0003 'c/d' 02",
    ),
    # 3.8.3.1: bits 0-1 QoS, 2 No Local, 3 Retain As Published, 4-5 Retain Handling.
    _example(
        "subscribe with all options",
        5,
        "server",
        Subscribe(
            1,
            (
                Subscription("#", 2, True, True, 2),
                Subscription("sport/tennis/+", 0, False, True, 1, "consumer1"),
                Subscription("/finance", share_name="consumer1"),
            ),
            Properties(subscription_identifiers=(16383,), user_properties=(("a", "b"),)),
        ),
        "82 4f 0001  0a 0b ff7f  26 0001 'a' 0001 'b'"
        "  0001 '#' 2e  001f '$share/consumer1/sport/tennis/+' 18  0019 '$share/consumer1//finance' 00",
    ),
    # SUBACK: figure 3.27 (MQTT 3.1.1).
    _example("suback figure 3.27", 4, "client", Suback(10, (0, 2, 0x80)), "90 05 000a  00 02 80"),
    _example(
        "suback of 5",
        5,
        "client",
        Suback(10, (1, 0x87, 0xA2), Properties(reason_string="no")),
        "90 0b 000a  05 1f 0002 'no'  01 87 a2",
    ),
    # UNSUBSCRIBE: figures 3.30 of both.
    _example(
        "unsubscribe figure 3.30",
        4,
        "server",
        Unsubscribe(10, ("a/b", "c/d")),
        "a2 0c 000a  0003 'a/b'  0003 'c/d'",
    ),
    _example(
        "unsubscribe figure 3.30 of 5",
        5,
        "server",
        Unsubscribe(10, ("a/b", "c/d")),
        "a2 0d 000a 00  0003 'a/b'  0003 'c/d'",
    ),
    _example(
        "unsubscribe from a shared subscription",
        5,
        "server",
        Unsubscribe(1, ("$share/n/+",), Properties(user_properties=(("a", "b"),))),
        "a2 16 0001  07 26 0001 'a' 0001 'b'  000a '$share/n/+'",
    ),
    _example("unsuback", 4, "client", Unsuback(10), "b0 02 000a"),
    _example("unsuback of 5", 5, "client", Unsuback(10, (0, 0x11, 0x8F)), "b0 06 000a 00  00 11 8f"),
    # PINGREQ, PINGRESP, DISCONNECT, AUTH.
    _example("pingreq", 4, "server", Pingreq(), "c0 00"),
    _example("pingresp", 5, "client", Pingresp(), "d0 00"),
    _example("disconnect", 4, "server", Disconnect(), "e0 00"),
    _example("disconnect of 5", 5, "both", Disconnect(), "e0 00"),
    _example("disconnect with a reason", 5, "both", Disconnect(0x04), "e0 01 04"),
    _example(
        "disconnect of a client with properties",
        5,
        "server",
        Disconnect(0, Properties(session_expiry_interval=0, reason_string="x")),
        "e0 0b 00  09 11 00000000  1f 0001 'x'",
    ),
    _example(
        "disconnect of a server",
        5,
        "client",
        Disconnect(0x9D, Properties(server_reference="b:1883")),
        "e0 0b 9d  09 1c 0006 'b:1883'",
    ),
    _example("auth", 5, "both", Auth(), "f0 00"),
    _example(
        "auth with properties",
        5,
        "both",
        Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"\1\2")),
        "f0 0f 18  0d 15 0005 'SCRAM'  16 0002 0102",
    ),
]

LONGER = [
    # Not our form, but allowed: a packet may have the reason code 0 and the property length 0.
    _example("puback with reason 0", 5, "both", Acknowledgement(PUBACK, [1]), "40 03 0001 00"),
    _example("puback with property length 0", 5, "both", Acknowledgement(PUBACK, [1]), "40 04 0001 00 00"),
    _example("pubrel: not found", 5, "both", Acknowledgement(PUBREL, [1], 0x92), "62 04 0001 92 00"),
    _example("disconnect with property length 0", 5, "both", Disconnect(0x82), "e0 02 82 00"),
    # Properties in any order (2.2.2.2).
    _example(
        "properties in another order",
        5,
        "server",
        Connect(client_id="c", properties=Properties(session_expiry_interval=10, receive_maximum=1)),
        "10 16  0004 'MQTT' 05 02 0000  08 21 0001 11 0000000a  0001 'c'",
    ),
    # MQTT 3.1.1 does not forbid a remaining length that is longer than necessary.
    _example("pingreq with a long remaining length", 4, "server", Pingreq(), "c0 80 80 00"),
]
