"""Conversations of MQTT clients, to be had with any broker: each tells in plain lines what came back.

What is no matter is left out: packet identifiers, texts of reasons, properties of CONNACK.
"""

from __future__ import annotations

from collections.abc import Callable

from plugins.protocols.mqtt.packets import (
    Connack,
    Disconnect,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from plugins.protocols.mqtt.properties import Properties
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Came,
    Message,
    RawClient,
    connect_packet,
    publish,
    subscription,
    will,
)

Open = Callable[[], RawClient]
Lines = list[str]
Talk = Callable[[Open, str], Lines]

BOTH: dict[str, Talk] = {}
"""Conversations of both versions."""
ONLY_5: dict[str, Talk] = {}
"""Conversations of version 5."""


def _in(table: dict[str, Talk]) -> Callable[[Talk], Talk]:
    def add(talk: Talk) -> Talk:
        table[talk.__name__.replace("_", " ")] = talk
        return talk

    return add


def told(came: Came) -> str:
    """Return what came as one line."""
    if isinstance(came, Message):
        flags = "".join([" retain" if came.retain else "", " dup" if came.dup else ""])
        return f"PUBLISH {came.topic} {came.payload[:40]!r} QoS {came.qos}{flags}"
    if isinstance(came, Ack):
        return f"{came.kind.name} {came.code:#x}"
    if isinstance(came, Connack):
        return f"CONNACK {came.reason_code:#x}{' session present' if came.session_present else ''}"
    if isinstance(came, Disconnect):
        return f"DISCONNECT {came.reason_code:#x}"
    if isinstance(came, Suback | Unsuback):
        return f"{type(came).__name__.upper()} {[hex(code) for code in came.reason_codes]}"
    return type(came).__name__


def rest(client: RawClient) -> Lines:
    """Return what has come up to now, or up to the end of the connection."""
    lines: Lines = []
    try:
        # Twice: what is under way to other connections may come behind the first answer.
        for _ in range(2):
            client.send(Pingreq())
            while not isinstance(came := client.next(), Pingresp):
                lines.append(told(came))
    except (AssertionError, ConnectionError):
        lines += [told(came) for came in client._came if not isinstance(came, Pingresp)]
        lines.append("closed")
    return lines


def to_the_end(client: RawClient) -> Lines:
    """Wait until the broker ends the connection; return what has come.  RabbitMQ may take its time."""
    lines: Lines = []
    try:
        while True:
            lines.append(told(client.next()))
    except (AssertionError, ConnectionError):
        return [*lines, "closed"]


def enter(open_client: Open, name: str, **connect: object) -> RawClient:
    client = open_client()
    assert client.connect(client_id=name, **connect).reason_code == 0
    return client


@_in(BOTH)
def a_wrong_password(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send(connect_packet(client.version, client_id=name, password=b"wrong"))
    return rest(client)


@_in(BOTH)
def no_identifier(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send(connect_packet(client.version, client_id=""))
    return rest(client)


@_in(BOTH)
def no_identifier_and_no_clean_start(open_client: Open, name: str) -> Lines:
    client = open_client()
    head = b"\0\4MQTT" + bytes((client.version, 0xC0, 0, 60))
    packet = head + (b"\0" if client.version == 5 else b"") + b"\0\0" + b"\0\5guest\0\5guest"
    client.send_bytes(bytes((0x10, len(packet))) + packet)
    return rest(client)


@_in(BOTH)
def a_second_connect(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(connect_packet(client.version, client_id=name))
    return rest(client)


@_in(BOTH)
def publish_before_connect(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send(publish(name))
    return rest(client)


@_in(BOTH)
def a_session_and_its_end(open_client: Open, name: str) -> Lines:
    lines: Lines = []
    for clean in (False, False, True, False):
        client = open_client()
        options = {"session_expiry_interval": 100} if client.version == 5 else {}
        client.send(connect_packet(client.version, client_id=name, clean_start=clean, **options))
        lines += rest(client)
        client.disconnect()
    return lines


@_in(BOTH)
def the_same_identifier_again(open_client: Open, name: str) -> Lines:
    first = enter(open_client, name)
    enter(open_client, name)
    return to_the_end(first)


@_in(BOTH)
def each_qos_is_granted(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(Subscribe(1, tuple(subscription(f"{name}/{qos}", qos) for qos in (0, 1, 2))))
    return rest(client)


@_in(BOTH)
def unsubscribe_what_was_not_subscribed(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(Unsubscribe(1, (name,)))
    return rest(client)


@_in(BOTH)
def the_lower_qos_counts(open_client: Open, name: str) -> Lines:
    lines: Lines = []
    publisher = enter(open_client, f"{name}p")
    for wanted in (0, 1, 2):
        client = enter(open_client, f"{name}{wanted}")
        client.subscribe(f"{name}/{wanted}", qos=wanted)
        for qos in (0, 1, 2):
            publisher.publish(f"{name}/{wanted}", b"%d" % qos, qos)
            lines.append(told(client.next()))
    return lines


@_in(BOTH)
def overlapping_subscriptions(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(subscription(f"{name}/#", 1), subscription(f"{name}/+", 2), subscription(f"{name}/a", 1))
    client.send(publish(f"{name}/a", b"once", 1))
    return sorted(rest(client))


@_in(BOTH)
def a_dot_is_no_slash(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"{name}/a/b", f"{name}/a.b")
    for topic in ("a/b", "a.b"):
        client.send(publish(f"{name}/{topic}", topic.encode()))
    return [told(client.next()) for _ in range(2)]


@_in(BOTH)
def empty_levels(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"/{name}/+/")
    client.send(publish(f"/{name}//"), publish(f"/{name}/a/"), publish(f"{name}/a/"))
    return rest(client)


@_in(BOTH)
def a_number_sign_matches_the_parent(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"{name}/#")
    client.send(publish(name), publish(f"{name}/a/b"), publish(f"{name}x"))
    return rest(client)


@_in(BOTH)
def retained_messages(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"{name}/a")
    publisher = enter(open_client, f"{name}p")
    publisher.publish(f"{name}/a", b"live", 1, retain=True)
    lines = [told(client.next())]
    late = enter(open_client, f"{name}2")
    late.send(Subscribe(1, (subscription(f"{name}/#", 1),)))
    lines += [told(late.next()) for _ in range(2)]
    publisher.publish(f"{name}/a", b"", 1, retain=True)
    return [*lines, told(late.next())]


@_in(BOTH)
def a_will(open_client: Open, name: str) -> Lines:
    witness = enter(open_client, f"{name}w")
    witness.subscribe(f"{name}/will", qos=1)
    enter(open_client, name, will=will(f"{name}/will", b"good", 1)).disconnect()
    enter(open_client, name, will=will(f"{name}/will", b"lost", 1)).close()
    came = witness.next()
    return [told(came), *rest(witness)]


@_in(BOTH)
def qos_2_twice_before_its_release(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(name)
    lines: Lines = []
    for dup in (False, True):
        client.send(publish(name, b"x", 2, 7, dup=dup))
        lines += rest(client)
    client.ack(PUBREL, 7)
    return sorted(lines + rest(client))


@_in(BOTH)
def release_of_what_is_unknown(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.ack(PUBREL, 7)
    return rest(client)


@_in(BOTH)
def acknowledgements_of_what_is_unknown(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.ack(PUBACK, 7)
    client.ack(PUBCOMP, 8)
    client.ack(PUBREC, 9)
    return rest(client)


@_in(BOTH)
def a_topic_of_the_broker(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"$SYS/{name}")
    client.send(publish(f"$SYS/{name}", b"x", 1))
    return rest(client)


@_in(BOTH)
def another_topic_with_a_dollar_sign(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"$other/{name}")
    client.send(publish(f"$other/{name}", b"x", 1))
    return rest(client)


@_in(BOTH)
def what_was_not_acknowledged(open_client: Open, name: str) -> Lines:
    options: dict[str, object] = {"clean_start": False}
    client = open_client()
    if client.version == 5:
        options["session_expiry_interval"] = 100
    client.connect(client_id=name, **options)
    client.subscribe(name, qos=2)
    other = enter(open_client, f"{name}p")
    for qos in (1, 2):
        other.publish(name, b"%d" % qos, qos)
    lines = rest(client)
    client.close()
    client = open_client()
    client.send(connect_packet(client.version, client_id=name, **options))
    lines += rest(client)
    client.disconnect()
    enter(open_client, name).disconnect()
    return lines


def _malformed(name: str, octets: bytes, octets_5: bytes | None = None) -> None:
    """Add a conversation of one packet that is not allowed."""

    def talk(open_client: Open, client_id: str) -> Lines:
        client = enter(open_client, client_id)
        client.send_bytes(octets_5 if client.version == 5 and octets_5 is not None else octets)
        return rest(client)

    BOTH[name] = talk


_malformed("publish with QoS 3", b"\x36\x05\0\1ax\0", b"\x36\x06\0\1ax\0\0")
_malformed("publish with packet identifier 0", b"\x32\x05\0\1a\0\0", b"\x32\x06\0\1a\0\0\0")
_malformed("publish to a wildcard", b"\x30\x03\0\1#", b"\x30\x04\0\1#\0")
_malformed("publish to a topic that is not UTF-8", b"\x30\x03\0\1\xff", b"\x30\x04\0\1\xff\0")
_malformed("publish to an empty topic", b"\x30\x02\0\0", b"\x30\x03\0\0\0")
_malformed("subscribe to no filter", b"\x82\x02\0\1", b"\x82\x03\0\1\0")
_malformed("subscribe with wrong flags", b"\x80\x06\0\1\0\1a\0", b"\x80\x07\0\1\0\0\1a\0")
_malformed("subscribe with QoS 3", b"\x82\x06\0\1\0\1a\3", b"\x82\x07\0\1\0\0\1a\3")
_malformed("subscribe to a wildcard beside text", b"\x82\x07\0\1\0\2a#\0", b"\x82\x08\0\1\0\0\2a#\0")
_malformed("subscribe to an empty filter", b"\x82\x05\0\1\0\0\0", b"\x82\x06\0\1\0\0\0\0")
_malformed("a packet of type 0", b"\0\0")
_malformed("a packet of a server", b"\x20\x02\0\0")


@_in(ONLY_5)
def nobody_has_subscribed(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(publish(name, b"x", 1), publish(name, b"x", 2, 2))
    return rest(client)


@_in(ONLY_5)
def an_unknown_topic_alias(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(publish("", b"x", 1, topic_alias=3))
    return rest(client)


@_in(ONLY_5)
def a_topic_alias_of_zero(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send_bytes(b"\x30\x07\0\1a\3\x23\0\0")
    return rest(client)


@_in(ONLY_5)
def a_shared_subscription_without_own_messages(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    topic_filter = f"$share/group/{name}".encode()
    packet = b"\0\1\0" + bytes((0, len(topic_filter))) + topic_filter + b"\4"
    client.send_bytes(bytes((0x82, len(packet))) + packet)
    return rest(client)


@_in(ONLY_5)
def a_shared_subscription_gets_no_retained_message(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.publish(name, b"kept", 1, retain=True)
    client.send(Subscribe(1, (subscription(f"$share/group/{name}", 1),)))
    return rest(client)


@_in(ONLY_5)
def an_authentication_method(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send(connect_packet(5, client_id=name, authentication_method="SCRAM-SHA-1"))
    return rest(client)


@_in(ONLY_5)
def a_receive_maximum_of_zero(open_client: Open, name: str) -> Lines:
    client = open_client()
    client.send_bytes(b"\x10\x10\0\4MQTT\5\2\0\0\3\x21\0\0\0\0")
    return rest(client)


@_in(ONLY_5)
def disconnect_makes_the_session_last(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(Disconnect(0, Properties(session_expiry_interval=100)))
    return rest(client)


@_in(ONLY_5)
def disconnect_with_will(open_client: Open, name: str) -> Lines:
    witness = enter(open_client, f"{name}w")
    witness.subscribe(f"{name}/will", qos=1)
    enter(open_client, name, will=will(f"{name}/will", b"asked for", 1)).disconnect(4)
    return [told(witness.next())]


@_in(ONLY_5)
def identifiers_of_subscriptions(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.subscribe(f"{name}/a", qos=1, identifier=1)
    client.subscribe(f"{name}/+", qos=1, identifier=2)
    publisher = enter(open_client, f"{name}p")
    publisher.publish(f"{name}/a", b"x", 1)
    came = [client.next()]
    client.send(Pingreq())
    while not isinstance(more := client.next(), Pingresp):
        came.append(more)
    found = [each.properties.subscription_identifiers for each in came if isinstance(each, Message)]
    return [str(sorted(found))]


@_in(ONLY_5)
def unknown_flags_of_a_subscription(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send_bytes(b"\x82\x07\0\1\0\0\1a\xc0")
    return rest(client)


@_in(ONLY_5)
def retained_and_published_under_no_local(open_client: Open, name: str) -> Lines:
    client = enter(open_client, name)
    client.send(Subscribe(1, (Subscription(name, 1, no_local=True, retain_as_published=True),)))
    client.send(publish(name, b"own", 1, retain=True))
    lines = rest(client)
    client.publish(name, b"", 1, retain=True)
    return lines
