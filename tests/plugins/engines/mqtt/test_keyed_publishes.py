"""Messages with topics of their own stay together on their way, and nobody sees a difference.

Brokers get the same packets: one of them reads them together, one does not, and one gets each in a write of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.mqtt import subscriptions
from plugins.engines.mqtt.front_end import MqttFrontEnd
from plugins.engines.mqtt.incoming import Incoming
from plugins.protocols.mqtt import publish_reader
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packets import Publish
from plugins.protocols.mqtt.parser import Parser
from plugins.protocols.mqtt.topics import topic_to_key
from tests.plugins.engines.broker.client import Client
from tests.plugins.engines.mqtt.raw_client import RawClient, all_that_came, publish, subscription
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.seeds import examples

Still = Callable[..., StillServer]

CLIENTS: dict[str, tuple[int, dict[str, Any], list[Any]]] = {
    "four": (4, {}, ["#"]),
    "five": (5, {}, ["#"]),
    "some": (5, {}, ["a/#", "+/1"]),
    "one": (4, {}, ["a/1"]),
    "aliases": (5, {"topic_alias_maximum": 3}, ["#"]),
    "small": (5, {"maximum_packet_size": 40}, ["#"]),
    "published": (5, {}, [subscription("a/+", retain_as_published=True)]),
    "numbered": (5, {}, [7, "#"]),
    "hidden": (4, {}, ["$own/#", "$SYS/nothing/#"]),
    "kept": (5, {"clean_start": False, "session_expiry_interval": 60}, [1, "+/+"]),
    "sharing": (5, {}, ["$share/g/a/#"]),
}
"""Version, CONNECT, and filters; of ``numbered`` with an identifier, of ``kept`` with QoS 1."""
FEW = ["four", "five"]
"""All topics have the same subscribers, so that one encoding is for all of them."""


class Broker:
    """A broker with its clients, and a publisher."""

    def __init__(self, server: StillServer, names: list[str], version: int, **connect: Any) -> None:
        self.server = server
        self.clients: dict[str, RawClient] = {}
        for name in names:
            asked, options, filters = CLIENTS[name]
            client = self.clients[name] = server.connect(asked, client_id=name, **options)
            numbers = [each for each in filters if isinstance(each, int)]
            client.subscribe(
                *[each for each in filters if not isinstance(each, int)],
                qos=1 if name == "kept" else 0,
                identifier=sum(numbers) if name == "numbered" else 0,
            )
        queue = server.vhost.declare_queue("q", None, 0.0)
        server.vhost.bind("amq.topic", queue, "a.#")
        self.publisher = server.connect(version, client_id="publisher", **connect)

    def came(self) -> dict[str, list[Any]]:
        """What each client has got, in its order."""
        return {
            name: _came(client) for name, client in [*self.clients.items(), ("publisher", self.publisher)]
        }

    def counted(self) -> list[Any]:
        """What is counted and kept."""
        vhost = self.server.vhost
        clients = [
            each.client
            for each in (self.server.session(name) for name in [*self.clients, "publisher"])
            if each
        ]
        front_end = self.server.engine.front_ends[0]
        assert isinstance(front_end, MqttFrontEnd)
        return [
            vhost.messages_in,
            vhost.messages_unrouted,
            vhost.messages_undeliverable,
            sum(each.dropped for each in front_end.sessions.live_subscriptions()),
            [(each.messages_in, each.messages_out) for each in clients if each],
            [
                (queue.name, queue.messages_in, queue.messages_out, queue.backlog.count, queue.backlog.size)
                for queue in vhost.queues.values()
            ],
            [
                (span.envelope.key, span.envelope.properties, bytes(body))
                for span in vhost.queues["q"].backlog.levels[0]
                for body in span.as_batch().bodies
            ],
        ]


def _came(client: RawClient) -> list[Any]:
    """What has come, and whether the connection is over then."""
    client.wire.settimeout(0)
    found: list[Any] = []
    try:
        while True:
            found.append(client.next())
    except BlockingIOError:
        return found
    except AssertionError as closed:
        return [*found, str(closed)]


@contextmanager
def one_by_one() -> Iterator[None]:
    """Connections that begin here read each topic by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "accept_keyed", lambda self: None)
        yield


@contextmanager
def eagerly() -> Iterator[None]:
    """Whatever differs in its topics is read together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_reader, "_LEFT_ALONE", 0)
        patch.setattr(publish_reader, "_FEWEST", 2)
        yield


def three(
    still: Still,
    names: list[str],
    version: int,
    listener: dict[str, Any],
    connect: dict[str, Any],
    **options: Any,
) -> list[Broker]:
    """Return one that reads them together, and two that do not."""
    together = Broker(still(listener, **options), names, version, **connect)
    with one_by_one():
        return [together, *[Broker(still(listener, **options), names, version, **connect) for _ in range(2)]]


def same(
    brokers: list[Broker], turns: list[list[Publish]], *, in_own_writes: bool = True
) -> dict[str, list[Any]]:
    """Publish, and compare what is got; return it.  ``in_own_writes``: also if each packet is a write."""
    together, apart, alone = brokers
    seen: dict[str, list[Any]] = {}
    with eagerly():
        for packets in turns:
            octets = [encode(packet, together.publisher.version) for packet in packets]
            for broker in (together, apart):
                broker.publisher.send_bytes(b"".join(octets))
            found = together.came()
            assert found == apart.came()
            assert together.counted() == apart.counted()
            if in_own_writes:
                for each in octets:
                    alone.publisher.send_bytes(each)
                assert found == alone.came()
                assert together.counted() == alone.counted()
            for name, came in found.items():
                seen.setdefault(name, []).extend(came)
    return seen


def feed(*topics: str, times: int = 5, size: int = 3, **more: Any) -> list[Publish]:
    """Messages to these topics in turn."""
    return [
        publish(topic, bytes((at, number)) * size, **more)
        for at in range(times)
        for number, topic in enumerate(topics)
    ]


TOPICS = ["a/1", "a/2", "b/1", "c", "a.b/c", "é/1", "$own/1", "$SYS/nothing/1"]
MESSAGES = some.lists(
    some.builds(
        publish,
        some.sampled_from(TOPICS),
        some.sampled_from([b"", b"abc", b"abc", b"xyz", b"xyz", b"x" * 50]),
        some.sampled_from([0] * 12 + [1]),
        some.integers(1, 9),
        retain=some.sampled_from([False] * 9 + [True]),
    )
    | some.builds(
        lambda topics, size: feed(*topics, size=size),
        some.lists(some.sampled_from(TOPICS), min_size=1),
        some.integers(1, 9),
    ),
    max_size=12,
).map(lambda parts: [each for part in parts for each in (part if isinstance(part, list) else [part])])


@settings(max_examples=examples(60), deadline=None)
@given(
    some.lists(some.sampled_from([*CLIENTS]), unique=True, max_size=5),
    some.sampled_from([4, 5]),
    some.lists(MESSAGES, max_size=3),
)
def test_nobody_sees_a_difference(names: list[str], version: int, turns: list[list[Publish]]) -> None:
    servers: list[StillServer] = []

    def still(listener: dict[str, Any], **options: Any) -> StillServer:
        servers.append(StillServer(listener, options))
        return servers[-1]

    try:
        same(three(still, names, version, {}, {}), turns)
    finally:
        for server in servers:
            server.close()


@pytest.mark.parametrize("name", [*CLIENTS])
def test_each_kind_of_subscriber_gets_what_it_gets_one_by_one(still: Still, name: str, version: int) -> None:
    turns = [
        feed("a/1", "a/2", "b/1", "c/1"),
        feed("a/1", "a/2"),
        [*feed("a/1", "b/1", "$own/1", "a/3"), *feed("a/1", "b/2", size=40)],
        [*feed("a/1", "a/2"), *feed("a/1", "a/2", retain=True), *feed("b/1", "a/1")],
    ]
    seen = same(three(still, [*dict.fromkeys([name, *FEW])], version, {}, {}), turns)
    assert bool(seen[name]) == (name != "hidden")
    assert len(seen["four"]) == sum(packet.head.topic[0] != "$" for packets in turns for packet in packets)


def test_the_publisher_may_be_among_them(still: Still) -> None:
    """With *no local* as well."""
    for options in ({}, {"no_local": True}):
        brokers = three(still, FEW, 5, {}, {})
        for broker in brokers:
            broker.publisher.subscribe(subscription("a/#", **options))
        seen = same(brokers, [feed("a/1", "b/1"), feed("a/1", "a/2")])
        assert len(seen["publisher"]) == (0 if options else 15)
        assert len(seen["five"]) == 20


def test_a_slow_client_loses_the_same_messages(still: Still) -> None:
    """Those beside it get everything, and one message more may be sent than its limit says."""
    for limit in (0, 1, 13, 14, 15, 99, 100, 101, 1 << 20):
        brokers = three(still, FEW, 4, {"max_unwritten_bytes": limit}, {})
        turns = [
            feed("a/1", "a/2"),
            feed("a/1", "b/1", size=5),
            [*feed("a/1", "a/2"), *feed("a/1", "b/1", size=9)],
        ]
        same(brokers, turns, in_own_writes=False)


def test_what_a_user_may_not_publish_ends_the_connection_there(still: Still, version: int) -> None:
    users = {
        "guest": {"password": "guest"},
        "limited": {"password": "limited", "topics": {"amq.topic": {"write": r"^a\."}}},
    }
    user = {"user_name": "limited", "password": b"limited"}
    brokers = three(still, ["four"], version, {}, user, users=users)
    seen = same(
        brokers, [feed("a/1", "a/2"), [*feed("a/1", "a/2"), *feed("a/3", "b/1", "a/4")]], in_own_writes=False
    )
    assert [message.topic for message in seen["four"]] == [*["a/1", "a/2"] * 10, "a/3"]


def test_what_is_retained_is_the_same(still: Still, version: int) -> None:
    brokers = three(still, ["four"], version, {}, {})
    same(brokers, [[*feed("a/1", "a/2"), *feed("a/1", "b/1", retain=True, times=1), *feed("a/1", "b/1")]])
    found = []
    for broker in brokers:
        later = broker.server.connect(5)
        later.subscribe("#")
        found.append(all_that_came(later))
    assert found[0] == found[1] == found[2]
    assert [message.topic for message in found[0]] == ["a/1", "b/1"]


def test_a_fault_in_the_middle_ends_the_connection_behind_what_came_before(
    quiet: StillServer, version: int
) -> None:
    reader, client = quiet.connect(4), quiet.connect(version)
    reader.subscribe("#")
    octets = b"".join([encode(packet, version) for packet in feed("a/1", "a/2")])
    client.send_bytes(octets + octets.replace(b"a/2", b"a/+"))
    assert len(all_that_came(reader)) == 11
    client.expect_end(0x81)


def test_a_session_without_a_connection_keeps_them(quiet: StillServer) -> None:
    options: dict[str, Any] = {"client_id": "c", "clean_start": False}
    client, publisher = quiet.connect(4, **options), quiet.connect(4)
    client.subscribe("#", qos=1)
    client.close()
    publisher.send(*feed("a/1", "a/2", "b/1"))
    client = quiet.connect(4, **options)
    assert [message.topic for message in all_that_came(client)] == ["a/1", "a/2", "b/1"] * 5


@pytest.mark.parametrize("names", [["four"], ["four", "five"], []])
def test_a_feed_is_published_and_encoded_together(
    still: Still, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is done for each message."""
    broker = Broker(still(), names, 4)
    # A queue takes them together as well, and divides them at the end of the turn.
    broker.server.vhost.delete_queue("q", None, 0.0)
    for where, what in ((subscriptions.LiveSubscriptions, "publish"), (Incoming, "_publish")):
        real = getattr(where, what)
        calls: list[object] = []

        def counting(*arguments: Any, real: Any = real, calls: list[object] = calls) -> Any:
            calls.append(arguments)
            return real(*arguments)

        monkeypatch.setattr(where, what, counting)
        broker.publisher.send(*[publish(f"a/{number:03}", b"x" * 20) for number in range(100)])
        # The first of each read is read by itself.
        assert len(calls) <= 1
    for client in broker.clients.values():
        assert len(all_that_came(client)) == 200


def test_subscriptions_may_change_between_them(still: Still, version: int) -> None:
    brokers = three(still, FEW, 4, {}, {})
    same(brokers, [feed("a/1", "a/2")])
    for change in ("subscribe", "unsubscribe"):
        later = [broker.server.connect(version, client_id="later") for broker in brokers]
        for broker, client in zip(brokers, later, strict=True):
            broker.clients["later"] = client
            client.subscribe("a/1" if change == "subscribe" else "a/+", "b/1")
        seen = same(brokers, [feed("a/1", "a/2")])
        assert len(seen["later"]) == (5 if change == "subscribe" else 10)
        for client in later:
            getattr(client, change)("a/+")
        seen = same(brokers, [feed("a/1", "a/2")])
        assert len(seen["later"]) == (10 if change == "subscribe" else 0)
        for broker in brokers:
            broker.clients.pop("later").disconnect()
        same(brokers, [feed("a/1", "a/2")])


@pytest.mark.parametrize("accepts", [True, False])
def test_consumers_of_other_protocols_get_them_together_if_they_accept_that(
    quiet: StillServer, version: int, accepts: bool
) -> None:
    vhost = quiet.vhost
    queue = vhost.declare_queue("q", None, 0.0)
    vhost.bind("amq.topic", queue, "#")
    consumer = Client(vhost)
    consumer.receiver.accepts_keyed = accepts
    consumer.consume(queue)
    publisher = quiet.connect(version)
    # Topics that AMQP cannot carry as keys are published one by one, and refused one by one.
    packets = [*feed("a.b/1", "a/2"), *feed("x" * 255, "y" * 255), *feed("x" * 256, "y" * 256)]
    publisher.send(*packets)
    batches = [span.as_batch() for _, _, span in consumer.receiver.take_deliveries()]
    assert max(len(batch.bodies) for batch in batches) >= (9 if accepts else 1)
    parts = [
        part for batch in batches for part in (batch.divided() if type(batch) is KeyedBatch else [batch])
    ]
    assert [(part.envelope.key, bytes(body)) for part in parts for body in part.bodies] == [
        (topic_to_key(packet.topic), bytes(packet.payloads[0])) for packet in packets
    ]
    assert all(len(key) <= 255 for batch in batches if type(batch) is KeyedBatch for key in batch.keys)
    # The envelopes are those of messages that are published one by one.
    by_key = {part.envelope.key: part.envelope for part in parts}
    publisher.send(publish("a.b/1"))
    ((_, _, span),) = consumer.receiver.take_deliveries()
    assert span.envelope is by_key["a/b.1"]


class _ByKey(dict[str, Envelope]):
    """The envelopes of messages that another client publishes."""

    def __init__(self, common: Envelope) -> None:
        super().__init__()
        self.common = common

    def __missing__(self, key: str) -> Envelope:
        envelope = self[key] = msgspec.structs.replace(self.common, key=key)
        return envelope


def _publish_under(server: StillServer, *keys: bytes, size: int = 1, **fields: Any) -> None:
    """Publish as a client of another protocol does."""
    common = Envelope(exchange="amq.topic", **fields)
    bodies = [b"x" * size] * len(keys)
    envelope_of = _ByKey(common).__getitem__
    batch = KeyedBatch(bodies, size * len(keys), common, keys=keys, envelope_of=envelope_of)
    assert server.vhost.publish_keyed(batch, server.host.now(), mandatory=False)
    server.engine.finish_turn(server.host.now())


def test_messages_of_other_protocols_reach_subscribers_together(quiet: StillServer) -> None:
    """Keys that are no topics are nobody's, and those that begin with a dollar sign are hidden."""
    reader = quiet.connect(4)
    reader.subscribe("#")
    _publish_under(quiet, b"a.1", b"b", b"a/b.c")
    _publish_under(quiet, b"a.1", b"a.*", b"", b"\xff", b"b")
    _publish_under(quiet, b"b", b"b\0b", b"b")
    _publish_under(quiet, b"a.1", b"$SYS.x", b"b")
    topics = [message.topic for message in all_that_came(reader)]
    assert topics == ["a/1", "b", "a.b/c", "a/1", "b", "b", "b", "a/1", "b"]
    assert quiet.vhost.messages_unrouted == 5


@pytest.mark.parametrize("size", [1, 20_000])
def test_messages_of_other_protocols_bring_their_properties(
    quiet: StillServer, version: int, size: int
) -> None:
    reader = quiet.connect(version)
    reader.subscribe("#")
    for fields, properties in (
        ({"properties": {"content_type": "text"}}, {"content_type": "text"}),
        ({"reply_to": "answers"}, {"response_topic": "answers"}),
        ({"expiration": 5000}, {"message_expiry_interval": 5}),
        ({"persistent": True}, {}),
    ):
        _publish_under(quiet, b"a.1", b"b", size=size, **fields)  # type: ignore[arg-type]
        for topic in ("a/1", "b"):
            reader.expect_message(topic, b"x" * size, **(properties if version == 5 else {}))
