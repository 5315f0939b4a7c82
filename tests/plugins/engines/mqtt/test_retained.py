"""Retained messages: MQTT 5.0, 3.3.1.3 and 3.8.3.1."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from random import Random

import pytest

from kernel.contracts.message import Envelope
from plugins.engines.mqtt.retained import Retained, RetainedMessages, matcher_of
from plugins.engines.mqtt.sender import Sender
from plugins.engines.mqtt.session import Session
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Pingreq, Suback, Subscribe, Subscription
from plugins.protocols.mqtt.reason_codes import ReasonCode
from tests.notes import for_each
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
    will,
)
from tests.plugins.engines.mqtt.still_server import StillServer

Still = Callable[..., StillServer]


def retained(server: StillServer, topic_filter: str = "#", version: int = 5, **options: int) -> list[Message]:
    """Return what somebody gets who has just subscribed."""
    client = server.connect(version)
    client.subscribe(subscription(topic_filter, **options))
    found = everything(client)
    client.disconnect()
    return found


@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_the_last_message_is_for_those_who_subscribe_later(
    quiet: StillServer, version: int, stored: int, wanted: int
) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8]; the QoS is the lower one [MQTT-3.8.4-8]."""
    client = quiet.connect(version)
    for payload in (b"old", b"new"):
        client.publish("t/a", payload, stored, retain=True)
    client.publish("t/a", b"not retained", stored)
    client.publish("t/b", b"b", stored, retain=True)
    client.disconnect()  # they do not end with a session
    got = retained(quiet, "t/+", version, qos=wanted)
    qos = min(stored, wanted)
    assert sorted((each.topic, each.payload, each.qos, each.retain, each.dup) for each in got) == [
        ("t/a", b"new", qos, True, False),
        ("t/b", b"b", qos, True, False),
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_an_empty_message_clears_it(quiet: StillServer, version: int, qos: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: it is delivered, and is not retained itself."""
    reader, client = quiet.connect(version), quiet.connect(version)
    client.publish("t", retain=True)
    reader.subscribe(subscription("t", retain_handling=2) if version == 5 else "u")
    client.publish("t", b"", qos, retain=True)
    if version == 5:
        reader.expect_message("t", b"")
    reader.expect_nothing()
    assert retained(quiet) == []


def test_a_message_that_is_not_retained_changes_nothing(quiet: StillServer, version: int) -> None:
    """[MQTT-3.3.1-8]."""
    client = quiet.connect(version)
    client.publish("t", b"kept", retain=True)
    client.publish("t", b"passing")
    client.publish("t", b"")
    assert [each.payload for each in retained(quiet)] == [b"kept"]


@pytest.mark.parametrize("qos", [0, 1])
def test_when_retained_messages_are_sent(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.3.1-9], -10, -11."""
    client = quiet.connect(5)
    client.publish("t", retain=True)

    def again(handling: int, name: str = "t") -> list[bytes]:
        client.subscribe(subscription(name, qos, retain_handling=handling))
        return [each.payload for each in everything(client)]

    assert again(2) == []
    assert again(1) == []  # it is not new
    assert again(0) == [b"x"]
    assert again(0) == [b"x"]
    client.unsubscribe("t")
    assert again(1) == [b"x"]
    assert again(1) == []
    assert again(1, "#") == [b"x"]


def test_mqtt_3_1_1_gets_them_with_each_subscribe(quiet: StillServer) -> None:
    """[MQTT-3.8.4-3] of MQTT 3.1.1."""
    client = quiet.connect(4)
    client.publish("t", retain=True)
    for qos in (0, 0, 1, 1):
        client.subscribe("t", qos=qos)
        assert [each.retain for each in everything(client)] == [True]


@pytest.mark.parametrize("qos", [0, 1])
def test_the_flag_is_as_published_if_the_subscriber_wants_that(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]."""
    plain, asking, client = quiet.connect(5), quiet.connect(5), quiet.connect(5)
    plain.subscribe("t", qos=qos)
    asking.subscribe(subscription("t", qos, retain_as_published=True))
    client.publish("t", qos=qos, retain=True)
    client.publish("t", qos=qos)
    assert [each.retain for each in everything(plain)] == [False, False]
    assert [each.retain for each in everything(asking)] == [True, False]


def test_mqtt_3_1_1_is_not_told_of_others_flags(quiet: StillServer) -> None:
    """[MQTT-3.3.1-9] of MQTT 3.1.1."""
    client = quiet.connect(4)
    client.subscribe("t")
    client.send(publish("t", retain=True))
    client.expect_message("t", retain=False)


def test_shared_subscriptions_get_none(quiet: StillServer) -> None:
    """MQTT 5.0, 4.8.2."""
    quiet.connect(5).publish("t", retain=True)
    assert retained(quiet, "$share/g/t") == []
    assert retained(quiet, "$share/g/#", qos=1) == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message_has_its_properties(quiet: StillServer, qos: int) -> None:
    more = {"content_type": "a/b", "user_properties": (("a", "b"),), "correlation_data": b"\x00"}
    quiet.connect(5).publish("t", qos=1, retain=True, **more)
    reader = quiet.connect(5)
    reader.subscribe("t", qos=qos, identifier=7)
    reader.expect_message("t", qos=qos, retain=True, subscription_identifiers=(7,), **more)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message_expires(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]."""
    quiet.connect(5).publish("t", retain=True, message_expiry_interval=100)
    quiet.pass_time(40)
    (found,) = retained(quiet, qos=qos)
    assert found.properties.message_expiry_interval == 60
    quiet.pass_time(61)
    assert retained(quiet, qos=qos) == []


@pytest.mark.parametrize("qos", [0, 1])
def test_the_own_retained_message_is_not_local(quiet: StillServer, qos: int) -> None:
    """[MQTT-3.8.3-3]: whenever it was published."""
    client = quiet.connect(5, client_id="c")
    client.publish("t", b"before", qos, retain=True)
    client.subscribe(subscription("t", qos, no_local=True))
    client.publish("t", b"behind", qos, retain=True)
    assert everything(client) == []
    client.subscribe(subscription("t", qos, no_local=True))
    assert everything(client) == []
    assert [each.payload for each in retained(quiet, "t", no_local=True)] == [b"behind"]


def test_the_own_will_is_not_local(quiet: StillServer) -> None:
    kept = {"client_id": "c", "clean_start": False, "session_expiry_interval": 60}
    client = quiet.connect(5, **kept, will=will("t", retain=True))
    client.subscribe(subscription("t", 1, no_local=True))
    client.close()
    client = quiet.connect(5, **kept)
    client.subscribe(subscription("t", 1, no_local=True))
    client.expect_nothing()
    assert [each.payload for each in retained(quiet)] == [b"will"]


def test_qos_2_ends_properly_for_retained_messages(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version)
    client.publish("t", qos=2, retain=True)
    client.subscribe("t", qos=2)
    number = client.expect_message("t", qos=2, retain=True)
    client.ack(PUBREC, number)
    client.expect_acks(PUBREL, number)
    client.ack(PUBCOMP, number)
    client.expect_nothing()
    client.subscribe("t", qos=1)
    client.ack(PUBACK, client.expect_message("t", qos=1, retain=True))
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_they_are_for_the_new_subscription_alone(quiet: StillServer, version: int, qos: int) -> None:
    """MQTT 5.0, 3.3.4: other identifiers are an error; its QoS counts [MQTT-3.8.4-8], 3.1.1 [MQTT-3.8.4-6]."""
    quiet.connect(version).publish("t/a", qos=2, retain=True)
    client = quiet.connect(version)
    for identifier, (name, wanted) in enumerate((("t/+", 2), ("t/#", qos), ("t/a", qos), ("t/#", 1)), 1):
        client.subscribe(name, qos=wanted, identifier=identifier if version == 5 else 0)
        (got,) = everything(client)
        assert (got.qos, got.retain) == (wanted, True)
        assert got.properties.subscription_identifiers == ((identifier,) if version == 5 else ())


def test_one_that_is_sent_again_says_that_it_was_retained(quiet: StillServer, version: int) -> None:
    """Even if its subscription is gone, and another one matches: the packet is the same but for DUP."""
    quiet.connect(version).publish("t/a", qos=1, retain=True)
    client = quiet.connect(version, **kept(version))
    client.subscribe("t/+", qos=1)
    number = client.expect_message("t/a", qos=1, retain=True)
    client.subscribe("other", qos=1)
    client.unsubscribe("t/+")
    client.close()
    client = quiet.connect(version, **kept(version))
    assert client.expect_message("t/a", qos=1, retain=True, dup=True) == number
    client.expect_nothing()


def test_nothing_is_retained_if_the_listener_says_so(still: Still, version: int) -> None:
    """[MQTT-3.2.2-14]; MQTT 3.1.1 cannot say so before."""
    server = still({"retain": False})
    client = server.connect(version)
    client.send(publish("t", retain=True))
    if version == 5:
        client.expect_end(ReasonCode.RETAIN_NOT_SUPPORTED)
    assert retained(server, "t", version) == []


def test_there_may_be_too_many(still: Still) -> None:
    server = still({"max_retained": 2})
    client = server.connect(5)
    for topic in ("a", "b", "c", "a"):
        client.publish(topic, topic.encode(), retain=True)
    assert sorted(each.topic for each in retained(server)) == ["a", "b"]
    client.publish("a", b"", retain=True)
    client.publish("c", b"c", retain=True)
    assert sorted(each.topic for each in retained(server)) == ["b", "c"]


@pytest.mark.slow
def test_many_retained_messages_come_in_turns(quiet: StillServer, version: int) -> None:
    client = quiet.connect(version)
    topics = [f"t/{number}" for number in range(3000)]
    client.send(*[publish(topic, retain=True) for topic in topics])
    client.sync()
    client.subscribe("t/+")
    assert [client.next().topic for _ in topics] == topics  # type: ignore[union-attr]


def test_a_filter_that_is_subscribed_again_and_again_is_read_once(
    quiet: StillServer, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    begin = Session.send_retained

    def send_retained(session: Session, sender: Sender, now: float) -> None:
        nonlocal most
        most = max(most, len(session.retained))
        begin(session, sender, now)

    monkeypatch.setattr(Session, "send_retained", send_retained)
    client = quiet.connect(version)
    client.publish("t/a", b"kept", retain=True)
    client.send(Subscribe(1, (Subscription("t/+", 0), Subscription("t/#", 0)) * 500))
    client.expect(Suback)
    # Once for each filter.
    assert [each.payload for each in everything(client)] == [b"kept", b"kept"]
    assert most == 2


@for_each(
    "topic_filter, matches, others",
    [
        ("a/b", ["a/b"], ["a", "a/b/", "a/b/c", "A/b"]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c", "/a/b"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c"], ["b", "ab", "$a/b"]),
        ("#", ["a", "/", "a/b", "é"], ["$SYS", "$SYS/a"]),
        ("+", ["a", "é"], ["/a", "a/b", "$SYS"]),
        ("+/+", ["/a", "a/b", "/"], ["a", "$SYS/a"]),
        ("/+", ["/a", "/"], ["a", "//"]),
        ("+/#", ["a", "a/b", "/"], ["$SYS/a"]),
        ("$SYS/#", ["$SYS", "$SYS/a"], ["a/$SYS"]),
        ("a.b/+", ["a.b/c"], ["axb/c"]),
        ("+/b/#", ["a/b", "/b/c"], ["a/c"]),
    ],
)
def test_filters_match_topics(topic_filter: str, matches: list[str], others: list[str]) -> None:
    """[MQTT-4.7.1-1] to [MQTT-4.7.3-1]."""
    found = matcher_of(topic_filter)
    assert [topic for topic in (*matches, *others) if found(topic)] == matches


def test_few_of_many_matching_messages_are_sent_before_others_have_their_turn(quiet: StillServer) -> None:
    """To send a message takes longer than to look at a topic."""
    engine = quiet.engine
    messages = RetainedMessages(engine.broker.vhost("/"), 10_000)
    for number in range(2000):
        messages.keep(f"plant/{number}", b"on", Envelope(key=f"plant.{number}"), 0.0)
    found = list(messages.find("plant/#", 0.0))
    first_step = found.index(None)
    assert len(found) - found.count(None) == 2000
    assert first_step <= 200


def test_fewer_of_large_ones_are_sent_in_a_step(quiet: StillServer) -> None:
    messages = RetainedMessages(quiet.engine.broker.vhost("/"), 10_000)
    for number in range(100):
        _keep(messages, number, bytes(100_000))
    assert list(messages.find("#", 0.0)).index(None) <= 10


@for_each(
    "filters",
    [
        # One client with one subscription, and several with one each.
        [["#"]],
        [["#"]] * 5,
        # One client that asks for each by itself, with as many filters that match few.
        [[f"plant/{number}" for number in range(1000)]],
        [[f"plant/{number}/#" for number in range(1000)]],
    ],
)
def test_one_step_is_made_in_a_turn_of_the_loop(quiet: StillServer, filters: list[list[str]]) -> None:
    """Whoever wants them, and however many clients have a turn meanwhile: these wait for one step only."""
    publisher, pinger = quiet.connect(), quiet.connect()
    publisher.send(*[publish(f"plant/{number}", retain=True) for number in range(1000)])
    readers = [quiet.connect() for _ in filters]
    for reader, names in zip(readers, filters, strict=True):
        reader.wire.sendall(encode(Subscribe(1, tuple(subscription(name) for name in names)), 5))
    sent, most = [quiet.engine.messages_out()], 0
    while sent[-1] < sent[0] + 1000 * len(readers):
        pinger.wire.sendall(encode(Pingreq(), 5))
        assert quiet.host.turn()
        sent.append(quiet.engine.messages_out())
        most = max(most, sent[-1] - sent[-2])
    assert most <= 200


def _many(quiet: StillServer, count: int) -> RetainedMessages:
    messages = RetainedMessages(quiet.engine.broker.vhost("/"), 1_000_000)
    for number in range(count):
        _keep(messages, number)
    return messages


def _keep(messages: RetainedMessages, number: int, body: bytes = b"on") -> None:
    messages.keep(f"plant/{number}", body, Envelope(key=f"plant.{number}"), 0.0)


def _topics(found: Iterable[Retained | None]) -> list[str]:
    return [each.topic for each in found if each is not None]


def test_no_step_touches_all_topics(quiet: StillServer) -> None:
    """Not even to copy them, which takes milliseconds when there are very many."""
    count = 20_000
    messages = _many(quiet, count)
    found = messages.find("plant/#", 0.0)
    tracemalloc.start()
    try:
        for _ in range(100):
            next(found)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * count, "a list of all would take eight bytes for each"
    assert len(_topics(found)) >= count - 100


def test_retained_messages_change_while_they_are_read(quiet: StillServer) -> None:
    """Each is found once at the most; what changes meanwhile may come as a message instead."""
    messages = _many(quiet, 6000)
    found, got = messages.find("#", 0.0), []
    for number in range(0, 6000, 2):
        got += _topics([next(found)])
        # Everything that is not read yet has another message, is gone, or both.
        _keep(messages, 5999 - number, b"" if number % 3 else b"off")
        _keep(messages, 6000 + number)
    got += _topics(found)
    assert len(got) == len(set(got))
    unchanged = {f"plant/{number}" for number in range(0, 6000, 2)}
    assert unchanged <= set(got) <= {f"plant/{number}" for number in range(6000)}


def test_what_is_found_is_what_is_retained_whatever_has_changed(quiet: StillServer) -> None:
    messages, there, random = _many(quiet, 3000), set(range(3000)), Random(1)
    for share in (0.9, 0.1, 0.5):
        for _ in range(6000):
            number = random.randrange(4000)
            body = b"off" if random.random() < share else b""
            _keep(messages, number, body)
            (there.add if body else there.discard)(number)
        assert sorted(_topics(messages.find("#", 0.0))) == sorted(f"plant/{number}" for number in there)
        assert len(messages) == len(there)
    for number in there:
        _keep(messages, number, b"")
    assert _topics(messages.find("#", 0.0)) == []
