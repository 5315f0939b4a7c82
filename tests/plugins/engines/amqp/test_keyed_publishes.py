"""Messages that differ in their keys stay together on their way, and nobody sees a difference.

Two sessions get the same octets.  To one of them the protocol reports such messages together, to the other one not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from kernel.contracts.message import Envelope, batch_of
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.engines.broker.host.options import TopicPatterns, User
from plugins.engines.broker.queue import Queue
from plugins.protocols.amqp091 import published_batches
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import ChannelClosed, Delivered, Event, Got, Returned
from plugins.protocols.amqp091.methods import basic, confirm, exchange, queue, tx
from plugins.protocols.amqp091.methods.method import Method
from tests.plugins.engines.amqp.test_any_method import Conversation
from tests.plugins.engines.broker.client import Client
from tests.seeds import examples

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {},
    "dying": {"x-message-ttl": 700},
    "short": {"x-max-length": 3},
    "buried": {"x-max-length": 2, "x-dead-letter-exchange": "x"},
    "strict": {"x-max-length": 4, "x-overflow": "reject-publish"},
    "first": {"x-max-priority": 3},
    "dead": {"x-dead-letter-exchange": "x"},
    "quorum": {"x-queue-type": "quorum"},
}
BINDINGS = [
    queue.Bind(queue="plain", exchange="feed", routing_key="a.*"),
    queue.Bind(queue="plain", exchange="feed", routing_key="a.1"),
    queue.Bind(queue="shared", exchange="feed", routing_key="#"),
    queue.Bind(queue="shared", exchange="amq.direct", routing_key="a.1"),
    queue.Bind(queue="dead", exchange="amq.direct", routing_key="a.1"),
    queue.Bind(queue="dead", exchange="amq.direct", routing_key="a.2"),
    queue.Bind(queue="buried", exchange="amq.direct", routing_key="a.1"),
    queue.Bind(queue="buried", exchange="amq.direct", routing_key="a.2"),
    queue.Bind(queue="plain", exchange="x"),
    queue.Bind(queue="shared", exchange="amq.headers", routing_key=""),
    exchange.Bind(destination="x", source="feed", routing_key="b.#"),
    queue.Bind(queue="plain", exchange="amq.fanout"),
    queue.Bind(queue="dead", exchange="amq.fanout"),
    queue.Bind(queue="shared", exchange="alternating", routing_key="a.1"),
]


def conversation(*, keyed: bool) -> Conversation:
    with pytest.MonkeyPatch.context() as patch:
        if not keyed:
            patch.setattr(ServerConnection, "accept_keyed", lambda self: None)
        made = Conversation()
    # An exchange of its own: where a queue has limits, every message is looked at.
    made.do(exchange.Declare(exchange="feed", type="topic"))
    for name, arguments in QUEUES.items():
        made.do(queue.Declare(queue=name, arguments=arguments, durable=name == "quorum"))
    made.do(exchange.Declare(exchange="alternating", type="direct", arguments={"alternate-exchange": "x"}))
    for binding in BINDINGS:
        made.do(binding)
    return made


FAMILIES: list[tuple[str, list[str]]] = [
    ("feed", ["a.1", "a.2", "a.3"]),
    ("feed", ["a.1", "c", "", "c.1"]),
    ("feed", ["a.1", "b.1", "b"]),
    ("amq.direct", ["a.1", "a.2"]),
    ("amq.direct", ["a.1", "a.2", "nowhere"]),
    ("", ["plain", "shared", "dead"]),
    ("", ["plain", "shared", "quorum"]),
    ("", [*QUEUES, "nowhere"]),
    ("", ["plain", "first"]),
    ("amq.fanout", ["a", "b", "c"]),
    ("alternating", ["a.1", "a.2"]),
    ("amq.headers", ["a", "b"]),
    ("none", ["a", "b"]),
]
PROPERTIES: list[dict[str, Any]] = [{}] * 6 + [{"headers": {"CC": ["a.2"]}}, {"headers": {"BCC": ["plain"]}}]


def publish_of(family: tuple[str, list[str]]) -> some.SearchStrategy[Any]:
    exchange_name, keys = family
    fields = some.fixed_dictionaries(
        {
            "exchange": some.just(exchange_name),
            "persistent": some.booleans(),
            "expiration": some.sampled_from([None, None, None, None, None, 300]),
            "priority": some.sampled_from([0, 0, 2]),
            "properties": some.sampled_from(PROPERTIES),
        }
    )
    keys_of = some.lists(some.sampled_from(keys), min_size=6, max_size=20)
    return some.tuples(fields, keys_of, some.sampled_from([1, 1, 1, 5000]), some.booleans())


PUBLISH = some.sampled_from(FAMILIES).flatmap(publish_of)
TAGS = some.integers(1, 15)
ANY_QUEUE = some.sampled_from([*QUEUES, "plain", "shared", "dead", "dead"])
STEP = some.one_of(
    PUBLISH,
    PUBLISH,
    PUBLISH,
    some.builds(basic.Consume, queue=some.sampled_from(["dead", "plain"]), consumer_tag=some.just("v")),
    some.builds(
        basic.Consume,
        queue=ANY_QUEUE,
        consumer_tag=some.sampled_from(["s", "t", "u"]),
        no_ack=some.booleans(),
    ),
    some.builds(basic.Cancel, consumer_tag=some.sampled_from(["s", "t", "u"])),
    some.builds(basic.Get, queue=ANY_QUEUE, no_ack=some.booleans()),
    some.builds(basic.Ack, delivery_tag=TAGS, multiple=some.booleans()),
    some.builds(basic.Nack, delivery_tag=TAGS, multiple=some.booleans(), requeue=some.booleans()),
    some.builds(basic.Recover, requeue=some.just(True)),
    some.builds(basic.Qos, prefetch_count=some.integers(0, 3)),
    some.builds(queue.Purge, queue=ANY_QUEUE),
    some.builds(queue.Delete, queue=ANY_QUEUE, if_empty=some.booleans()),
    some.just(confirm.Select()),
    some.sampled_from([tx.Select(), tx.Commit(), tx.Rollback()]),
    some.just("time"),
)


def do(one: Conversation, step: Any) -> None:
    """Send a step without processing it: several steps come in one chunk."""
    if isinstance(step, Method):
        one.client.send_method(one.channel, step)
        return
    fields, keys, size, mandatory = step
    for at, key in enumerate(keys):
        body = bytes((at, len(keys))) * size
        envelope = Envelope(key=key, **fields)
        one.client.publish(one.channel, batch_of([body], envelope), mandatory=mandatory)


def flat(events: list[Event]) -> list[Any]:
    """What the client has seen, one by one."""
    seen: list[Any] = []
    for event in events:
        if isinstance(event, Delivered | Got | Returned):
            batch = event.batch
            tag = getattr(event, "first_delivery_tag", getattr(event, "delivery_tag", 0))
            who = type(event), getattr(event, "consumer_tag", ""), getattr(event, "redelivered", False)
            what = batch.envelope.exchange, batch.envelope.key, dict(batch.envelope.properties)
            seen += [(*who, tag + at, *what, bytes(body)) for at, body in enumerate(batch.bodies)]
        else:
            seen.append(event)
    return seen


def spans(one: Conversation) -> list[Any]:
    return [
        span
        for owned in one.broker.vhost("/").queues.values()
        for level in owned.backlog.levels
        for span in level
    ]


def inside(one: Conversation) -> list[Any]:
    """What the queues have, one by one."""
    return [
        (
            owned.name,
            owned.messages_in,
            owned.messages_out,
            owned.outstanding,
            owned.backlog.count,
            owned.backlog.size,
        )
        for owned in one.broker.vhost("/").queues.values()
    ] + [
        (span.base + at, span.envelope.key, span.redelivered, bytes(span.batch.bodies[at]))
        for span in spans(one)
        for at in range(span.start, span.stop)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(some.lists(some.lists(STEP, min_size=1, max_size=4), max_size=12))
def test_nobody_sees_a_difference(turns: list[list[Any]]) -> None:
    both = conversation(keyed=True), conversation(keyed=False)
    with pytest.MonkeyPatch.context() as patch:
        # It looks for keys at each message.
        patch.setattr(published_batches, "_LEFT_ALONE", 0)
        # It delivers the first batch of a turn before a consumer that comes later in the same turn is there,
        # and messages that are together are one batch.
        patch.setattr(Queue, "_hand_over", lambda *_: False)
        compare(both, turns)


def compare(both: tuple[Conversation, Conversation], turns: list[list[Any]]) -> None:
    for steps in turns:
        for one in both:
            if "time" in steps:
                one.now += 0.5
                one.broker.handle_timeout(one.now)
            if one.client.channels.get(one.channel) is None:
                one.open()
            for step in steps:
                if step != "time":
                    do(one, step)
        seen, expected = [flat(one.turn()) for one in both]
        assert seen == expected
        assert inside(both[0]) == inside(both[1])
        assert not any(isinstance(span.batch, KeyedBatch) for span in spans(both[0]))
        if both[0].over:
            break


def to(exchange_name: str, *keys: str, mandatory: bool = False, **fields: Any) -> Any:
    """A step that publishes under these keys, ten times over."""
    return {"exchange": exchange_name, **fields}, [*keys] * 10, 1, mandatory


CONSUME = basic.Consume(queue="dead", consumer_tag="t")
CASES: dict[str, list[list[Any]]] = {
    "requeued": [
        [CONSUME, to("amq.direct", "a.1", "a.2")],
        [basic.Cancel(consumer_tag="t"), basic.Nack(delivery_tag=9, multiple=True)],
    ],
    "rejected": [
        [CONSUME, to("amq.direct", "a.1", "a.2")],
        [basic.Nack(delivery_tag=9, multiple=True, requeue=False)],
    ],
    "few at a time": [
        [basic.Qos(prefetch_count=3), CONSUME, to("", "dead", "plain")],
        [basic.Ack(delivery_tag=2)],
    ],
    "one by one, after one without a key": [
        [basic.Qos(prefetch_count=1), CONSUME, to("amq.fanout", "")],
        [basic.Ack(delivery_tag=1), queue.Purge(queue="dead"), to("amq.fanout", "a", "b")],
        [basic.Ack(delivery_tag=2)],
    ],
    "a quorum queue": [
        [basic.Consume(queue="quorum", consumer_tag="t"), to("", "plain", "quorum")],
        [basic.Cancel(consumer_tag="t"), basic.Nack(delivery_tag=9, multiple=True)],
        [basic.Consume(queue="quorum")],
    ],
    "priorities": [[to("", "plain", "first", priority=2), to("", "plain", "first")]],
    "expiring": [[to("", "plain", "shared", expiration=300)], ["time"], ["time"]],
    "a queue where they expire": [[to("", "plain", "dying")], ["time"], ["time"]],
    "dead letters of a limit": [[to("amq.direct", "a.1", "a.2")], [to("", "buried", "plain")]],
    "limits": [[to("", "plain", "short")], [confirm.Select(), to("", "plain", "strict")]],
    "the alternate exchange": [[to("alternating", "a.1", "a.2")]],
    "returned": [[to("", "plain", "nowhere", mandatory=True)], [to("", "nowhere", "none", mandatory=True)]],
    "a transaction": [[tx.Select(), to("", "plain", "shared")], [tx.Rollback()]],
    "copies": [[to("", "plain", "shared", properties={"headers": {"CC": ["dead"]}})]],
    "to exchanges": [[to("feed", "b.1", "b.2", "a.1")]],
    "persistent, confirmed": [[confirm.Select(), to("", "plain", "shared", persistent=True)]],
    "to nobody": [[confirm.Select(), to("amq.direct", "x", "y")]],
    "a purge in between": [
        [to("", "plain", "shared"), queue.Purge(queue="plain"), to("", "plain", "shared")]
    ],
    "taken at once": [[to("", "plain", "shared"), basic.Get(queue="plain"), basic.Get(queue="shared")]],
}


@pytest.mark.parametrize("case", [*CASES])
def test_nobody_sees_a_difference_here(case: str) -> None:
    compare((conversation(keyed=True), conversation(keyed=False)), CASES[case])


def publish(one: Conversation, exchange_name: str, keys: list[str], **fields: Any) -> list[Event]:
    do(one, ({"exchange": exchange_name, **fields}, keys, 5, False))
    return one.turn()


NEW_KEYS = [f"a.{number:03}" for number in range(100)]


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_feed_stays_together_until_it_is_delivered(no_ack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one = conversation(keyed=True)
    one.do(basic.Consume(queue="plain", no_ack=no_ack))
    sent: list[int] = []
    send = one.server.send_many_deliveries

    def looking(channel: int, deliveries: Iterable[Any]) -> Any:
        deliveries = list(deliveries)
        sent.extend(len(batch.bodies) for _, _, _, batch in deliveries)
        return send(channel, deliveries)

    monkeypatch.setattr(one.server, "send_many_deliveries", looking)
    events = publish(one, "feed", NEW_KEYS)
    assert sum(isinstance(event, Delivered) for event in events) == 100
    assert max(sent) >= 98


@pytest.mark.parametrize("prefetch", [0, 7])
def test_receivers_that_do_not_accept_them_get_batches(prefetch: int) -> None:
    """Those of other protocols write what they are delivered under one key for each batch."""
    one = conversation(keyed=True)
    vhost = one.broker.vhost("/")
    other = Client(vhost)
    other.consume(vhost.queues["plain"], prefetch=prefetch)
    publish(one, "feed", NEW_KEYS)
    seen: list[tuple[str, bytes]] = []
    tags: list[int] = []
    while deliveries := other.receiver.take_deliveries():
        for _, first_tag, span in deliveries:
            batch = span.as_batch()
            assert not isinstance(batch, KeyedBatch)
            seen += [(batch.envelope.key, bytes(body)) for body in batch.bodies]
            tags += range(first_tag, first_tag + len(span))
        other.receiver.acknowledge(0, tags[-1], multiple=True)
        one.broker.process(one.now)
    assert [key for key, _ in seen] == NEW_KEYS
    assert [body[0] for _, body in seen] == list(range(100))
    assert tags == list(range(1, 101))


def test_what_a_user_may_not_publish_is_refused_by_its_key() -> None:
    before = User(password="guest")
    after = User(password="guest", topics={"feed": TopicPatterns(write=r"^a\.0")})
    one = conversation(keyed=True)
    one.session.users.change({"guest": before}, {"guest": after})
    one.broker.forget_permissions()
    events = publish(one, "feed", [*NEW_KEYS[:40], "b.1", "a.099"])
    (closed,) = [event for event in events if isinstance(event, ChannelClosed)]
    assert "access to topic 'b.1'" in closed.reply_text
    queues = one.broker.vhost("/").queues
    for name in ("plain", "shared"):
        assert [span.envelope.key for span in queues[name].backlog.levels[0]] == NEW_KEYS[:40]
