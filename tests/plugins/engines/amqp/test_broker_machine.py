"""Random programs of several connections against the model: each answer, refusal, delivery and confirm as it says.

Sessions in memory, without sockets.  Every step is one method on one channel; after it everybody has said all
that there is to say, and what came to each client is compared with what the model says must have come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.amqp.session import Session
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.options import User
from plugins.engines.broker.host.users import Users
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import (
    Acknowledged,
    ChannelClosed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionOpened,
    Delivered,
    Event,
    Got,
    MethodReceived,
    Returned,
)
from plugins.protocols.amqp091.frames import METHOD
from plugins.protocols.amqp091.methods import basic, channel, confirm, exchange, queue, tx
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions
from tests.plugins.engines.amqp.broker_model import BrokerModel, Channel, Connection, Queue, Refused
from tests.plugins.engines.amqp.fake_host import FakePort
from tests.plugins.engines.amqp.lone_client import LoneClient
from tests.plugins.engines.amqp.raw_client import frame
from tests.seeds import examples

CONNECTIONS, CHANNELS = 2, 2
QUEUES = st.sampled_from(["a", "b", "c"])
EXCHANGES = st.sampled_from(["x", "y", "amq.topic"])
KEYS = st.sampled_from(["a", "a", "b", "b", "c", "a.b", "#", "a.*"])
TAGS = st.sampled_from(["a", "b", "s", "t"])
WHO = st.tuples(st.integers(0, CONNECTIONS - 1), st.integers(1, CHANNELS))
SELDOM = st.sampled_from([False, False, False, True])
MOSTLY = st.sampled_from([True, True, True, True, True, True, True, False])


STEPS: dict[str, list[st.SearchStrategy[tuple[str, dict[str, Any]]]]] = {}
"""What a step may be, by sort: method of the machine, and its arguments."""


def step(sort: str, *, weight: int = 1, **arguments: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Make a method one of the steps of a sort."""

    def register(method: Any) -> Any:
        what = st.tuples(st.just(method.__name__), st.fixed_dictionaries(arguments))
        STEPS.setdefault(sort, []).extend([what] * weight)
        return method

    return register


def of_sort(sort: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Draw a step, from among those registered by then."""
    return st.deferred(lambda: st.one_of(STEPS[sort]))


class Wire:
    """A client and its session, face to face in memory."""

    def __init__(self, broker: Broker, feed: Feed) -> None:
        self.server = ServerConnection(ServerOptions(heartbeat=0), 0.0)
        users = Users({"guest": User(password="guest")})
        self.own = LoneClient()
        self.session = Session(self.server, self.own, broker, users, feed, loopback=True)
        self.client = ClientConnection(ClientOptions(heartbeat=0), 0.0)

    def to_server(self, octets: bytes = b"") -> None:
        waiting = b"".join(map(bytes, self.client.data_to_send()))
        self.session.handle(self.server.receive_data(waiting + octets, 0.0), 0.0)

    def to_client(self) -> list[Event]:
        self.session.finish(0.0)
        self.own.refill(0.0)
        return self.client.receive_data(b"".join(map(bytes, self.server.data_to_send())), 0.0)


class BrokerMachine(RuleBasedStateMachine):
    """Two connections with two channels each, three queues, two exchanges and amq.topic."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.feed = Feed(self.broker.vhost("/"), "")
        self.feed.open(FakePort("feed", None))
        self.model = BrokerModel()
        self.number = 0
        self.wires: list[Wire] = []
        self.connections: list[Connection] = []
        for at in range(CONNECTIONS):
            self.wires.append(Wire(self.broker, self.feed))
            self.connections.append(Connection())
            self.connect(at)

    # Steps

    def connect(self, at: int) -> None:
        self.wires[at] = Wire(self.broker, self.feed)
        self.connections[at] = Connection()
        events = self.turn()
        assert [type(event) for event in events[at]] == [ConnectionOpened]

    def channel(self, who: tuple[int, int]) -> Channel:
        """Return the channel, open."""
        at, number = who
        connection = self.connections[at]
        if number not in connection.channels:
            self.wires[at].client.open_channel(number)
            events = self.turn()
            assert [type(event) for event in events[at]] == [ChannelOpened]
            connection.channels[number] = Channel(connection, number)
        return connection.channels[number]

    def turn(self) -> list[list[Event]]:
        """Let everybody say all there is to say; return what came to each client."""
        events: list[list[Event]] = [[] for _ in self.wires]
        for _ in range(4):
            for wire in self.wires:
                wire.to_server()
            self.broker.process(0.0)
            for at, wire in enumerate(self.wires):
                events[at] += wire.to_client()
        return events

    def ask(self, who: tuple[int, int], method: Method, expected: Callable[[Channel], Method | None]) -> None:
        """Send a method; the model says what is to come back: an answer, nothing, or a refusal."""
        here = self.channel(who)
        self.wires[who[0]].to_server(frame(METHOD, here.number, method.encode()))
        self.compare(who, expected, method)

    def compare(
        self, who: tuple[int, int], expected: Callable[[Channel], Any], method: Method | type[Method]
    ) -> None:
        here = self.connections[who[0]].channels[who[1]]
        try:
            answer = expected(here)
        except Refused as refused:
            self.check_refusal(who, here, refused, method)
            return
        events = self.turn()
        answers = [
            event
            for event in events[who[0]]
            if (isinstance(event, MethodReceived) and not isinstance(event.method, basic.Cancel))
            or isinstance(event, Got | ChannelClosed | ConnectionClosed)
        ]
        if isinstance(answer, Method):
            assert answers == [MethodReceived(here.number, answer)]
        elif answer is None:
            assert answers == []
        else:
            answer(answers)
        if isinstance(method, basic.Consume):
            kinds = [type(event) for event in events[who[0]]]
            assert Delivered not in kinds or kinds.index(MethodReceived) < kinds.index(Delivered)
        self.check_pushed(events)

    def check_refusal(
        self, who: tuple[int, int], here: Channel, refused: Refused, method: Method | type[Method]
    ) -> None:
        at = who[0]
        if refused.level == "channel":
            self.model.close_channel(here)
        else:
            self.model.close_connection(here.connection)
        events = self.turn()
        (closed,) = [event for event in events[at] if isinstance(event, ChannelClosed | ConnectionClosed)]
        assert isinstance(closed, ChannelClosed) == (refused.level == "channel")
        assert (closed.reply_code, closed.class_id, closed.method_id, closed.by_peer) == (
            refused.code, method.class_id, method.method_id, True,
        )  # fmt: skip
        if refused.level == "connection":
            assert events[at][-1] is closed
            assert self.wires[at].session.ended
        self.check_pushed(events)
        if refused.level == "connection":
            self.connect(at)

    @rule(what=of_sort("messages"))
    def move_messages(self, what: tuple[str, dict[str, Any]]) -> None:
        getattr(self, what[0])(**what[1])

    @precondition(lambda self: any(each.unacked for each in self.open_channels()))
    @rule(what=of_sort("verdicts"))
    def give_a_verdict(self, what: tuple[str, dict[str, Any]]) -> None:
        getattr(self, what[0])(**what[1])

    @rule(what=of_sort("others"))
    def do_something_else(self, what: tuple[str, dict[str, Any]]) -> None:
        getattr(self, what[0])(**what[1])

    def open_channels(self) -> list[Channel]:
        return [each for connection in self.connections for each in connection.channels.values()]

    # What comes without being asked for

    def check_pushed(self, events: list[list[Event]]) -> None:
        taken: dict[Queue, list[int]] = {}
        cancelled: list[tuple[int, int, str]] = []
        returned: list[int] = []
        for at, came in enumerate(events):
            for event in came:
                if isinstance(event, Delivered):
                    self.take_delivery(self.connections[at].channels[event.channel], event, taken)
                elif isinstance(event, Returned):
                    assert event.reply_code == 312
                    returned += [int(bytes(body)) for body in event.batch.bodies]
                elif isinstance(event, MethodReceived) and isinstance(event.method, basic.Cancel):
                    cancelled.append((at, event.channel, event.method.consumer_tag))
                elif isinstance(event, Acknowledged):
                    self.take_confirm(self.connections[at].channels[event.channel], event)
        for source, numbers in taken.items():
            left = sorted(source.ready)
            assert not left or max(numbers) < left[0], "what leaves is what stood in front"
        told = [
            (self.connections.index(gone.channel.connection), gone.channel.number, gone.tag)
            for gone in self.model.cancelled
            if gone.channel.connection in self.connections
            and gone.channel.connection.channels.get(gone.channel.number) is gone.channel
        ]
        assert sorted(cancelled) == sorted(told)
        assert returned == self.model.returned
        self.model.cancelled, self.model.returned = [], []

    def take_delivery(self, here: Channel, event: Delivered, taken: dict[Queue, list[int]]) -> None:
        consumer = here.consumers[event.consumer_tag]
        for offset, body in enumerate(event.batch.bodies):
            number = int(bytes(body))
            assert event.first_delivery_tag + offset == here.next_tag
            assert number in consumer.queue.ready
            assert event.redelivered == (number in consumer.queue.redelivered)
            assert consumer.has_room(), "more than the prefetch allows"
            self.model.hand_out(consumer.queue, number, here, consumer, auto_ack=consumer.auto_ack)
            taken.setdefault(consumer.queue, []).append(number)

    def take_confirm(self, here: Channel, event: Acknowledged) -> None:
        assert here.mode == "confirm"
        assert event.last_delivery_tag > here.told
        if not event.multiple:
            assert event.first_delivery_tag == here.told + 1
        here.told = event.last_delivery_tag

    @invariant()
    def nothing_waits_that_could_go(self) -> None:
        for each in self.model.queues.values():
            assert not each.ready or not any(consumer.has_room() for consumer in each.consumers), each.name

    @invariant()
    def every_confirm_is_told(self) -> None:
        for connection in self.connections:
            for here in connection.channels.values():
                assert here.told == here.published

    @invariant()
    def the_broker_has_what_the_model_has(self) -> None:
        vhost = self.broker.vhost("/")
        assert {name: each.backlog.count for name, each in vhost.queues.items()} == {
            name: len(each.ready) for name, each in self.model.queues.items()
        }
        bound = {name: len(vhost.exchanges[name].bindings) for name in self.model.exchanges}
        assert bound == {name: len(each.bindings) for name, each in self.model.exchanges.items()}

    # Queues and exchanges

    @initialize()
    def begin_with_something(self) -> None:
        """So that programs need not find out first how to have anything at all."""
        for name in ("a", "b"):
            self.declare((0, 1), name, exclusive=False, auto_delete=False, passive=False)
            self.consume((1, 1), name, tag=name, auto_ack=False, exclusive=False)
            self.qos((1, 1), 2)
        self.declare_exchange((0, 1), "x", "fanout", wrong=False)
        self.bind((0, 1), "a", "x", "a", away=False)

    @step("others", weight=6, who=WHO, name=QUEUES, exclusive=SELDOM, auto_delete=SELDOM, passive=SELDOM)
    def declare(
        self, who: tuple[int, int], name: str, exclusive: bool, auto_delete: bool, passive: bool
    ) -> None:
        def expected(here: Channel) -> Method:
            if passive:
                found = self.model.find(name, here.connection)
            else:
                found = self.model.declare(
                    name, here.connection, exclusive=exclusive, auto_delete=auto_delete
                )
            return queue.DeclareOk(
                queue=name, message_count=len(found.ready), consumer_count=len(found.consumers)
            )

        method = queue.Declare(queue=name, exclusive=exclusive, auto_delete=auto_delete, passive=passive)
        self.ask(who, method, expected)

    @step("others", who=WHO, name=QUEUES, if_unused=SELDOM, if_empty=SELDOM)
    def delete(self, who: tuple[int, int], name: str, if_unused: bool, if_empty: bool) -> None:
        def expected(here: Channel) -> Method:
            count = self.model.delete(name, here.connection, if_unused=if_unused, if_empty=if_empty)
            return queue.DeleteOk(message_count=count)

        self.ask(who, queue.Delete(queue=name, if_unused=if_unused, if_empty=if_empty), expected)

    @step("others", who=WHO, name=QUEUES)
    def purge(self, who: tuple[int, int], name: str) -> None:
        method = queue.Purge(queue=name)
        self.ask(
            who, method, lambda here: queue.PurgeOk(message_count=self.model.purge(name, here.connection))
        )

    @step(
        "others", who=WHO, name=EXCHANGES, kind=st.sampled_from(["direct", "fanout", "topic"]), wrong=SELDOM
    )
    def declare_exchange(self, who: tuple[int, int], name: str, kind: str, wrong: bool) -> None:
        if name.startswith("amq."):
            return
        kind = "zz" if wrong and self.number % 5 == 0 else kind

        def expected(here: Channel) -> Method:
            self.model.declare_exchange(name, kind)
            return exchange.DeclareOk()

        self.ask(who, exchange.Declare(exchange=name, type=kind), expected)

    @step("others", who=WHO, name=EXCHANGES, if_unused=SELDOM)
    def delete_exchange(self, who: tuple[int, int], name: str, if_unused: bool) -> None:
        def expected(here: Channel) -> Method:
            self.model.delete_exchange(name, if_unused=if_unused)
            return exchange.DeleteOk()

        self.ask(who, exchange.Delete(exchange=name, if_unused=if_unused), expected)

    @step("others", weight=4, who=WHO, name=QUEUES, source=EXCHANGES, key=KEYS, away=SELDOM)
    def bind(self, who: tuple[int, int], name: str, source: str, key: str, away: bool) -> None:
        def expected(here: Channel) -> Method:
            if away:
                self.model.unbind(name, source, key, here.connection)
                return queue.UnbindOk()
            self.model.bind(name, source, key, here.connection)
            return queue.BindOk()

        kind: Any = queue.Unbind if away else queue.Bind
        self.ask(who, kind(queue=name, exchange=source, routing_key=key), expected)

    # Messages

    @step(
        "messages",
        weight=4,
        who=WHO,
        to=st.sampled_from(["", "", "", "", "x", "amq.topic", "y"]),
        key=KEYS,
        count=st.integers(1, 4),
        mandatory=SELDOM,
    )
    def publish(self, who: tuple[int, int], to: str, key: str, count: int, mandatory: bool) -> None:
        here = self.channel(who)
        numbers = list(range(self.number, self.number + count))
        self.number += count
        batch = batch_of([b"%d" % number for number in numbers], Envelope(exchange=to, key=key))
        self.wires[who[0]].client.publish(here.number, batch, mandatory=mandatory)

        def expected(here: Channel) -> None:
            for number in numbers:
                self.model.publish(here, number, to, key, mandatory=mandatory)

        self.compare(who, expected, basic.Publish)

    @step("messages", who=WHO, name=QUEUES, tag=TAGS, auto_ack=SELDOM, exclusive=SELDOM)
    def consume(self, who: tuple[int, int], name: str, tag: str, auto_ack: bool, exclusive: bool) -> None:
        def expected(here: Channel) -> Method:
            self.model.consume(here, name, tag, auto_ack=auto_ack, exclusive=exclusive)
            return basic.ConsumeOk(consumer_tag=tag)

        self.ask(
            who, basic.Consume(queue=name, consumer_tag=tag, no_ack=auto_ack, exclusive=exclusive), expected
        )

    @step("messages", who=WHO, tag=TAGS)
    def cancel(self, who: tuple[int, int], tag: str) -> None:
        def expected(here: Channel) -> Method:
            self.model.cancel(here, tag)
            return basic.CancelOk(consumer_tag=tag)

        self.ask(who, basic.Cancel(consumer_tag=tag), expected)

    @step("messages", who=WHO, name=QUEUES, auto_ack=SELDOM)
    def get(self, who: tuple[int, int], name: str, auto_ack: bool) -> None:
        def expected(here: Channel) -> Any:
            tag = here.next_tag
            got = self.model.get(here, name, auto_ack=auto_ack)
            if got is None:
                return basic.GetEmpty()
            number, redelivered, left = got

            def check(answers: list[Any]) -> None:
                (answer,) = answers
                assert isinstance(answer, Got)
                assert [bytes(body) for body in answer.batch.bodies] == [b"%d" % number]
                assert (answer.delivery_tag, answer.redelivered, answer.message_count) == (
                    tag, redelivered, left,
                )  # fmt: skip

            return check

        self.ask(who, basic.Get(queue=name, no_ack=auto_ack), expected)

    @step("messages", who=WHO, count=st.integers(0, 3))
    def qos(self, who: tuple[int, int], count: int) -> None:
        def expected(here: Channel) -> Method:
            here.prefetch = count
            return basic.QosOk()

        self.ask(who, basic.Qos(prefetch_count=count), expected)

    @step(
        "verdicts",
        which=st.integers(0, 3),
        tag=st.integers(0, 40),
        verdict=st.sampled_from(["accept", "requeue", "drop"]),
        multiple=SELDOM,
        reject=st.booleans(),
    )
    def acknowledge(self, which: int, tag: int, verdict: str, multiple: bool, reject: bool) -> None:
        """``tag`` 0 and 40 are taken as they are, any other stands for one that is outstanding."""
        holding = [each for each in self.open_channels() if each.unacked]
        here = holding[which % len(holding)]
        tags = sorted(here.unacked)
        tag = tag if tag in (0, 40) else tags[tag % len(tags)]
        if verdict == "accept":
            method: Method = basic.Ack(delivery_tag=tag, multiple=multiple)
        elif reject and not multiple:
            method = basic.Reject(delivery_tag=tag, requeue=verdict == "requeue")
        else:
            method = basic.Nack(delivery_tag=tag, multiple=multiple, requeue=verdict == "requeue")
        who = self.connections.index(here.connection), here.number
        self.ask(who, method, lambda here: self.model.acknowledge(here, tag, verdict, multiple=multiple))

    @step("others", weight=3, who=WHO, requeue=MOSTLY)
    def recover(self, who: tuple[int, int], requeue: bool) -> None:
        def expected(here: Channel) -> Method:
            self.model.recover(here, requeue=requeue)
            return basic.RecoverOk()

        self.ask(who, basic.Recover(requeue=requeue), expected)

    # Modes

    @step("others", weight=3, who=WHO, mode=st.sampled_from(["confirm", "tx", "tx"]))
    def select(self, who: tuple[int, int], mode: str) -> None:
        def expected(here: Channel) -> Method:
            self.model.select(here, mode)
            return confirm.SelectOk() if mode == "confirm" else tx.SelectOk()

        self.ask(who, confirm.Select() if mode == "confirm" else tx.Select(), expected)

    @step("others", weight=6, who=WHO, back=SELDOM, wrong=SELDOM)
    def commit(self, who: tuple[int, int], back: bool, wrong: bool) -> None:
        def expected(here: Channel) -> Method:
            if back:
                self.model.roll_back(here)
                return tx.RollbackOk()
            self.model.commit(here)
            return tx.CommitOk()

        ready = [here for here in self.open_channels() if here.mode == "tx"]
        if ready and not wrong:
            who = self.connections.index(ready[0].connection), ready[0].number
        elif not wrong:
            return
        self.ask(who, tx.Rollback() if back else tx.Commit(), expected)

    # Ends

    @step("others", who=WHO)
    def open_twice(self, who: tuple[int, int]) -> None:
        def expected(here: Channel) -> None:
            raise Refused("connection", 504)

        self.ask(who, channel.Open(), expected)

    @step("others", who=WHO)
    def close_channel(self, who: tuple[int, int]) -> None:
        here = self.channel(who)
        self.wires[who[0]].client.close_channel(here.number, 200, "bye")
        self.model.close_channel(here)
        events = self.turn()
        assert ChannelClosed in [type(event) for event in events[who[0]]]
        self.check_pushed(events)

    @step("others", at=st.integers(0, CONNECTIONS - 1), kindly=st.booleans())
    def close_connection(self, at: int, kindly: bool) -> None:
        wire = self.wires[at]
        self.model.close_connection(self.connections[at])
        if kindly:
            wire.client.close(200, "bye")
            self.turn_of_the_others(at)
            assert wire.server.closed()
        else:
            wire.session.handle(wire.server.receive_eof(0.0), 0.0)
            self.turn_of_the_others(at)
        assert wire.session.ended
        self.connect(at)

    def turn_of_the_others(self, at: int) -> None:
        events = self.turn()
        events[at] = []
        self.check_pushed(events)


BrokerMachine.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=60, deadline=None)
TestBrokerMachine = BrokerMachine.TestCase


@pytest.mark.slow
def test_longer_programs() -> None:
    run_state_machine_as_test(
        BrokerMachine, settings=settings(max_examples=examples(120), stateful_step_count=80, deadline=None)
    )
