"""What survives, and as what."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from kernel.contracts.message import Batch, batch_of
from plugins.engines.broker.arguments import QUEUE_ARGUMENTS
from plugins.engines.broker.errors import PreconditionFailed
from plugins.protocols.amqp091.content import ContentProperties, envelope_of
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.conftest import Clock
from tests.plugins.engines.broker.storage.disks import failing
from tests.plugins.engines.broker.storage.durable import DurableBroker


def persistent(*bodies: bytes, **fields: Any) -> Batch:
    return run(*bodies, persistent=True, **fields)


def numbered(first: int, stop: int, **fields: Any) -> Batch:
    return persistent(*[b"%d" % number for number in range(first, stop)], **fields)


def test_persistent_messages_in_durable_queues_survive_in_order() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(persistent(b"1", b"22", b"333"), 0.0)
    before.vhost.publish(run(b"transient"), 0.0)
    before.vhost.publish(persistent(b"4"), 0.0)
    before.process()
    after = before.reopened()
    assert (after.queue().backlog.count, after.queue().backlog.size) == (4, 7)
    assert after.take_all() == [b"1", b"22", b"333", b"4"]
    assert before.reopened().take_all() == [b"1", b"22", b"333", b"4"]
    after.process()
    assert after.reopened().take_all() == []


def test_definitions_survive_with_all_types_of_arguments() -> None:
    arguments = {
        "text": "ä",
        "octets": b"\xff\x00",
        "yes": True,
        "small": -3,
        "large": 1 << 40,
        "float": 1.5,
        "decimal": Decimal("3.14"),
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "nothing": None,
        "list": [1, "two", {"three": 3}],
        "table": {"deep": {"deeper": []}},
    }
    before = DurableBroker()
    vhost = before.vhost
    vhost.declare_exchange("in", "topic", durable=True, arguments=arguments)
    vhost.declare_exchange("out", "headers", durable=True, internal=True, auto_delete=True)
    vhost.declare_exchange("gone", durable=True)
    vhost.declare_exchange("transient")
    queue = before.declare("q", max_length=10, dead_letter_exchange="in")
    vhost.bind("in", queue, "a.#", arguments)
    vhost.bind("in", vhost.find_exchange("out"), "b")
    vhost.bind("amq.direct", queue, "c")
    vhost.bind("amq.direct", queue, "unbound")
    vhost.unbind("amq.direct", queue, "unbound")
    vhost.delete_exchange("gone")
    before.declare("gone")
    vhost.delete_queue("gone", None, 0.0)
    before.declare("transient", durable=False)
    before.broker.add_vhost("/other").declare_queue("there", None, 0.0, durable=True)
    before.process()
    after = before.reopened()
    exchanges = {
        name: exchange for name, exchange in after.vhost.exchanges.items() if not name.startswith("amq.")
    }
    assert set(exchanges) == {"", "in", "out"}
    assert exchanges["in"].arguments == arguments
    assert (exchanges["out"].internal, exchanges["out"].auto_delete, exchanges["out"].kind) == (
        True,
        True,
        "headers",
    )
    assert set(after.vhost.queues) == {"q"}
    assert (after.queue().policy.max_length, after.queue().durable) == (10, True)
    bindings = {
        (binding.source.name, binding.key, tuple(binding.arguments))
        for binding in after.queue().incoming.values()
    }
    assert bindings == {("in", "a.#", tuple(arguments)), ("amq.direct", "c", ())}
    assert [binding.key for binding in exchanges["out"].incoming.values()] == ["b"]
    assert set(after.broker.vhosts["/other"].queues) == {"there"}
    # The numbers of new things are new.
    after.declare("another")
    after.process()
    assert set(after.reopened().vhost.queues) == {"q", "another"}


def test_every_property_survives() -> None:
    properties = {
        "content_type": "text/plain",
        "headers": {"x": [1, {"y": b"\xfe"}]},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "\udcff",
        "reply_to": "there",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
        "app_id": "a",
    }
    raw = ContentProperties.of(properties).raw
    before = DurableBroker()
    before.declare("k\udcff")
    before.vhost.publish(batch_of([b"body"], envelope_of("", "k\udcff", raw)), 0.0)
    before.process()
    after = before.reopened()
    taken = after.client.receiver.take_one(after.queue("k\udcff"), 1.0, auto_ack=True)
    assert taken is not None
    envelope = taken[1].envelope
    assert dict(envelope.properties) == properties
    assert (envelope.key, envelope.expiration, envelope.priority) == ("k\udcff", 60000, 3)


def test_one_batch_in_many_queues_is_written_once() -> None:
    before = DurableBroker()
    for number in range(100):
        before.vhost.bind("amq.fanout", before.declare(f"q{number}"))
    before.process()
    size = before.disk.used()
    before.vhost.publish(persistent(b"x" * 50_000, exchange="amq.fanout"), 0.0)
    before.process()
    assert before.disk.used() - size < 60_000
    after = before.reopened()
    assert all(after.take_all(f"q{number}") == [b"x" * 50_000] for number in range(100))


def test_what_was_acknowledged_in_any_way_does_not_come_back() -> None:
    before = DurableBroker()
    queue = before.declare()
    before.declare("dead")
    before.declare("limited", max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    before.vhost.publish(numbered(0, 10), 0.0)
    receiver = before.client.receiver
    for _ in range(8):
        receiver.take_one(queue, 0.0, auto_ack=False)
    receiver.acknowledge(1, 2, multiple=True)
    receiver.acknowledge(5, 5, multiple=False)
    receiver.reject(7, 7, multiple=False, requeue=False, now=0.0)
    before.vhost.publish(persistent(b"a", b"b", b"c", key="limited"), 0.0)
    before.process()
    after = before.reopened()
    assert after.take_all() == [b"2", b"3", b"5", b"7", b"8", b"9"]
    assert after.take_all("limited") == [b"b", b"c"]
    ((span,), _, _) = after.queue("dead").backlog.take(10, 1000)
    (death,) = span.envelope.properties["headers"]["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("limited", "maxlen", 1)


def test_purged_and_deleted_queues_stay_empty() -> None:
    before = DurableBroker()
    before.declare().purge(0.0)
    before.declare("d")
    before.vhost.publish(numbered(0, 5), 0.0)
    before.vhost.publish(numbered(0, 5, key="d"), 0.0)
    before.process()
    before.queue().purge(0.0)
    before.vhost.delete_queue("d", None, 0.0)
    before.declare("d")
    before.vhost.publish(numbered(5, 6), 0.0)
    before.process()
    after = before.reopened()
    assert (after.take_all(), after.take_all("d")) == ([b"5"], [])


def test_priorities_keep_their_order() -> None:
    before = DurableBroker()
    before.declare(max_priority=5)
    for number, priority in enumerate([1, 5, 1, 0, 5, 9, 1]):
        before.vhost.publish(persistent(b"%d" % number, priority=priority), 0.0)
    before.process()
    assert before.reopened().take_all() == [b"1", b"4", b"5", b"0", b"2", b"6", b"3"]


@pytest.mark.parametrize("highest", [None, 3])
def test_priorities_that_a_queue_does_not_tell_apart_leave_the_order_alone(highest: int | None) -> None:
    before = DurableBroker(queue_bytes=0)
    before.declare(**({} if highest is None else {"max_priority": highest}))
    for number, priority in enumerate([5, 9, 5, 5, 9, 3, 9, 5]):
        before.vhost.publish(persistent(b"%d" % number, priority=priority), 0.0)
        before.process()
    after = before.reopened()
    assert len([page for level in after.queue().backlog.levels for page in level]) == 1
    assert after.take_all() == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_limit_of_bytes_goes_by_what_waits_and_not_by_what_was_taken(overflow: str) -> None:
    before = DurableBroker()
    before.declare(max_length_bytes=1000, overflow=overflow)
    for _ in range(3):
        before.vhost.publish(persistent(b"x" * 900), 0.0)
        before.process()
        before.take_all()
    before.vhost.publish(numbered(0, 3), 0.0)
    before.process()
    after = before.reopened()
    after.process()
    assert (after.queue().backlog.count, after.queue().backlog.size) == (3, 3)
    after.vhost.publish(numbered(3, 4), 0.0)
    assert after.take_all() == [b"0", b"1", b"2", b"3"]


def test_messages_expire_by_the_time_of_day() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(persistent(b"late", expiration=5000), 1.0)
    before.vhost.publish(persistent(b"never"), 1.0)
    before.process(1.0)
    assert before.reopened().take_all(now=5.9) == [b"late", b"never"]
    after = before.reopened()
    after.process(0.0)
    assert after.broker.next_deadline() == pytest.approx(6.0)
    after.broker.handle_timeout(6.0)
    assert after.take_all(now=6.0) == [b"never"]


def test_after_a_crash_everything_may_have_been_seen() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(numbered(0, 3), 0.0)
    before.process()
    assert before.reopened().take() == [(b"0", True), (b"1", True), (b"2", True)]


def test_after_a_clean_end_it_is_known_what_was_delivered() -> None:
    before = DurableBroker()
    queue = before.declare()
    before.vhost.publish(numbered(0, 3), 0.0)
    before.client.receiver.take_one(queue, 0.0, auto_ack=False)
    disk = before.close()
    after = DurableBroker(disk.after_kill())
    assert after.take() == [(b"0", True), (b"1", False), (b"2", False)]
    # And only the end that was the last one counts.
    again = DurableBroker(DurableBroker(disk.after_kill()).close())
    assert again.take() == [(b"0", True), (b"1", False), (b"2", False)]


def test_a_crash_soon_after_a_start_is_a_crash() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(numbered(0, 3), 0.0)
    after = DurableBroker(before.close())
    assert after.client.receiver.take_one(after.queue(), 0.0, auto_ack=False)  # nothing is written about that
    for seed in range(3):
        assert all(redelivered for _, redelivered in after.reopened().take())
        assert all(
            redelivered for _, redelivered in DurableBroker(after.disk.after_power_loss(Random(seed))).take()
        )


def test_what_cannot_be_restored_now_is_kept_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DurableBroker(segment_bytes=1000)
    before.vhost.declare_exchange("special", "topic", durable=True)
    before.vhost.bind("special", before.declare("special", max_length=10), "a")
    before.declare("busy")
    before.vhost.publish(persistent(b"kept", key="special"), 0.0)
    before.process()
    with monkeypatch.context() as patch:
        patch.delitem(QUEUE_ARGUMENTS, "x-max-length")
        patch.setitem(QUEUE_ARGUMENTS, "x-max-length", _refuse)
        without = before.reopened(segment_bytes=1000)
        assert [what for what, _ in without.reports] == ["not restored"] * 2
        for number in range(200):
            without.vhost.publish(numbered(number, number + 1, key="busy"), 0.0)
            without.process()
            without.take_all("busy")
            without.process()
    assert "000000000001.log" not in without.disk.names()
    after = without.reopened()
    assert after.take_all("special") == [b"kept"]
    assert [binding.key for binding in after.queue("special").incoming.values()] == ["a"]


def _refuse(value: object) -> object:
    raise PreconditionFailed("not today")


def test_an_exclusive_queue_goes_with_the_process() -> None:
    before = DurableBroker()
    queue = before.vhost.declare_queue("mine", object(), 0.0, durable=True, exclusive=True)
    before.vhost.bind("amq.fanout", queue)
    before.vhost.publish(persistent(b"x", key="mine"), 0.0)
    before.process()
    assert before.reopened().vhost.queues == {}


def test_nothing_is_safe_before_its_group_is() -> None:
    broker = DurableBroker(at_once=False)
    store = broker.store
    told: list[int] = []
    broker.declare()
    broker.process()
    broker.vhost.publish(persistent(b"1"), 0.0)
    first = store.mark
    store.when_safe(lambda: told.append(store.safe))
    broker.process()
    assert (store.safe, len(broker.writer.work)) == (0, 1)
    broker.writer.step()  # the definition; meanwhile the messages have become the next group
    assert store.safe < first
    broker.vhost.publish(persistent(b"2"), 0.0)
    assert store.mark > first
    broker.writer.step()
    assert (store.safe, told) == (first, [first - 1])
    assert broker.disk.syncs == 2


def test_only_what_somebody_waits_for_is_synced() -> None:
    broker = DurableBroker()
    broker.client.consume(broker.declare())
    broker.vhost.publish(persistent(b"1"), 0.0)
    broker.vhost.publish(persistent(b"2"), 0.0)
    broker.process()
    assert broker.client.received() == [(1, b"1"), (2, b"2")]
    syncs = broker.disk.syncs
    broker.client.receiver.acknowledge(1, 1, multiple=False)
    broker.process()
    assert broker.disk.syncs == syncs
    assert broker.reopened().take_all() == [b"2"]  # written all the same
    broker.client.receiver.acknowledge(2, 2, multiple=False)
    mark = broker.store.demand()
    broker.process()
    assert (broker.store.safe, broker.disk.syncs) == (mark, syncs + 1)


def test_what_nobody_waits_for_is_synced_with_what_comes_a_second_later(clock: Clock) -> None:
    broker = DurableBroker()
    queue = broker.declare()
    broker.vhost.publish(numbered(0, 3), 0.0)
    broker.process()
    syncs = broker.disk.syncs
    for seconds, synced in ((1.0, syncs), (0.1, syncs + 1), (0.1, syncs + 1)):
        clock.now += seconds
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)
        broker.process()
        assert broker.disk.syncs == synced


def test_few_acknowledgements_are_written_without_the_writer() -> None:
    broker = DurableBroker(at_once=False)
    queue = broker.declare()
    broker.vhost.publish(numbered(0, 600), 0.0)
    broker.drain()
    receiver = broker.client.receiver

    def acknowledge(*tags: int) -> None:
        for tag in tags:
            receiver.acknowledge(tag, tag, multiple=False)
        broker.process()

    for _ in range(600):
        receiver.take_one(queue, 0.0, auto_ack=False)
    acknowledge(1, 2, 4)
    assert not broker.writer.work
    assert broker.store.safe == broker.store.mark
    assert [body for body, _ in broker.reopened().take()] == [b"%d" % at for at in (2, *range(4, 600))]
    acknowledge(*range(6, 600, 2))  # too many ranges
    assert len(broker.writer.work) == 1
    acknowledge(5)  # while the writer is busy
    assert len(broker.reopened().take()) == 597
    broker.drain()
    assert len(broker.reopened().take()) == 299
    broker.disk.fail = failing("write", 1)
    acknowledge(7)
    assert broker.writer.delays[-1] == 1.0
    broker.drain()
    assert len(broker.reopened().take()) == 298


def test_groups_grow_while_the_disk_is_busy() -> None:
    broker = DurableBroker(at_once=False)
    broker.declare()
    for number in range(1000):
        broker.vhost.publish(persistent(b"%d" % number), 0.0)
        broker.process()
    broker.writer.wait()
    assert broker.disk.syncs == 2
    assert len(broker.reopened().take_all()) == 1000


def test_what_comes_and_goes_within_a_turn_is_not_written() -> None:
    broker = DurableBroker()
    broker.client.consume(broker.declare(), auto_ack=True)
    broker.process()
    size = broker.disk.used()
    broker.vhost.publish(persistent(b"x" * 10_000), 0.0)
    assert broker.client.bodies() == [b"x" * 10_000]
    assert broker.disk.used() - size < 200


def test_a_damaged_record_costs_its_own_messages() -> None:
    before = DurableBroker()
    before.declare()
    for number in range(3):
        before.vhost.publish(persistent(b"message %d" % number), 0.0)
    before.process()
    (name,) = before.disk.names()
    octets = before.disk.contents[name]
    octets[octets.index(b"message 1")] ^= 1
    after = before.reopened()
    assert after.take_all() == [b"message 0", b"message 2"]
    ((what, detail),) = after.reports
    assert (what, name in detail) == ("damaged", True)
    assert after.store.statistics()["damaged_records"] == 1


def test_damage_that_comes_later_is_met_when_reading() -> None:
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare()
    for number in range(3):
        broker.vhost.publish(persistent(b"message %d" % number), 0.0)
        broker.process()
    assert queue.backlog.paged == 27
    (name,) = broker.disk.names()
    octets = broker.disk.contents[name]
    octets[octets.index(b"message 1")] ^= 1
    assert broker.take_all() == [b"message 0", b"message 2"]
    assert (queue.backlog.count, queue.backlog.size, queue.backlog.paged) == (0, 0, 0)
    assert [what for what, _ in broker.reports] == ["damaged", "lost"]
    assert broker.store.statistics()["lost_messages"] == 1


def test_a_body_cannot_pretend_to_be_a_record() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(persistent(b"first"), 0.0)
    before.process()
    (name,) = before.disk.names()
    forged = bytes(before.disk.contents[name]).replace(b"\xd7marker\xe9", b"another!")
    other = DurableBroker()
    other.declare()
    other.vhost.publish(persistent(forged), 0.0)
    other.process()
    octets = other.disk.contents[name]
    octets[octets.index(forged) - 1] ^= 1
    assert other.reopened().take_all() == []


def test_pages_and_their_limits() -> None:
    broker = DurableBroker(queue_bytes=1000)
    queue = broker.declare()
    for number in range(100):
        broker.vhost.publish(persistent(b"%02d" % number + b"x" * 98), 0.0)
        broker.process()
    assert queue.backlog.size - queue.backlog.paged <= 1100
    assert len(queue.backlog.levels[0]) < 20
    assert [body[:2] for body in broker.take_all()] == [b"%02d" % number for number in range(100)]
    assert not any(segment.pages for segment in broker.store.log.segments)


def test_transient_messages_are_paged_as_well() -> None:
    broker = DurableBroker(queue_bytes=1000)
    queue = broker.declare(durable=False)
    for number in range(100):
        broker.vhost.publish(run(b"%02d" % number + b"x" * 98), 0.0)
        broker.process()
    assert queue.backlog.size - queue.backlog.paged <= 1100
    assert [body[:2] for body in broker.take_all()] == [b"%02d" % number for number in range(100)]
    assert broker.overflow.syncs == 0


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_a_queue_that_goes_gives_back_what_it_had_on_the_disk(how: str) -> None:
    broker = DurableBroker(queue_bytes=0, segment_bytes=1000)
    queue = broker.declare(durable=False)
    for _ in range(100):
        broker.vhost.publish(run(b"x" * 100), 0.0)
        broker.process()
    assert broker.overflow.used() > 10_000
    if how == "purge":
        queue.purge(0.0)
    else:
        broker.vhost.delete_queue("q", None, 0.0)
    broker.process()
    assert broker.overflow.used() < 2000
    assert len(broker.overflow.names()) <= 2


@pytest.mark.parametrize("durable", [True, False])
def test_publishers_wait_when_memory_fills_faster_than_the_disk(durable: bool) -> None:
    broker = DurableBroker(at_once=False, queue_bytes=1000, most_waiting_bytes=5000)
    queue = broker.declare(durable=durable)
    broker.drain()
    for _ in range(100):
        broker.vhost.publish(run(b"x" * 100, persistent=durable), 0.0)
        broker.process()
    assert broker.store.full
    broker.drain()
    assert not broker.store.full
    assert queue.backlog.size - queue.backlog.paged <= 1100
    assert len(broker.take_all()) == 100


def test_of_a_batch_only_what_was_written_is_looked_for_on_disk() -> None:
    broker = DurableBroker(queue_bytes=0, at_once=False)
    queue = broker.declare(durable=False)
    broker.client.consume(queue)
    broker.vhost.publish(run(*[b"%d" % number for number in range(10)]), 0.0)
    assert len(broker.client.received()) == 10
    broker.vhost.unsubscribe(broker.client.receiver.consumers["c"], 0.0)
    for first, last in (
        (1, 5),
        (6, 10),
    ):  # the first half is on its way to the disk when the second one comes back
        broker.client.receiver.reject(first, last, multiple=False, requeue=True, now=0.0)
        broker.process()
    broker.drain()
    broker.drain()
    assert queue.backlog.paged == queue.backlog.size > 0
    assert broker.take_all() == [b"%d" % number for number in range(10)]


def test_what_one_queue_has_too_little_another_has_not_less_too_much() -> None:
    broker = DurableBroker(at_once=False, queue_bytes=10_000, most_waiting_bytes=5000)
    for name in ("emptied", "long"):
        broker.declare(name, durable=False)
        for _ in range(101):
            broker.vhost.publish(run(b"x" * 100, key=name), 0.0)
        broker.process()
    assert len(broker.take_all("emptied")) == 101
    for _ in range(60):  # the writer has begun, and is slow
        broker.vhost.publish(run(b"x" * 100, key="long"), 0.0)
        broker.process()
    assert broker.store.full
    broker.drain()
    assert not broker.store.full


def test_a_lazy_queue_holds_little() -> None:
    broker = DurableBroker(lazy_bytes=300)
    eager, lazy = broker.declare("eager"), broker.declare("lazy", queue_mode="lazy")
    for number in range(20):
        broker.vhost.publish(persistent(b"%02d" % number + b"x" * 98, key="eager"), 0.0)
        broker.vhost.publish(persistent(b"%02d" % number + b"x" * 98, key="lazy"), 0.0)
        broker.process()
    assert eager.backlog.paged == 0
    assert lazy.backlog.size - lazy.backlog.paged <= 400


def test_what_comes_back_finds_its_place_among_pages() -> None:
    broker = DurableBroker(queue_bytes=0)
    queue = broker.declare()
    broker.vhost.publish(numbered(0, 30), 0.0)
    receiver = broker.client.receiver
    for _ in range(30):
        receiver.take_one(queue, 0.0, auto_ack=False)
    broker.vhost.publish(numbered(30, 40), 0.0)
    for first in (10, 0, 20):
        receiver.reject(first + 1, first + 5, multiple=False, requeue=True, now=0.0)
        broker.process()
    receiver.recover()
    assert [int(body) for body in broker.take_all()] == list(range(40))


def test_single_messages_come_back_as_one_batch() -> None:
    before = DurableBroker()
    before.declare()
    envelope = persistent(b"").envelope
    for number in range(100):
        before.vhost.publish(batch_of([b"%d" % number], envelope), 0.0)
    before.process()
    after = before.reopened()
    spans, count, _ = after.queue().backlog.take(1000, 1 << 20)
    assert (len(spans), count) == (1, 100)
