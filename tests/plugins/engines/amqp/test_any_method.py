"""Random legal and illegal methods: every one is answered, refused or ignored, and nothing else ever escapes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.amqp.session import Session
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.options import User
from plugins.engines.broker.host.users import Users
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed, Event
from plugins.protocols.amqp091.frames import METHOD
from plugins.protocols.amqp091.methods import basic, channel, confirm, exchange, queue, tx
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp.fake_host import FakePort
from tests.plugins.engines.amqp.lone_client import LoneClient
from tests.plugins.engines.amqp.raw_client import frame
from tests.seeds import examples

_FLAG = st.sampled_from([False, False, False, True])
_QUEUE = st.sampled_from([*"aaabbbccc", "", "none", "amq.x", "amq.rabbitmq.reply-to", "é" * 100])
_EXCHANGE = st.sampled_from([*["", "x", "y", "amq.topic", "amq.headers"] * 3, "none", "amq.nope"])
_KEY = st.sampled_from(["", "a", "b", "k", "#", "a.*"])
_TAG = st.sampled_from(["", "", "", "t", "u"])
_NUMBER = st.integers(0, 12)
_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from(["", "x", "all", "any-with-x", "drop-head", "reject-publish", "zz"]),
    st.binary(max_size=2),
    st.floats(allow_nan=False),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from(["a"]), st.integers(0, 2), max_size=1),
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(
        [
            "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-max-priority",
            "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-single-active-consumer", "x-queue-type",
            "x-match", "x-priority", "alternate-exchange", "a",
        ]
    ),
    _VALUE,
    max_size=1,
)  # fmt: skip
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "queue": _QUEUE, "exchange": _EXCHANGE, "source": _EXCHANGE, "destination": _EXCHANGE, "routing_key": _KEY,
    "consumer_tag": _TAG, "delivery_tag": _NUMBER, "prefetch_count": st.integers(0, 3), "arguments": _ARGUMENTS,
    "requeue": st.sampled_from([True, True, False]), "active": st.sampled_from([True, True, False]),
    "prefetch_size": st.sampled_from([0, 0, 0, 1]), "ticket": st.just(0),
    "type": st.sampled_from(["direct", "fanout", "topic", "headers", "zz"]),
}  # fmt: skip
_METHODS: list[type[Method]] = [
    exchange.Declare, exchange.Delete, exchange.Bind, exchange.Unbind, queue.Declare, queue.Bind, queue.Unbind,
    queue.Purge, queue.Delete, basic.Qos, basic.Consume, basic.Cancel, basic.Get, basic.Ack, basic.Nack, basic.Reject,
    basic.Recover, basic.RecoverAsync, confirm.Select, tx.Select, tx.Commit, tx.Rollback, channel.Flow,
]  # fmt: skip
_HEADERS = st.dictionaries(st.sampled_from(["CC", "BCC", "x-death", "a", "x-a"]), _VALUE, max_size=2)


def _method(kind: Any) -> st.SearchStrategy[Method]:
    return st.builds(kind, **{name: _FIELDS.get(name, _FLAG) for name in kind.__struct_fields__})


_PUBLISH = st.fixed_dictionaries(
    {"exchange": _EXCHANGE, "key": _KEY},
    optional={
        "headers": _HEADERS,
        "reply_to": st.sampled_from(["amq.rabbitmq.reply-to", "r", "r", "r"]),
        "expiration": st.integers(0, 2000),
        "priority": st.integers(0, 255),
        "persistent": _FLAG,
    },
)
_LIKELY = [basic.Consume, basic.Consume, basic.Get, basic.Ack, basic.Nack, basic.Qos]
_STEP = st.one_of(
    st.sampled_from(_METHODS).flatmap(_method),
    st.sampled_from(_LIKELY).flatmap(_method),
    _PUBLISH,
    st.just("time"),
    st.just("reopen"),
)


class _Nobody:
    def on_output(self) -> None: ...

    def on_writable(self) -> None: ...

    def on_confirmed(self, position: int) -> None: ...


class Conversation:
    """A client and the server's session, face to face in memory, the clock in hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.broker = Broker()
        feed = Feed(self.broker.vhost("/"), "")
        feed.open(FakePort("feed", _Nobody()))
        self.server = ServerConnection(ServerOptions(heartbeat=0), 0.0)
        users = Users({"guest": User(password="guest")})
        self.own = LoneClient()
        self.session = Session(self.server, self.own, self.broker, users, feed, loopback=True)
        self.client = ClientConnection(ClientOptions(heartbeat=0), 0.0)
        self.channel = 0
        self.turn()
        self.open()
        for name in ("a", "b"):
            self.do(queue.Declare(queue=name))
            self.do(exchange.Declare(exchange={"a": "x", "b": "y"}[name], type="fanout"))
            self.do(queue.Bind(queue=name, exchange="amq.topic", routing_key="#"))
        dying = {"x-message-ttl": 700, "x-dead-letter-exchange": "amq.topic", "x-max-length": 3}
        self.do(queue.Declare(queue="c", arguments=dying))
        self.do(queue.Bind(queue="c", exchange="amq.topic", routing_key="#"))

    def open(self) -> None:
        self.channel += 1
        self.client.open_channel(self.channel)
        self.turn()

    def send(self, octets: bytes = b"") -> None:
        waiting = b"".join(map(bytes, self.client.data_to_send()))
        self.session.handle(self.server.receive_data(waiting + octets, self.now), self.now)

    def turn(self) -> list[Event]:
        """Let both sides say all they have to say."""
        events: list[Event] = []
        for _ in range(8):
            self.send()
            self.broker.process(self.now)
            self.session.finish(0.0)
            self.own.refill(self.now)
            events += self.client.receive_data(b"".join(map(bytes, self.server.data_to_send())), self.now)
        return events

    def do(self, step: Any) -> None:
        if step == "time":
            self.now += 0.5
            self.broker.handle_timeout(self.now)
        elif isinstance(step, Method):
            self.send(frame(METHOD, self.channel, step.encode()))
        elif step != "reopen":
            self.publish(step)
        events = self.turn()
        if any(isinstance(event, ConnectionClosed) for event in events):
            return
        if step == "reopen" or any(isinstance(event, ChannelClosed) for event in events):
            self.open()

    def publish(self, fields: dict[str, Any]) -> None:
        headers = fields.get("headers")
        properties = {"headers": headers} if headers else {}
        envelope = Envelope(
            **{name: value for name, value in fields.items() if name != "headers"}, properties=properties
        )
        self.client.publish(self.channel, batch_of([b"1", b"22"], envelope), mandatory=True)

    @property
    def over(self) -> bool:
        return self.session.ended


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_STEP, max_size=25))
def test_nothing_escapes(steps: list[Any]) -> None:
    conversation = Conversation()
    for step in steps:
        conversation.do(step)
        if conversation.over:
            break
    broker = conversation.broker
    for owned in broker.vhost("/").queues.values():
        assert owned.backlog.count >= 0
        assert owned.outstanding >= 0
        assert owned.backlog.count == sum(len(span) for level in owned.backlog.levels for span in level)
        assert owned.backlog.size == sum(span.size() for level in owned.backlog.levels for span in level)
    conversation.session.end(conversation.now)
    broker.process(conversation.now)
    assert all(left.outstanding == 0 and not left.exclusive for left in broker.vhost("/").queues.values())
