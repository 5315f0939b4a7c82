"""The client byte by byte and second by second: limits, answers in any order, silence, and what is not to be done."""

from __future__ import annotations

from plugins.protocols.amqp091.frames import HEARTBEAT_FRAME
from plugins.protocols.amqp091.methods import basic, channel, connection, queue
from tests.plugins.engines.amqp_client.in_memory import InMemory

CONSUME = ({"queue": "q", "prefetch": 10},)


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_no_more_is_in_flight_than_is_allowed() -> None:
    world = InMemory(in_flight=5)
    world.feed(*_bodies(0, 12))
    assert world.published == _bodies(0, 5)
    world.acknowledge(2)
    assert world.published == _bodies(0, 7)
    assert world.port.confirmed_in == 2
    world.acknowledge(0)  # all
    assert (world.published, world.port.confirmed_in) == (_bodies(0, 12), 7)


def test_the_port_is_told_in_order_when_the_server_is_not() -> None:
    world = InMemory()
    world.feed(*_bodies(0, 4))
    world.acknowledge(3, multiple=False)
    world.acknowledge(2, multiple=False)
    assert world.port.confirmed_in == 0
    world.acknowledge(1, multiple=False)
    assert world.port.confirmed_in == 3


def test_what_is_refused_is_sent_again_after_a_while_and_nothing_new_before() -> None:
    world = InMemory(reconnect={"first": 1.0, "jitter": 0.0})
    world.feed(*_bodies(0, 3))
    world.say(2, basic.Nack(delivery_tag=2, multiple=False, requeue=False))
    world.acknowledge(1)
    world.feed(b"new")
    world.host.run(until=0.9)
    assert world.published == _bodies(0, 3)
    world.host.run(until=1.1)
    assert world.published == [*_bodies(0, 3), b"1", b"new"]
    world.acknowledge(5)
    assert world.port.confirmed_in == 4
    assert world.link.counters.messages_nacked == 1


def test_a_channel_that_the_server_closes_is_opened_again_and_sends_what_was_in_flight() -> None:
    world = InMemory(reconnect={"first": 1.0, "jitter": 0.0}, mandatory=False)
    world.feed(*_bodies(0, 3))
    world.acknowledge(1)
    world.close(2, 404)
    assert world.host.events[-1].next_try == 1.0
    assert "404 NOT_FOUND" in world.host.events[-1].detail
    world.feed(b"3")
    assert world.published == _bodies(0, 3)
    world.host.run(until=1.5)
    assert world.published == [*_bodies(0, 3), b"1"]  # what was in flight goes one by one
    world.acknowledge(1)  # tags begin anew
    assert world.published == [*_bodies(0, 3), *_bodies(1, 3)]
    world.acknowledge(2)
    assert world.published == [*_bodies(0, 3), *_bodies(1, 4)]
    world.acknowledge(3)
    assert world.port.confirmed_in == 4


def test_what_nobody_waits_for_and_is_lost_is_counted() -> None:
    world = InMemory(mandatory=False)
    world.port.wants_confirm = False
    world.feed(*_bodies(0, 5))
    world.acknowledge(2)
    world.close(2, 541)
    assert world.link.counters.messages_lost == 3


def test_what_was_in_flight_before_a_source_came_is_no_answer_to_that_source() -> None:
    world = InMemory(in_flight=4, reconnect={"first": 1.0, "jitter": 0.0})
    world.port.wants_confirm = False
    world.feed(*_bodies(0, 3))
    world.say(2, basic.Nack(delivery_tag=1, multiple=False, requeue=False))
    world.acknowledge(3, multiple=False)
    world.host.run(until=1.5)
    world.port.wants_confirm = True
    world.feed(*_bodies(3, 5))
    world.acknowledge(4)
    assert world.port.confirmed_in == 0
    world.acknowledge(5)
    assert world.port.confirmed_in == 1
    world.acknowledge(6)
    assert world.port.confirmed_in == 2


def test_what_is_sent_again_has_its_place_though_another_waits_for_it() -> None:
    world = InMemory(reconnect={"first": 1.0, "jitter": 0.0}, mandatory=False)
    world.feed(*_bodies(0, 3))
    world.close(2, 541)
    world.host.run(until=1.5)
    world.feed(b"3")
    for tag in range(1, 5):  # what was in flight goes one by one
        world.acknowledge(tag)
    assert world.port.confirmed_in == 4


def test_nothing_is_published_while_the_server_is_blocked() -> None:
    world = InMemory()
    world.say(0, connection.Blocked(reason="low on memory"))
    world.feed(b"x")
    assert world.published == []
    assert "low on memory" in world.host.events[-1].detail
    world.say(0, connection.Unblocked())
    assert world.published == [b"x"]
    world.say(2, channel.Flow(active=False))
    world.feed(b"y")
    assert world.published == [b"x"]
    world.say(2, channel.Flow(active=True))
    assert world.published == [b"x", b"y"]


def test_acknowledgements_follow_the_routes_into_the_middle_of_a_batch() -> None:
    world = InMemory(consume=CONSUME)
    world.port.confirms = True
    world.deliver(1, *_bodies(0, 4))
    world.deliver(5, *_bodies(4, 6))
    assert world.acknowledged == []
    for count in (3, 3, 5, 6):
        world.client.on_confirmed(count)
        world.host.run()
    assert world.acknowledged == [(3, 3, True), (3, 3, True), (3, 5, True), (3, 6, True)]


def test_two_consumers_are_acknowledged_each_on_its_channel() -> None:
    world = InMemory(consume=(*CONSUME, {"queue": "r"}))
    world.port.confirms = True
    world.deliver(1, b"a", b"b")
    world.deliver(1, b"c", channel=4)
    world.client.on_confirmed(3)
    world.host.run()
    assert sorted(world.acknowledged) == [(3, 2, True), (4, 1, True)]


def test_a_full_port_gets_nothing_more_and_the_server_no_acknowledgement() -> None:
    world = InMemory(consume=CONSUME)
    world.port.room = False
    world.deliver(1, b"0")
    world.deliver(2, b"1", b"2")
    assert [batch.bodies for batch in world.port.batches_sent] == [[b"0"]]
    assert world.acknowledged == [(3, 1, True)]
    world.port.room = True
    world.client.on_writable()
    world.host.run()
    assert world.port.count() == 3
    assert world.acknowledged[-1] == (3, 3, True)


def test_what_came_on_a_channel_that_has_ended_is_neither_handed_over_nor_acknowledged() -> None:
    world = InMemory(consume=CONSUME)
    world.port.room = False
    world.deliver(1, b"0")
    world.deliver(2, b"1")
    world.close(3, 541)
    world.client.on_writable()
    world.host.run()
    assert world.port.count() == 1
    assert world.acknowledged == [(3, 1, True)]


def test_a_silent_server_is_given_up_after_two_heartbeats() -> None:
    world = InMemory(heartbeat=10)
    world.deaf()
    world.host.run(until=19)
    assert not world.hosting.ended
    world.host.run(until=21)
    assert world.hosting.ended
    assert "missed heartbeats" in world.link.last_error


def test_heartbeats_go_both_ways_while_nothing_else_does() -> None:
    world = InMemory(heartbeat=10)
    before = world.link.counters.bytes_out
    for second in range(1, 61):
        world.host.run(until=float(second))
        if second % 10 == 0:
            world.beat()
    assert not world.hosting.ended
    sent = (world.link.counters.bytes_out - before) // len(HEARTBEAT_FRAME)
    assert 6 <= sent <= 13


def test_heartbeats_are_read_while_a_full_port_holds_deliveries_back() -> None:
    for no_ack in (False, True):
        world = InMemory(heartbeat=10, consume=({"queue": "q", "no_ack": no_ack},))
        world.port.room = False
        world.deliver(1, b"0")
        for second in range(1, 61):
            world.host.run(until=float(second))
            if second % 10 == 0:
                world.beat()
        assert not world.hosting.ended, world.link.last_error


def test_a_message_that_is_too_large_costs_its_channel_which_is_opened_again() -> None:
    world = InMemory(consume=CONSUME, max_body_bytes=10, reconnect={"first": 1.0, "jitter": 0.0})
    world.deliver(1, b"x" * 11)
    assert world.what() == ["connected", "refused", "retrying"]
    world.host.run(until=2.0)
    assert sum(isinstance(method, basic.Consume) for method in world.methods) == 2
    world.deliver(1, b"small")
    assert world.acknowledged == [(3, 1, True)]


def test_a_consumer_that_is_cancelled_and_then_refused_is_begun_once() -> None:
    world = InMemory(consume=CONSUME, queues=({"name": "q"},), reconnect={"first": 1.0, "jitter": 0.0})
    world.say(3, basic.Cancel(consumer_tag="client", nowait=True))
    world.deaf()
    world.host.run(until=1.5)  # it has asked for the queue again, to begin when that is there
    world.close(3, 541)
    for until in (2.0, 60.0):
        world.say(1, queue.DeclareOk(queue="q", message_count=0, consumer_count=0))
        world.host.run(until=until)
    world.listen()
    world.host.run()
    assert sum(isinstance(method, basic.Consume) for method in world.methods) == 2


# ------------------------------------------------------------------ a server that does not answer


def test_a_server_that_answers_for_nothing_is_given_up_and_all_is_sent_to_the_next() -> None:
    world = InMemory(confirm_timeout=5.0)
    world.feed(*_bodies(0, 3))
    world.acknowledge(1)
    world.host.run(until=4.9)
    assert not world.hosting.ended
    world.host.run(until=5.1)
    assert world.hosting.ended
    assert world.link.last_error == "the server answered for none of 2 messages within 5 s"
    assert [bytes(body) for batch in world.port.take_again().batches for body in batch.bodies] == [b"1", b"2"]


def test_a_server_that_was_blocked_has_its_time_to_answer_from_then_on() -> None:
    world = InMemory(confirm_timeout=5.0)
    world.feed(b"x")
    world.say(0, connection.Blocked(reason="low on memory"))
    world.host.run(until=4.9)
    world.say(0, connection.Unblocked())
    world.host.run(until=9.8)
    assert not world.hosting.ended
    world.host.run(until=10.0)
    assert world.hosting.ended


def test_a_server_that_answers_now_and_then_is_waited_for() -> None:
    world = InMemory(confirm_timeout=5.0)
    world.feed(*_bodies(0, 4))
    for tag in (1, 2, 3, 4):
        world.host.run(until=world.host.now() + 4.0)
        world.acknowledge(tag)
    world.host.run(until=100.0)  # nothing is in flight
    assert not world.hosting.ended
    world.feed(b"late")
    world.host.run(until=104.9)
    assert not world.hosting.ended
    world.host.run(until=105.1)
    assert world.hosting.ended


def test_a_server_that_says_that_it_takes_nothing_is_waited_for() -> None:
    world = InMemory(confirm_timeout=5.0)
    world.feed(b"0")
    world.say(0, connection.Blocked(reason="low on memory"))
    world.host.run(until=60.0)
    assert not world.hosting.ended
    world.say(0, connection.Unblocked())
    world.host.run(until=71.0)
    assert world.hosting.ended


def test_an_answer_that_nobody_has_asked_for_is_no_harm() -> None:
    world = InMemory(queues=({"name": "q"},))
    world.say(1, queue.DeclareOk(queue="q", message_count=0, consumer_count=0))
    world.feed(b"x")
    assert world.published == [b"x"]
