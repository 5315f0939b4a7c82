"""SUBSCRIBE and UNSUBSCRIBE: MQTT 5.0, 3.8 to 3.11, 4.7 and 4.8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.plugins.engines.mqtt.raw_client import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Message,
    everything,
    kept,
    publish,
    subscription,
)
from tests.plugins.engines.mqtt.still_server import StillServer

Still = Callable[..., StillServer]


@pytest.mark.parametrize("stays", [False, True])
def test_each_filter_has_a_code(quiet: StillServer, version: int, stays: bool) -> None:
    """[MQTT-3.8.4-1], -2, -5, -6, [MQTT-3.9.3-1]."""
    client = quiet.connect(version, **(kept(version) if stays else {}))
    wanted = [subscription(name, qos) for name, qos in (("a", 0), ("b/+", 1), ("#", 2), ("a", 2))]
    assert client.subscribe(*wanted, number=65_535) == (0, 1, 2, 2)


def test_a_filter_that_may_not_be_read(still: Still, version: int) -> None:
    """[MQTT-3.9.3-2] of MQTT 3.1.1: the others count."""
    users = {
        "u": {"password": "p", "read": "^amq.topic$"},
        "v": {"password": "p", "read": "nothing"},
    }
    server = still(users=users)
    client = server.connect(version, user_name="u", password=b"p")
    refused = ReasonCode.NOT_AUTHORIZED if version == 5 else 0x80
    assert client.subscribe("a", "$share/g/b", "c", qos=1) == (1, refused, 1)
    client.send(publish("b"), publish("c"))
    client.expect_message("c")
    client = server.connect(version, user_name="v", password=b"p")
    assert client.subscribe("a", qos=0) == (refused,)


def test_there_may_be_too_many(still: Still, version: int) -> None:
    client = still({"max_subscriptions": 2}).connect(version)
    full = ReasonCode.QUOTA_EXCEEDED if version == 5 else 0x80
    assert client.subscribe("a", "b", "c", "a") == (0, 0, full, 0)
    client.unsubscribe("a")
    assert client.subscribe("c") == (0,)


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("stays", [False, True])
def test_a_subscription_is_replaced(
    quiet: StillServer, version: int, before: int, after: int, stays: bool
) -> None:
    """[MQTT-3.8.4-3]: of the same filter there is one."""
    client, publisher = quiet.connect(version, **(kept(version) if stays else {})), quiet.connect(version)
    for qos in (before, after):
        assert client.subscribe("t/+", qos=qos) == (qos,)
    for qos in (0, 1, 2):
        publisher.publish("t/a", qos=qos)
        client.expect_message("t/a", qos=min(qos, after))
    client.expect_nothing()
    assert client.unsubscribe("t/+") == ((0,) if version == 5 else ())
    publisher.publish("t/a")
    client.expect_nothing()


@pytest.mark.parametrize("stays", [False, True])
def test_options_are_replaced(quiet: StillServer, stays: bool) -> None:
    client = quiet.connect(5, **(kept(5) if stays else {}))
    client.subscribe(subscription("t", 0, no_local=True, retain_as_published=True), identifier=3)
    client.send(publish("t", retain=True))
    client.expect_nothing()
    client.subscribe(subscription("t", 0, retain_handling=2), identifier=4)
    client.send(publish("t", retain=True))
    client.expect_message("t", subscription_identifiers=(4,))
    client.subscribe(subscription("t", 0, retain_handling=2))
    client.send(publish("t"))
    client.expect_message("t")


@pytest.mark.parametrize("qos", [0, 1])
def test_subscriptions_that_overlap_yield_one_message(quiet: StillServer, version: int, qos: int) -> None:
    """[MQTT-3.3.4-2]: the highest QoS, and each identifier [MQTT-3.3.4-3], [MQTT-3.3.4-4], [MQTT-3.3.4-5]."""
    client, publisher = quiet.connect(version), quiet.connect(version)
    for identifier, (name, most) in enumerate((("t/#", qos), ("t/+", qos), ("t/a", qos), ("u", qos)), 1):
        client.subscribe(name, qos=most, identifier=identifier * 1000 if version == 5 else 0)
    client.subscribe("#", qos=qos)
    publisher.publish("t/a", qos=2)
    got = client.expect(Message)
    assert (got.topic, got.qos) == ("t/a", qos)
    wanted = {1000, 2000, 3000} if version == 5 else set()
    assert set(got.properties.subscription_identifiers) == wanted
    assert len(got.properties.subscription_identifiers) == len(wanted)
    client.expect_nothing()


def test_a_session_of_both_kinds_gets_two_copies(quiet: StillServer) -> None:
    """[MQTT-3.3.4-5]: of QoS 0 without a queue and of the queue (decision 31), each with its identifiers."""
    client, publisher = quiet.connect(5), quiet.connect(5)
    for identifier, (name, qos) in enumerate((("t", 0), ("+", 0), ("#", 1)), 1):
        client.subscribe(name, qos=qos, identifier=identifier)
    publisher.publish("t", qos=1)
    came = everything(client)
    assert sorted((each.qos, *sorted(each.properties.subscription_identifiers)) for each in came) == [
        (0, 1, 2),
        (1, 3),
    ]


def test_the_highest_qos_of_overlapping_subscriptions_counts(quiet: StillServer, version: int) -> None:
    client, publisher = quiet.connect(version, **kept(version)), quiet.connect(version)
    for name, qos in (("t/+", 0), ("t/#", 2), ("t/a", 1)):
        client.subscribe(name, qos=qos)
    for qos in (0, 1, 2):
        publisher.publish("t/a", qos=qos)
        client.expect_message("t/a", qos=qos)
    client.unsubscribe("t/#")
    publisher.publish("t/a", qos=2)
    client.expect_message("t/a", qos=1)
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1])
def test_the_own_messages_may_stay_away(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.8.3-3]."""
    client, other = quiet.connect(5, client_id="c"), quiet.connect(5)
    for each in (client, other):
        each.subscribe(subscription("t/+", qos, no_local=True), "u", qos=qos)
    for topic in ("t/a", "u"):
        client.send(publish(topic, topic.encode()))
    client.expect_message("u", b"u")
    client.expect_nothing()
    other.expect_message("t/a", b"t/a")
    other.expect_message("u", b"u")
    # A subscription that overlaps and has no such wish still counts.
    client.subscribe("t/#", qos=qos)
    client.send(publish("t/a"))
    client.expect_message("t/a")
    client.expect_nothing()


def test_no_local_of_a_shared_subscription_is_an_error(quiet: StillServer) -> None:
    """[MQTT-3.8.3-4]."""
    client = quiet.connect(5)
    octets = bytearray(encode(Subscribe(1, (subscription("$share/g/t", 1),)), 5))
    octets[-1] |= 4
    client.send_bytes(bytes(octets))
    client.expect_end(ReasonCode.PROTOCOL_ERROR)


# UNSUBSCRIBE


def test_each_filter_that_goes_has_a_code(quiet: StillServer) -> None:
    """[MQTT-3.10.4-1], -4, -5, [MQTT-3.11.3-1], [MQTT-3.11.3-2]: filters are compared sign by sign."""
    client = quiet.connect(5)
    client.subscribe("a/+", "#", "$share/g/a", qos=1)
    none = ReasonCode.NO_SUBSCRIPTION_EXISTED
    gone = client.unsubscribe("a/b", "a/+", "A/+", "a/+", "$share/h/a", "a", "$share/g/a", number=65_535)
    assert gone == (none, 0, none, none, none, none, 0)
    client.send(publish("a/b"))
    client.expect_message("a/b")  # one remains


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe"])
def test_nothing_is_done_for_a_client_that_does_not_take_the_answer(quiet: StillServer, name: str) -> None:
    """[MQTT-3.1.2-24]"""
    # CONNACK has to fit.  It is larger than the answers to few filters, so there are many.
    most = len(encode(quiet.connect(5).connack, 5))
    client = quiet.connect(5, **kept(5), maximum_packet_size=most)
    client.subscribe("a/1", "b", qos=1)
    many = [f"a/{number}" for number in range(most)]
    if name == "subscribe":
        client.send(Subscribe(1, tuple([subscription(each, 1) for each in many])))
    else:
        client.send(Unsubscribe(1, tuple(many)))
    client.expect_end(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    session = quiet.session("c")
    assert session is not None
    assert set(session.subscriptions) == {"a/1", "b"}


def test_unsubscribing_is_answered_in_any_case(quiet: StillServer) -> None:
    """[MQTT-3.10.4-5] of MQTT 3.1.1."""
    client = quiet.connect(4)
    assert client.unsubscribe("nothing") == ()
    client.subscribe("t", qos=1)
    assert client.unsubscribe("t", "nothing") == ()
    client.send(publish("t"))
    client.expect_nothing()


@pytest.mark.parametrize("name", ["t", "$share/g/t"])
def test_what_was_begun_is_completed_after_unsubscribing(quiet: StillServer, version: int, name: str) -> None:
    """[MQTT-3.10.4-3]."""
    client, publisher = quiet.connect(version), quiet.connect(version)
    client.subscribe(name, qos=2)
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 2)
    first, second = client.expect_message("t", b"1", 1), client.expect_message("t", b"2", 2)
    client.unsubscribe(name)
    publisher.publish("t", b"3", 1)
    client.ack(PUBREC, second)
    client.expect_acks(PUBREL, second)
    client.ack(PUBCOMP, second)
    client.ack(PUBACK, first)
    client.expect_nothing()
    client.subscribe(name, qos=2)
    publisher.publish("t", b"4", 1)
    client.ack(PUBACK, client.expect_message("t", b"4", 1))
    client.expect_nothing()


def test_nothing_is_left_of_a_shared_subscription_that_has_ended(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version, **kept(version))
    client.subscribe("$share/g/t", qos=2)
    quiet.connect(version).publish("t", qos=2)
    number = client.expect_message("t", qos=2)
    client.unsubscribe("$share/g/t")
    client.ack(PUBREC, number)
    client.expect_acks(PUBREL, number)
    client.ack(PUBCOMP, number)
    client.close()
    quiet.connect(version, **kept(version)).expect_nothing()


def test_messages_stay_in_order_while_subscriptions_come_and_go(quiet: StillServer, version: int) -> None:
    client, publisher = quiet.connect(version, **kept(version)), quiet.connect(version)
    client.subscribe("#", qos=1)
    for number in range(30):
        publisher.send(publish("t", b"%d" % number, 1, number + 1))
        if number % 3 == 0:
            client.send(Subscribe(9, (subscription("t", 1), subscription("+", 0))))
        elif number % 3 == 1:
            client.send(Unsubscribe(8, ("t", "+")))
    got = []
    while len(got) < 30:
        came = client.next()
        if isinstance(came, Message):
            client.ack(PUBACK, came.id)
            got.append(int(came.payload))
    assert got == list(range(30))


# Wildcards


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    "name, matches, others",
    [
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/c/d", "a/b/d"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["ab", "b"]),
        ("#", ["a", "/", "/a", "a/b"], []),
        ("+", ["a"], ["/a", "a/", "a/b"]),
        ("/+", ["/a", "/"], ["a", "a/b"]),
        ("+/+", ["/a", "a/", "a/b", "/"], ["a", "a/b/c"]),
        ("+/a/#", ["/a", "b/a", "b/a/c"], ["a", "a/b"]),
        ("a/b", ["a/b"], ["a/b/", "a/B", "/a/b", "a"]),
        ("a.b/+", ["a.b/c"], ["a/b/c", "a.b", "axb/c"]),
        ("a*b", ["a*b"], ["axb", "ab"]),
    ],
)
def test_wildcards(
    quiet: StillServer, version: int, qos: int, name: str, matches: list[str], others: list[str]
) -> None:
    """[MQTT-4.7.1-1], -2, -3, [MQTT-4.7.3-4]."""
    client, publisher = quiet.connect(version), quiet.connect(version)
    client.subscribe(name, qos=qos)
    for number, topic in enumerate((*others, *matches), 1):
        publisher.publish(topic, qos=qos, number=number)
    assert [client.expect(Message).topic for _ in matches] == matches
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("name", ["#", "+/x", "+/#"])
def test_wildcards_do_not_match_what_is_hidden(quiet: StillServer, version: int, qos: int, name: str) -> None:
    """[MQTT-4.7.2-1]: also of what clients of other protocols publish."""
    client, naming = quiet.connect(version), quiet.connect(version)
    client.subscribe(name, qos=qos)
    naming.subscribe("$X/#", qos=qos)
    quiet.publish("$X.x")
    client.expect_nothing()
    naming.expect_message("$X/x")


@pytest.mark.parametrize("qos", [0, 1])
def test_keys_that_are_no_topics_stay_away(quiet: StillServer, version: int, qos: int) -> None:
    client = quiet.connect(version, **(kept(version) if qos else {}))
    client.subscribe("#", qos=qos)
    for key in ("", "a.*", "a.#", "x" * 70_000, "a\0b", "good.one"):
        quiet.publish(key)
    client.expect_message("good/one")
    client.expect_nothing()
    if qos:
        assert quiet.row("mqtt.session.c")["messages"] == 0


# Shared subscriptions


def test_members_share_the_messages(quiet: StillServer, version: int) -> None:
    """MQTT 5.0, 4.8.2: each message goes to one member of each group."""
    members = [quiet.connect(version) for _ in range(3)]
    for member in members:
        member.subscribe("$share/g/t/+", qos=1)
    other, alone = quiet.connect(version), quiet.connect(version)
    other.subscribe("$share/h/t/+", qos=1)
    alone.subscribe("t/+", qos=1)
    publisher = quiet.connect(version)
    for number in range(12):
        publisher.publish("t/a", b"%d" % number, 1)
    everybody = [b"%d" % number for number in range(12)]
    for each in (other, alone):
        assert [each.expect(Message).payload for _ in everybody] == everybody
    got = []
    for member in members:
        mine = [member.expect(Message).payload for _ in range(4)]
        member.expect_nothing()
        got += mine
    assert sorted(got, key=int) == everybody


def test_each_member_has_its_own_qos_and_identifier(quiet: StillServer) -> None:
    """[MQTT-4.8.2-3]."""
    publisher = quiet.connect(5)
    for qos in (0, 1, 2):
        member = quiet.connect(5)
        member.subscribe("$share/g/t", qos=qos, identifier=qos + 1)
        publisher.publish("t", qos=2)
        member.expect_message("t", qos=qos, subscription_identifiers=(qos + 1,))
        member.disconnect()


def test_a_member_gets_what_it_has_subscribed_to_besides(quiet: StillServer, version: int) -> None:
    member = quiet.connect(version)
    member.subscribe("$share/g/t", "t", qos=1)
    quiet.connect(version).publish("t", qos=1)
    numbers = [member.expect_message("t", qos=1) for _ in range(2)]
    assert len(set(numbers)) == 2
    member.ack(PUBACK, *numbers)
    member.expect_nothing()


@pytest.mark.parametrize("stays", [False, True])
def test_another_member_gets_what_was_not_acknowledged(quiet: StillServer, version: int, stays: bool) -> None:
    """[MQTT-4.8.2-4] for QoS 1.  It is the first time for this member, so DUP is not set."""
    first = quiet.connect(version, **(kept(version) if stays else {}))
    first.subscribe("$share/g/t", qos=1)
    publisher = quiet.connect(version)
    for payload in (b"1", b"2", b"3"):
        publisher.publish("t", payload, 1)
    numbers = [first.expect_message("t", payload, 1) for payload in (b"1", b"2", b"3")]
    first.ack(PUBACK, numbers[1])
    second = quiet.connect(version)
    second.subscribe("$share/g/t", qos=1)
    first.close()
    for payload in (b"1", b"3"):
        second.ack(PUBACK, second.expect_message("t", payload, 1))
    second.expect_nothing()
    if stays:
        first = quiet.connect(version, **kept(version))
        assert first.connack.session_present
        first.expect_nothing()
        publisher.publish("t", b"4", 1)
        publisher.publish("t", b"5", 1)
        got = {first.expect(Message).payload, second.expect(Message).payload}
        assert got == {b"4", b"5"}


def test_qos_2_that_was_begun_waits_for_its_member(quiet: StillServer, version: int) -> None:
    """[MQTT-4.8.2-4]."""
    first, second = quiet.connect(version, **kept(version)), quiet.connect(version)
    first.subscribe("$share/g/t", qos=2)
    publisher = quiet.connect(version)
    for payload in (b"1", b"2"):
        publisher.publish("t", payload, 2)
    one, two = first.expect_message("t", b"1", 2), first.expect_message("t", b"2", 2)
    first.ack(PUBREC, two)
    first.expect_acks(PUBREL, two)
    second.subscribe("$share/g/t", qos=2)
    first.close()
    second.expect_nothing()
    first = quiet.connect(version, **kept(version))
    assert first.expect_message("t", b"1", 2, dup=True) == one
    first.expect_acks(PUBREL, two)
    first.ack(PUBCOMP, two)
    first.ack(PUBREC, one)
    first.expect_acks(PUBREL, one)
    first.ack(PUBCOMP, one)
    first.expect_nothing()


def test_qos_2_that_was_begun_goes_to_no_other_member(quiet: StillServer, version: int) -> None:
    """[MQTT-4.8.2-5]: the session has ended."""
    first, second = quiet.connect(version), quiet.connect(version)
    first.subscribe("$share/g/t", qos=2)
    publisher = quiet.connect(version)
    publisher.publish("t", b"1", 2)
    first.expect_message("t", b"1", 2)
    second.subscribe("$share/g/t", qos=2)
    first.close()
    second.expect_nothing()
    publisher.publish("t", b"2", 2)
    second.expect_message("t", b"2", 2)


def test_another_member_gets_what_waits_for_the_disk(still: Still, tmp_path: Path, version: int) -> None:
    """A message of QoS 2 is sent to a lasting session when it is stored; this member has left meanwhile."""
    server = still(data_dir=str(tmp_path))
    publisher, first = server.connect(version), server.connect(version, **kept(version))
    second = server.connect(version, **kept(version, "other"))
    first.subscribe("$share/g/t", "t", qos=2)
    server.hold_disk()
    for number in (1, 2, 3):
        publisher.send(publish("t", b"%d" % number, 2, number))
    second.send(Subscribe(9, (subscription("$share/g/t", 2),)))
    first.send(Unsubscribe(8, ("$share/g/t",)))
    server.free_disk()
    first.expect(Unsuback)
    second.expect(Suback)
    for number in (1, 2, 3):
        first.expect_message("t", b"%d" % number, 2)
        second.expect_message("t", b"%d" % number, 2)
    first.expect_nothing()
    second.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_has_refused_goes_to_nobody_else(quiet: StillServer, qos: int) -> None:
    """[MQTT-4.8.2-6], [MQTT-4.4.0-2]."""
    first, second = quiet.connect(5), quiet.connect(5)
    first.subscribe("$share/g/t", qos=qos)
    quiet.connect(5).publish("t", qos=qos)
    number = first.expect_message("t", qos=qos)
    second.subscribe("$share/g/t", qos=qos)
    first.ack(PUBACK if qos == 1 else PUBREC, number, code=ReasonCode.UNSPECIFIED_ERROR)
    first.expect_nothing()
    first.disconnect()
    second.expect_nothing()
    assert quiet.row("mqtt.share.g.t")["messages"] == 0


def test_a_group_waits_for_a_member_that_takes_more(quiet: StillServer) -> None:
    """MQTT 5.0, 4.8.2: a member that has acknowledged nothing is passed over."""
    busy, other = quiet.connect(5, receive_maximum=1), quiet.connect(5)
    for member in (busy, other):
        member.subscribe("$share/g/t", qos=1)
    publisher = quiet.connect(5)
    for number in range(5):
        publisher.publish("t", b"%d" % number, 1)
    got = [busy.expect(Message)]
    busy.expect_nothing()
    got += [other.expect(Message) for _ in range(4)]
    assert sorted(message.payload for message in got) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_group_without_members_is_forgotten(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version)
    client.subscribe("$share/g/t", qos=1)
    assert quiet.row("mqtt.share.g.t")["consumers"] == 1
    client.unsubscribe("$share/g/t")
    assert not quiet.engine.inspect("queues")
    client.subscribe("$share/g/t", qos=1)
    client.disconnect()
    assert not quiet.engine.inspect("queues")


def test_a_group_that_is_away_finds_its_messages(quiet: StillServer, version: int) -> None:
    member, publisher = quiet.connect(version, **kept(version)), quiet.connect(version)
    member.subscribe("$share/g/t", qos=1)
    member.close()
    publisher.publish("t", qos=1)
    member = quiet.connect(version, **kept(version))
    member.expect_message("t", qos=1)


def test_identifiers_are_not_for_clients_to_publish(quiet: StillServer) -> None:
    """[MQTT-3.3.4-6]."""
    client = quiet.connect(5)
    client.send(publish("t"))
    octets = b"\x30\x07\x00\x01t\x02\x0b\x07x"
    client.send_bytes(octets)
    client.expect_end(ReasonCode.PROTOCOL_ERROR)
