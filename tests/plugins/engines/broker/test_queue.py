"""Queues: order, credit, limits, time, dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.errors import AccessRefused
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import Client, make_vhost, ready, run


@pytest.fixture
def vhost() -> VirtualHost:
    return make_vhost()


def declare(vhost: VirtualHost, name: str = "q", **arguments: Any) -> Queue:
    return vhost.declare_queue(
        name, None, 0.0, arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    )


def test_a_consumer_gets_the_shared_batch_itself(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue, auto_ack=True)
    sent = run(b"a", b"b")
    vhost.publish(sent, 0.0)
    vhost.process(0.0)
    (delivery,) = client.receiver.take_deliveries()
    assert delivery[2].as_batch() is sent


def test_one_batch_in_many_queues_is_one_batch(vhost: VirtualHost) -> None:
    queues = [declare(vhost, f"q{number}") for number in range(3)]
    for queue in queues:
        vhost.bind("amq.fanout", queue)
    sent = run(b"a", exchange="amq.fanout")
    assert vhost.publish(sent, 0.0) == 1
    assert {id(queue.backlog.levels[0][0].batch) for queue in queues} == {id(sent)}


def test_a_credit_that_consumers_share_goes_to_each_queue_in_turn(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.receiver.prefetch = 1
    queues = [declare(vhost, f"q{number}") for number in range(3)]
    for number, queue in enumerate(queues):
        client.consume(queue, f"c{number}")
        vhost.publish(run(*[b"x"] * 100, key=queue.name), 0.0)
    for _ in range(99):
        ((tag, _),) = client.received()
        client.receiver.acknowledge(tag, tag, multiple=False)
    assert [queue.backlog.count for queue in queues] == [67, 67, 67]


def test_a_credit_that_is_used_up_stops_a_consumer_that_does_not_acknowledge(vhost: VirtualHost) -> None:
    client = Client(vhost)
    client.receiver.prefetch = 1
    acknowledges, does_not = declare(vhost, "a"), declare(vhost, "b")
    client.consume(acknowledges, "a")
    client.consume(does_not, "b", auto_ack=True)
    vhost.publish(run(b"1", key="a"), 0.0)
    ((tag, _),) = client.received()
    vhost.publish(run(b"2", b"3", key="b"), 0.0)
    assert client.received() == []
    client.receiver.acknowledge(tag, tag, multiple=False)
    assert len(client.received()) == 2


def test_what_nobody_wants_is_told(vhost: VirtualHost) -> None:
    assert vhost.publish(run(b"x", key="nowhere"), 0.0) is None


def test_one_message_is_taken_out_of_the_middle(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    for batch in (run(b"0", b"1", b"2"), run(b"3"), run(b"4", b"5")):
        vhost.publish(batch, 0.0)
    taken = [queue.take_at(position) for position in (4, 1, 0)]
    assert [list(span.as_batch().bodies) for span in taken if span] == [[b"4"], [b"1"], [b"0"]]
    assert [queue.take_at(position) for position in (1, 6)] == [None, None]
    assert (queue.backlog.count, queue.backlog.size, queue.outstanding) == (3, 3, 3)
    client = Client(vhost)
    client.consume(queue, auto_ack=True)
    assert [body for _, body in client.received()] == [b"2", b"3", b"5"]


def test_prefetch_cuts_a_batch(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue, prefetch=3)
    vhost.publish(run(*b"abcdefg".hex(" ").encode().split()), 0.0)
    assert len(client.received()) == 3
    client.receiver.acknowledge(1, 2, multiple=True)
    assert [tag for tag, _ in client.received()] == [4, 5]
    assert (queue.backlog.count, queue.outstanding) == (2, 3)


def test_a_shared_prefetch_bounds_all_consumers_together(vhost: VirtualHost) -> None:
    first, second = declare(vhost, "a"), declare(vhost, "b")
    client = Client(vhost)
    client.receiver.prefetch = 3
    client.consume(first, "a")
    client.consume(second, "b")
    vhost.publish(run(b"1", b"2", key="a"), 0.0)
    vhost.publish(run(b"3", b"4", key="b"), 0.0)
    assert len(client.received()) == 3
    client.receiver.acknowledge(1, 1, multiple=False)
    assert client.bodies() == [b"4"]


def _at_work(vhost: VirtualHost, count: int) -> tuple[Queue, list[Client]]:
    """A queue with messages, and consumers of which each has the one message that it may have."""
    queue = declare(vhost)
    clients = [Client(vhost) for _ in range(count)]
    for number, client in enumerate(clients):
        client.consume(queue, f"c{number}", prefetch=1)
    vhost.publish(run(*[b"x"] * 2 * count), 0.0)
    return queue, clients


def _acknowledge(client: Client) -> None:
    ((tag, _),) = client.received()
    client.receiver.acknowledge(tag, tag, multiple=False)


def test_consumers_that_are_at_work_cost_a_turn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Consumer] = []
    room = Consumer.room

    def counted(consumer: Consumer) -> int:
        asked.append(consumer)
        return room(consumer)

    monkeypatch.setattr(Consumer, "room", counted)

    def asked_in_a_turn(count: int) -> int:
        _, clients = _at_work(make_vhost(), count)
        _acknowledge(clients[7])
        asked.clear()
        assert len(clients[7].received()) == 1
        return len(asked)

    assert asked_in_a_turn(200) == asked_in_a_turn(20)


def test_many_consumers_are_served_in_the_order_in_which_they_are_done(vhost: VirtualHost) -> None:
    queue, clients = _at_work(vhost, 40)
    done = [clients[at] for at in (31, 2, 39, 0, 17)]
    for client in done:
        _acknowledge(client)
    served = {client: client.received()[0][0] for client in done}
    assert len(served) == 5
    assert queue.outstanding == 40
    assert sorted(map(id, queue.all_consumers())) == sorted(
        id(each) for client in clients for each in client.receiver.consumers.values()
    )


def test_a_consumer_that_goes_while_it_is_at_work_gets_nothing_more(vhost: VirtualHost) -> None:
    queue, clients = _at_work(vhost, 40)
    _, last, *_ = reversed(clients)
    ((tag, _),) = last.received()
    (consumer,) = last.receiver.consumers.values()
    vhost.unsubscribe(consumer, 0.0)
    last.receiver.acknowledge(tag, tag, multiple=False)
    assert last.received() == []
    assert consumer not in queue.all_consumers()
    # All others go, too; then the queue has nobody, and whoever comes gets what there is.
    for client in clients:
        for each in list(client.receiver.consumers.values()):
            vhost.unsubscribe(each, 0.0)
        client.receiver.recover()
    newcomer = Client(vhost)
    newcomer.consume(queue)
    assert len(newcomer.received()) == 79


def test_a_deleted_queue_forgets_consumers_at_work(vhost: VirtualHost) -> None:
    queue, clients = _at_work(vhost, 40)
    vhost.process(0.0)
    tags = [client.received()[0][0] for client in clients]
    vhost.remove_queue(queue, 0.0)
    assert all(client.cancelled for client in clients)
    for client, tag in zip(clients, tags, strict=True):
        client.receiver.acknowledge(tag, tag, multiple=False)
    assert queue.all_consumers() == []


def test_a_closed_window_holds_deliveries_up(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue, auto_ack=True)
    client.window.left = 250
    vhost.publish(run(*[b"x" * 100] * 10), 0.0)
    assert len(client.received()) == 3
    client.window.left = 1000
    client.receiver.wake()
    assert len(client.received()) == 7


def test_consumers_take_turns(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    clients = [Client(vhost) for _ in range(3)]
    for client in clients:
        client.consume(queue)
    vhost.publish(run(*[b"%d" % number for number in range(7)]), 0.0)
    assert [client.bodies() for client in clients] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_a_crowd_of_messages_is_dealt_in_shares(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    clients = [Client(vhost) for _ in range(2)]
    for client in clients:
        client.consume(queue)
    vhost.publish(run(*[b"x"] * 10_000), 0.0)
    vhost.process(0.0)
    shares = [client.receiver.take_deliveries() for client in clients]
    assert sum(map(len, shares)) < 300
    counts = [sum(len(span) for _, _, span in share) for share in shares]
    assert sum(counts) == 10_000
    assert abs(counts[0] - counts[1]) <= 256


def test_the_higher_consumer_priority_is_served_while_it_has_credit(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    low, high = Client(vhost), Client(vhost)
    low.consume(queue)
    high.consume(queue, prefetch=2, arguments={"x-priority": 10})
    vhost.publish(run(b"1", b"2", b"3"), 0.0)
    assert (high.bodies(), low.bodies()) == ([b"1", b"2"], [b"3"])


def test_operators_see_which_consumer_is_active(vhost: VirtualHost) -> None:
    queue, shared = declare(vhost, single_active_consumer=True), declare(vhost, "shared")
    client = Client(vhost)
    consumers = [client.consume(queue, tag) for tag in ("a", "b")]
    # Before the first message as well.
    for _ in range(2):
        assert [one.row("client")["activity"] for one in consumers] == ["single_active", "waiting"]
        vhost.publish(run(b"x"), 0.0)
        client.received()
    vhost.unsubscribe(consumers[0], 0.0)
    assert consumers[1].row("client")["activity"] == "single_active"
    assert client.consume(shared, "c").row("client")["activity"] == "up"


def test_a_single_active_consumer_is_followed_by_the_next(vhost: VirtualHost) -> None:
    queue = declare(vhost, single_active_consumer=True)
    first, second = Client(vhost), Client(vhost)
    active = first.consume(queue)
    second.consume(queue)
    vhost.publish(run(b"1", b"2", b"3"), 0.0)
    assert (len(first.received()), len(second.received())) == (3, 0)
    vhost.unsubscribe(active, 0.0)
    first.receiver.recover()
    assert second.bodies() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("shared", [0, 5], ids=["its own credit", "shared credit"])
def test_who_follows_waits_for_what_the_active_consumer_held(vhost: VirtualHost, shared: int) -> None:
    queue = declare(vhost, single_active_consumer=True)
    first, second = Client(vhost), Client(vhost)
    first.receiver.prefetch = shared
    active = first.consume(queue, prefetch=0 if shared else 2)
    second.consume(queue)
    first.window.left = 1
    vhost.publish(run(b"1"), 0.0)
    vhost.broker.process(0.0)
    vhost.publish(run(b"2", b"3"), 0.0)
    ((tag, _),) = first.received()
    vhost.unsubscribe(active, 0.0)
    assert second.bodies() == []
    first.receiver.acknowledge(tag, tag, multiple=False)
    assert second.bodies() == [b"2", b"3"]


def test_what_the_active_consumer_held_comes_first(vhost: VirtualHost) -> None:
    queue = declare(vhost, single_active_consumer=True)
    first, second = Client(vhost), Client(vhost)
    active = first.consume(queue, prefetch=2)
    second.consume(queue)
    vhost.publish(run(b"1", b"2", b"3"), 0.0)
    assert first.bodies() == [b"1", b"2"]
    vhost.unsubscribe(active, 0.0)
    assert second.bodies() == []
    first.receiver.recover()
    assert second.bodies() == [b"1", b"2", b"3"]


def test_a_higher_priority_does_not_oust_the_active_consumer(vhost: VirtualHost) -> None:
    queue = declare(vhost, single_active_consumer=True)
    first, low, high = Client(vhost), Client(vhost), Client(vhost)
    active = first.consume(queue)
    vhost.publish(run(b"1"), 0.0)
    assert first.bodies() == [b"1"]
    low.consume(queue)
    high.consume(queue, arguments={"x-priority": 10})
    vhost.publish(run(b"2"), 0.0)
    assert [client.bodies() for client in (first, low, high)] == [[b"2"], [], []]
    first.receiver.acknowledge(1, 2, multiple=True)
    vhost.unsubscribe(active, 0.0)
    vhost.publish(run(b"3"), 0.0)
    assert [client.bodies() for client in (low, high)] == [[], [b"3"]]


def test_each_of_many_consumers_starts_without_a_look_at_the_others(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, client = declare(vhost), Client(vhost)
    looked_at: list[Consumer] = []
    every = Queue.all_consumers

    def all_consumers(queue: Queue) -> list[Consumer]:
        found = every(queue)
        looked_at.extend(found)
        return found

    monkeypatch.setattr(Queue, "all_consumers", all_consumers)
    for number in range(1000):
        # Every second one with a priority of its own.
        client.consume(queue, f"c{number}", arguments={"x-priority": number % 2 * number})
    assert len(looked_at) < 10
    priorities = [consumer.priority for consumer in every(queue)]
    assert priorities == sorted((number % 2 * number for number in range(1000)), reverse=True)


@pytest.mark.parametrize("order", [1, -1])
def test_consumers_of_several_priorities_are_cancelled(vhost: VirtualHost, order: int) -> None:
    queue, client = declare(vhost), Client(vhost)
    consumers = [client.consume(queue, f"c{at}", arguments={"x-priority": at % 3}) for at in range(12)]
    for left, consumer in enumerate(consumers[::order], 1):
        vhost.unsubscribe(consumer, 0.0)
        assert sorted(each.tag for each in queue.all_consumers()) == sorted(
            each.tag for each in consumers[::order][left:]
        )
    assert not queue.consumers


def test_an_exclusive_consumer_is_alone(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue, "a", exclusive=True)
    with pytest.raises(AccessRefused):
        client.consume(queue, "b")


def test_requeued_messages_find_their_place_in_any_order(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    vhost.publish(run(*[b"%d" % number for number in range(10)]), 0.0)
    for _ in range(6):
        client.receiver.take_one(queue, 0.0, auto_ack=False)
    for tag in (4, 1, 6, 2):
        client.receiver.reject(tag, tag, multiple=False, requeue=True, now=0.0)
    assert ready(queue) == [b"0", b"1", b"3", b"5", b"6", b"7", b"8", b"9"]
    client.receiver.recover()
    assert ready(queue) == [b"%d" % number for number in range(10)]


def test_requeued_neighbours_grow_together(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    vhost.publish(run(*[b"x"] * 1000), 0.0)
    for _ in range(1000):
        client.receiver.take_one(queue, 0.0, auto_ack=False)
    for tag in range(1, 1001):
        client.receiver.reject(tag, tag, multiple=False, requeue=True, now=0.0)
    assert len(queue.backlog.levels[0]) == 1


@pytest.mark.parametrize(
    "arguments, kept",
    [
        ({"max_length": 2}, [b"cc", b"dd"]),
        ({"max_length": 0}, []),
        ({"max_length_bytes": 5}, [b"cc", b"dd"]),
        ({"max_length": 2, "overflow": "reject-publish"}, [b"aa", b"bb"]),
        ({"max_length_bytes": 3, "overflow": "reject-publish"}, [b"aa", b"bb"]),
        ({"max_length": 2, "max_priority": 3}, [b"cc", b"dd"]),
    ],
)
def test_a_full_queue_keeps(vhost: VirtualHost, arguments: dict[str, Any], kept: list[bytes]) -> None:
    queue = declare(vhost, **arguments)
    vhost.publish(run(b"aa", b"bb", b"cc", b"dd"), 0.0)
    assert ready(queue) == kept


def test_a_full_queue_tells_how_many_it_took(vhost: VirtualHost) -> None:
    declare(vhost, max_length=3, overflow="reject-publish")
    assert vhost.publish(run(b"1", b"2"), 0.0) == 2
    assert vhost.publish(run(b"3", b"4", b"5"), 0.0) == 1
    assert vhost.publish(run(b"6"), 0.0) == 0


def test_a_full_queue_hands_over_before_it_drops(vhost: VirtualHost) -> None:
    queue = declare(vhost, max_length=1)
    client = Client(vhost)
    client.consume(queue, auto_ack=True)
    vhost.publish(run(b"1", b"2", b"3"), 0.0)
    assert client.bodies() == [b"1", b"2", b"3"]


def test_messages_expire_at_their_time(vhost: VirtualHost) -> None:
    queue = declare(vhost, message_ttl=1000)
    vhost.publish(run(b"queue's"), 0.0)
    vhost.publish(run(b"own", expiration=5000), 0.0)
    vhost.publish(run(b"own, shorter", expiration=100), 0.0)
    assert vhost.broker.next_deadline() is None  # known once processed
    vhost.process(0.0)
    assert vhost.broker.next_deadline() == 1.0
    vhost.broker.handle_timeout(0.999)
    assert queue.backlog.count == 3  # what stands behind waits, as with RabbitMQ
    vhost.broker.handle_timeout(1.0)
    assert queue.backlog.count == 0


def test_a_message_without_time_reaches_only_who_waits_for_it(vhost: VirtualHost) -> None:
    queue = declare(vhost, message_ttl=0)
    client = Client(vhost)
    client.consume(queue, auto_ack=True)
    vhost.publish(run(b"now"), 5.0)
    assert client.bodies(5.0) == [b"now"]
    client.window.left = 0
    vhost.publish(run(b"gone"), 5.0)
    vhost.process(5.0)
    assert queue.backlog.count == 0


def test_a_message_that_has_expired_behind_one_that_has_not_is_not_delivered(vhost: VirtualHost) -> None:
    dead = declare(vhost, "dead")
    declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    client = Client(vhost)
    for body, lives in ((b"1", None), (b"2", 10), (b"3", 60_000), (b"4", 10), (b"5", None)):
        vhost.publish(run(body, **({} if lives is None else {"expiration": lives})), 0.0)
    vhost.process(1.0)
    client.consume(vhost.queues["q"], auto_ack=True)
    assert client.bodies(1.0) == [b"1", b"3", b"5"]
    vhost.process(1.0)
    assert [bytes(body) for span in dead.backlog.take_all() for body in span.as_batch().bodies] == [
        b"2",
        b"4",
    ]


def test_an_unused_queue_expires(vhost: VirtualHost) -> None:
    queue = declare(vhost, expires=1000)
    client = Client(vhost)
    vhost.broker.handle_timeout(0.9)
    client.receiver.take_one(queue, 0.9, auto_ack=True)
    vhost.broker.handle_timeout(1.0)
    assert "q" in vhost.queues
    consumer = client.consume(queue)
    vhost.broker.handle_timeout(2.0)
    assert "q" in vhost.queues
    vhost.unsubscribe(consumer, 3.0)
    vhost.broker.handle_timeout(3.5)
    assert "q" in vhost.queues
    vhost.broker.handle_timeout(4.0)
    assert "q" not in vhost.queues


def test_dead_letters_tell_how_they_died(vhost: VirtualHost) -> None:
    dead = declare(vhost, "dead")
    vhost.declare_exchange("dlx", "fanout")
    vhost.bind("dlx", dead)
    declare(vhost, message_ttl=10, dead_letter_exchange="dlx")
    vhost.publish(run(b"x", expiration=5), 0.0)
    vhost.process(0.0)
    vhost.broker.handle_timeout(0.02)
    (span,) = dead.backlog.take_all()
    assert (span.envelope.exchange, span.envelope.key, span.envelope.expiration) == ("dlx", "q", None)
    (death,) = span.envelope.properties["headers"]["x-death"]
    assert death["time"].timestamp() == 1_700_000_000
    assert (death["reason"], death["original-expiration"]) == ("expired", "5")


def test_deaths_of_one_kind_are_counted(vhost: VirtualHost) -> None:
    queue = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="q")
    client = Client(vhost)
    vhost.publish(run(b"x"), 0.0)
    for _ in range(3):
        taken = client.receiver.take_one(queue, 0.0, auto_ack=False)
        assert taken is not None
        client.receiver.reject(taken[0], taken[0], multiple=False, requeue=False, now=0.0)
    (span,) = queue.backlog.take_all()
    headers = span.envelope.properties["headers"]
    assert [(d["queue"], d["reason"], d["count"]) for d in headers["x-death"]] == [("q", "rejected", 3)]


def test_dead_letters_of_one_envelope_share_theirs_only_while_they_die_alike(vhost: VirtualHost) -> None:
    dead = declare(vhost, "dead")
    queue = declare(vhost, dead_letter_exchange="", dead_letter_routing_key="dead")
    client = Client(vhost)
    vhost.publish(run(b"1", b"2", b"3"), 0.0)
    vhost.publish(run(b"4", key="q"), 0.0)
    for now in (0.0, 0.5, 1.5, 1.5):
        taken = client.receiver.take_one(queue, now, auto_ack=False)
        assert taken is not None
        client.receiver.reject(taken[0], taken[0], multiple=False, requeue=False, now=now)
    died = [span.envelope for span in dead.backlog.take_all()]
    assert died[0] is died[1]
    assert died[3] is not died[2]
    times = [envelope.properties["headers"]["x-death"][0]["time"].timestamp() for envelope in died]
    assert [when - times[0] for when in times] == [0, 0, 1, 1]


def test_dead_letters_do_not_go_round_by_themselves(vhost: VirtualHost) -> None:
    first = declare(vhost, "a", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="b")
    second = declare(vhost, "b", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="a")
    vhost.publish(run(b"x", key="a"), 0.0)
    for now in (0.0, 0.02, 0.04, 0.06):
        vhost.process(now)
        vhost.broker.handle_timeout(now)
    assert (first.backlog.count, second.backlog.count) == (0, 0)


def test_a_deleted_queue_tells_its_consumers_and_loses_its_bindings(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    client = Client(vhost)
    client.consume(queue, "me")
    vhost.declare_exchange("x", auto_delete=True)
    vhost.bind("x", queue, "k")
    vhost.publish(run(b"1"), 0.0)
    tag = client.received()[0][0]
    vhost.delete_queue("q", None, 0.0)
    assert client.cancelled == ["me"]
    assert "x" not in vhost.exchanges
    client.receiver.acknowledge(tag, tag, multiple=False)
    assert vhost.publish(run(b"2"), 0.0) is None


def test_what_a_connection_owns_goes_with_it(vhost: VirtualHost) -> None:
    owner = object()
    vhost.declare_queue("mine", owner, 0.0, exclusive=True)
    vhost.release(owner, 0.0)
    assert "mine" not in vhost.queues


def test_a_queue_waits_for_one_call_at_a_time(vhost: VirtualHost) -> None:
    declare(vhost, message_ttl=1000)
    for number in range(100):
        vhost.publish(run(b"x"), number / 1000)
        vhost.process(number / 1000)
    assert len(vhost.broker._deadlines) == 1


def test_a_batch_of_nothing_is_nothing(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert vhost.publish(run(), 0.0) == 0
    assert not queue.backlog.levels[0]


@pytest.mark.parametrize(
    "arguments, persistent, stored, takes",
    [
        ({}, False, False, True),
        ({}, True, False, True),
        ({}, False, True, True),
        ({}, True, True, False),
        ({"queue_type": "quorum"}, False, False, False),
        ({"max_length": 3}, False, False, True),
        ({"max_length": 3, "overflow": "reject-publish"}, False, False, False),
    ],
)
def test_messages_are_looked_at_one_by_one_where_somebody_is_told_of_each(
    vhost: VirtualHost, arguments: dict[str, Any], persistent: bool, stored: bool, takes: bool
) -> None:
    """Messages that differ in their keys: a full queue refuses some of them, and the store has records of each."""
    queue = vhost.declare_queue(
        "q",
        None,
        0.0,
        durable=True,
        arguments={f"x-{key.replace('_', '-')}": each for key, each in arguments.items()},
    )
    queue.stored = object() if stored else None
    assert queue.takes_keyed(Envelope(persistent=persistent)) is takes
