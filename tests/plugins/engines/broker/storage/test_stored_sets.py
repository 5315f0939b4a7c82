"""Stored sets: what a front end keeps is there after a restart, together with what queues have or not at all."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.span import Span
from plugins.engines.broker.storage import compactor
from plugins.engines.broker.storage.definition_records import (
    FORMAT,
    SetDefinition,
    decode_definition,
    encode_definition,
)
from plugins.engines.broker.storage.framing import Kind, Record, RecordReader, frame
from plugins.engines.broker.storage.message_records import decode_head, decode_messages
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.broker.stored_set import StoredSet
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.disks import MemoryDisk
from tests.plugins.engines.broker.storage.durable import MARKER, DurableBroker
from tests.plugins.engines.broker.storage.test_format_1 import FOLDERS, Opened

SMALL = 4096
SEGMENT = "000000000001.log"


def keep(stored_set: StoredSet, *bodies: bytes, number: int | None = None) -> int:
    """Keep messages from a number on, or from the next; return the number of the first."""
    number = stored_set.next_number if number is None else number
    stored_set.keep(Span(number, run(*bodies, key="topic"), 0, len(bodies)))
    return number


def found_in(stored_set: StoredSet) -> dict[int, bytes]:
    return {message.number: bytes(message.body) for message in stored_set.messages()}


def records_of(octets: bytes) -> Iterator[Record]:
    for item in RecordReader(lambda at, count: octets[at : at + count], MARKER, 0, len(octets)):
        assert isinstance(item, Record)
        yield item


def churn(broker: DurableBroker, count: int) -> None:
    """Publish and take so many messages, so that old segments die."""
    queue = broker.vhost.queues.get("busy") or broker.declare("busy")
    for number in range(count):
        broker.vhost.publish(run(b"%d" % number * 60, key="busy", persistent=True), 0.0)
        broker.process()
        broker.client.receiver.take_one(queue, 0.0, auto_ack=True)


# What survives


def test_messages_are_there_after_a_restart_with_numbers_envelopes_and_expiry() -> None:
    before = DurableBroker()
    kept = before.vhost.stored_set("mqtt.retained")
    first = Envelope(key="a/b", exchange="amq.topic", properties={"headers": {"x": [1, b"\xff"]}})
    kept.keep(Span(0, batch_of([b"one", b"two"], first), 0, 2))
    kept.keep(Span(8, batch_of([b"", b"three", b""], Envelope(key="c", persistent=True)), 1, 2, 60.0))
    before.vhost.stored_set("mqtt.received.\udcff")
    before.process()
    after = before.reopened(now=0.0)
    again = after.vhost.stored_sets["mqtt.retained"]
    assert again.numbers() == [(0, 2), (9, 10)]
    assert again.next_number == 10
    messages = list(again.messages())
    assert [(each.number, each.body, each.envelope.key, each.expires_at) for each in messages] == [
        (0, b"one", "a/b", None),
        (1, b"two", "a/b", None),
        (9, b"three", "c", 60.0),
    ]
    assert messages[0].envelope.properties == first.properties
    assert messages[0].envelope is messages[1].envelope
    assert list(again.messages()) == []
    assert again.numbers() == [(0, 2), (9, 10)]
    assert set(after.vhost.stored_sets) == {"mqtt.retained", "mqtt.received.\udcff"}
    assert before.reports == after.reports == []


@pytest.mark.parametrize("how", ["before it was written", "with the next group", "after a restart"])
def test_what_was_dropped_does_not_come_back(how: str) -> None:
    broker = DurableBroker()
    kept = broker.vhost.stored_set("s")
    for number in range(10):
        keep(kept, b"%d" % number)
    if how != "before it was written":
        broker.process()
    if how == "after a restart":
        broker = broker.reopened()
        kept = broker.vhost.stored_sets["s"]
    kept.drop(2, 4)
    kept.drop(7, 8)
    kept.drop(7, 8)
    left = {number: b"%d" % number for number in (0, 1, 4, 5, 6, 8, 9)}
    assert kept.numbers() == [(0, 2), (4, 7), (8, 10)]
    if how == "after a restart":
        assert found_in(kept) == left
    broker.process()
    after = broker.reopened().vhost.stored_sets["s"]
    assert after.numbers() == [(0, 2), (4, 7), (8, 10)]
    assert found_in(after) == left
    assert after.next_number == 10


def test_a_clean_end_leaves_what_a_crash_leaves() -> None:
    before = DurableBroker()
    keep(before.vhost.stored_set("s"), b"one", b"two")
    after = DurableBroker(before.close().after_kill())
    assert found_in(after.vhost.stored_sets["s"]) == {0: b"one", 1: b"two"}


def test_sets_of_one_name_in_two_virtual_hosts_are_two() -> None:
    before = DurableBroker()
    keep(before.vhost.stored_set("s"), b"here")
    keep(before.broker.add_vhost("/other").stored_set("s"), b"there")
    before.process()
    after = before.reopened()
    assert found_in(after.vhost.stored_sets["s"]) == {0: b"here"}
    assert found_in(after.broker.vhosts["/other"].stored_sets["s"]) == {0: b"there"}


def test_a_deleted_set_is_gone_and_another_of_its_name_is_empty() -> None:
    before = DurableBroker(segment_bytes=SMALL)
    keep(before.vhost.stored_set("s"), b"old")
    keep(before.vhost.stored_set("gone"), b"old")
    before.process()
    broker = before.reopened(segment_bytes=SMALL)
    deleted = broker.vhost.stored_sets["s"]
    broker.vhost.delete_stored_set("s")
    broker.vhost.delete_stored_set("gone")
    broker.vhost.delete_stored_set("never there")
    assert not any(segment.pages for segment in broker.store.log.segments)
    deleted.drop(0, 1)
    keep(deleted, b"of no use")
    assert (deleted.numbers(), list(deleted.messages())) == ([], [])
    keep(broker.vhost.stored_set("s"), b"new")
    broker.process()
    after = broker.reopened()
    assert set(after.vhost.stored_sets) == {"s"}
    assert found_in(after.vhost.stored_sets["s"]) == {0: b"new"}


def test_without_a_directory_nothing_is_kept() -> None:
    vhost = Broker().vhost("/")
    kept = vhost.stored_set("s")
    assert vhost.stored_set("s") is kept
    assert keep(kept, b"one", b"two") == 0
    kept.drop(0, 1)
    assert (kept.next_number, kept.numbers(), list(kept.messages())) == (2, [], [])
    vhost.delete_stored_set("s")
    assert vhost.stored_sets == {}


# When it is safe


def test_a_set_and_its_changes_are_safe_when_the_store_says_so() -> None:
    broker = DurableBroker(at_once=False)
    store, version = broker.store, broker.store.definition_version
    kept = broker.vhost.stored_set("s")
    assert store.definition_version == version + 1
    assert broker.vhost.stored_set("s") is kept
    assert store.definition_version == version + 1
    keep(kept, b"one")
    mark = store.mark
    assert store.safe < mark
    broker.drain()
    assert store.safe == mark
    assert found_in(broker.reopened().vhost.stored_sets["s"]) == {0: b"one"}
    syncs = broker.disk.syncs
    kept.drop(0, 1)
    broker.process()
    assert broker.disk.syncs == syncs
    assert store.demand() > mark
    broker.drain()
    assert broker.disk.syncs == syncs + 1
    broker.vhost.delete_stored_set("s")
    assert store.definition_version == version + 2


def test_an_envelope_that_cannot_be_written_is_refused_and_takes_no_number() -> None:
    broker = DurableBroker()
    kept = broker.vhost.stored_set("s")
    with pytest.raises(PreconditionFailed, match="cannot be stored"):
        kept.keep(Span(0, batch_of([b"x"], Envelope(key="k", properties={"a": object()})), 0, 1))
    assert (kept.next_number, kept.numbers()) == (0, [])
    broker.process()


# Numbers


def test_a_number_is_used_once() -> None:
    kept = DurableBroker().vhost.stored_set("s")
    keep(kept, b"x", number=5)
    for number in (0, 5):
        with pytest.raises(ValueError, match=r"'s', next number 6.* number"):
            keep(kept, b"x", number=number)
    assert kept.numbers() == [(5, 6)]


def test_identifiers_that_come_again_get_numbers_that_ascend() -> None:
    kept = StoredSet("s", Broker().vhost("/"))
    given = []
    for identifier in (1, 2, 3, 2, 65535, 0, 1, 1):
        given.append(kept.number_for(identifier))
        kept.next_number = given[-1] + 1
    assert given == [1, 2, 3, 0x10002, 0x1FFFF, 0x20000, 0x20001, 0x30001]
    assert kept.number_for(3, bits=2) == 0x30003


def test_an_identifier_is_used_again_and_again_with_restarts_between() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    broker.vhost.stored_set("s")
    for turn in range(100):
        kept = broker.vhost.stored_sets["s"]
        number = keep(kept, b"turn %d" % turn, number=kept.number_for(7))
        broker.process()
        broker = broker.reopened(segment_bytes=SMALL)
        kept = broker.vhost.stored_sets["s"]
        assert found_in(kept) == {number: b"turn %d" % turn}
        assert number & 0xFFFF == 7
        kept.drop(number, number + 1)
        if turn % 3:
            broker.process()
            broker = broker.reopened(segment_bytes=SMALL)


def test_numbers_go_on_when_the_segments_that_had_them_are_gone() -> None:
    broker = DurableBroker(segment_bytes=SMALL)
    kept = broker.vhost.stored_set("s")
    keep(kept, b"x", number=1 << 40)
    kept.drop(0, 1 << 50)
    churn(broker, 300)
    assert SEGMENT not in broker.disk.names()
    after = broker.reopened(segment_bytes=SMALL).vhost.stored_sets["s"]
    assert (after.numbers(), after.next_number) == ([], (1 << 40) + 1)


def test_to_drop_numbers_that_are_still_to_come_does_not_harm_them() -> None:
    broker = DurableBroker()
    kept = broker.vhost.stored_set("s")
    kept.drop(0, 100)
    keep(kept, b"x")
    broker.process()
    assert found_in(broker.reopened().vhost.stored_sets["s"]) == {0: b"x"}


# One record with the queues


def life_with_queues() -> DurableBroker:
    """Publish five messages, each with its number; the second has a queue make room before it accepts."""
    broker = DurableBroker()
    kept = broker.vhost.stored_set("received")
    broker.declare("dead")
    full = {"max_length": 50, "overflow": "reject-publish", "dead_letter_exchange": ""}
    for name, arguments in {
        "first": {},
        "makes room": {**full, "dead_letter_routing_key": "dead"},
        "last": {},
    }.items():
        broker.vhost.bind("amq.fanout", broker.declare(name, **arguments))
    broker.process()
    publish(broker, kept, b"message 1", expiration=1000)
    # Message 1 is dead-lettered in the middle of this, behind what the first queue has stored.
    publish(broker, kept, b"message 2", now=10.0)
    publish(broker, kept, b"message 3")
    broker.process(10.0)
    kept.drop(1, 2)
    publish(broker, kept, b"message 4")
    broker.process(10.0)
    publish(broker, kept, b"message 5")
    broker.process(10.0)
    return broker


def publish(
    broker: DurableBroker, kept: StoredSet, body: bytes, now: float = 10.0, expiration: int | None = None
) -> None:
    if expiration is not None:
        now = 0.0
    batch = run(body, exchange="amq.fanout", persistent=True, expiration=expiration)
    assert broker.vhost.publish(batch, now) == 1
    kept.keep(Span(kept.number_for(int(body[-1:])), batch, 0, 1))
    if expiration is not None:
        broker.process(now)


def entries_by_body(octets: bytes) -> dict[bytes, list[set[int]]]:
    """By body: the queues and sets of each record that has it."""
    found: dict[bytes, list[set[int]]] = {}
    for record in records_of(octets):
        if record.kind == Kind.MESSAGES:
            queues = {entry.queue for entry in decode_head(record.payload).entries}
            for body in decode_messages(record.payload).bodies:
                found.setdefault(body, []).append(queues)
    return found


def test_a_number_is_in_one_record_with_what_all_queues_have() -> None:
    broker = life_with_queues()
    queues = {broker.queue(name).stored.number for name in ("first", "makes room", "last")}
    everything = queues | {broker.vhost.stored_sets["received"].stored.number}
    found = entries_by_body(bytes(broker.disk.contents[SEGMENT]))
    assert found.pop(b"message 1") == [everything, {broker.queue("dead").stored.number}]
    assert found == {b"message %d" % number: [everything] for number in (2, 3, 4, 5)}


@pytest.mark.slow
def test_a_cut_anywhere_leaves_a_message_and_its_number_or_neither() -> None:
    octets = bytes(life_with_queues().disk.contents[SEGMENT])
    seen = set()
    for cut in range(len(octets) + 1):
        disk = MemoryDisk()
        disk.contents[SEGMENT] = bytearray(octets[:cut])
        broker = DurableBroker(disk)
        if len(broker.vhost.queues) < 4 or "received" not in broker.vhost.stored_sets:
            continue
        kept = broker.vhost.stored_sets["received"]
        numbers = {number for first, stop in kept.numbers() for number in range(first, stop)}
        assert {number: b"message %d" % number for number in numbers} == found_in(kept), cut
        for name in ("first", "last"):
            published = {int(body[-1:]) for body in broker.take_all(name)}
            assert numbers | {1} == published | {1}, cut
        seen.add(frozenset(numbers))
    expected = [set(), {1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4}, {2, 3, 4, 5}]
    assert seen == set(map(frozenset, expected))


def room_is_made(broker: DurableBroker) -> tuple[DurableBroker, StoredSet]:
    """Return a broker where the next batch, at 10.0, is stored in two parts, and a set."""
    kept = broker.vhost.stored_set("received")
    broker.declare("dead")
    broker.vhost.bind("amq.fanout", broker.declare("first"))
    expiring = broker.declare(
        "second",
        max_length=50,
        overflow="reject-publish",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    broker.vhost.bind("amq.fanout", expiring)
    expiring.publish(run(b"expires", persistent=True, expiration=1000), 0.0)
    broker.process()
    return broker, kept


def test_parts_of_one_record_are_read_back_by_each_queue() -> None:
    broker, kept = room_is_made(DurableBroker(queue_bytes=0))
    publish(broker, kept, b"message 1")
    broker.process(10.0)
    broker.process(10.0)
    for name in ("first", "second"):
        assert broker.queue(name).backlog.paged == len(b"message 1")
        assert broker.take_all(name, now=10.0) == [b"message 1"]
    assert broker.reports == []


def test_single_messages_with_numbers_in_a_row_are_joined_to_one_record() -> None:
    broker = DurableBroker()
    kept = broker.vhost.stored_set("received")
    for name in ("a", "b"):
        broker.vhost.bind("amq.fanout", broker.declare(name))
    envelope = run(exchange="amq.fanout", persistent=True).envelope
    for number in (1, 2, 3, 7, 8):
        batch = batch_of([b"%d" % number], envelope)
        broker.vhost.publish(batch, 0.0)
        kept.keep(Span(number, batch, 0, 1))
    broker.process()
    records = [
        decode_messages(record.payload).bodies
        for record in records_of(bytes(broker.disk.contents[SEGMENT]))
        if record.kind == Kind.MESSAGES
    ]
    assert records == [[b"1", b"2", b"3"], [b"7", b"8"]]
    after = broker.reopened()
    assert found_in(after.vhost.stored_sets["received"]) == {
        number: b"%d" % number for number in (1, 2, 3, 7, 8)
    }
    assert after.take_all("a") == after.take_all("b") == [b"1", b"2", b"3", b"7", b"8"]


def test_a_batch_in_memory_does_not_grow_when_it_is_joined_with_the_next() -> None:
    broker, kept = room_is_made(DurableBroker())
    # The dead letter is taken at once, so that nothing is written between the first batch and the second.
    broker.client.consume(broker.queue("dead"), auto_ack=True)
    envelope = run(exchange="amq.fanout", persistent=True).envelope
    batches = [batch_of([b"message %d" % number], envelope) for number in (1, 2, 3)]
    for number, batch in enumerate(batches, 1):
        broker.vhost.publish(batch, 10.0)
        kept.keep(Span(number, batch, 0, 1))
    broker.process(10.0)
    assert broker.client.bodies() == [b"expires"]
    assert [list(batch.bodies) for batch in batches] == [[b"message 1"], [b"message 2"], [b"message 3"]]
    (everything,) = entries_by_body(bytes(broker.disk.contents[SEGMENT]))[b"message 3"]
    assert len(everything) == 3


# Compaction and damage


@pytest.mark.slow
def test_messages_that_are_kept_for_long_are_moved_and_hold_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compactor, "_LEAST_READ", 500)
    before = DurableBroker(segment_bytes=SMALL)
    kept = before.vhost.stored_set("s")
    for number in range(20):
        keep(kept, b"%d" % number * 100)
    before.process()
    broker = before.reopened(segment_bytes=SMALL)
    kept = broker.vhost.stored_sets["s"]  # its messages are on pages, which nobody reads yet
    for number in range(20, 600):
        keep(kept, b"%d" % number * 100)
        kept.drop(number - 5, number - 4)
        broker.process()
        if number % 40 == 0:
            kept.drop(number // 40, number // 40 + 1)
    left = sorted({*range(15), *range(595, 600)} - set(range(1, 15)))
    assert [first for first, _ in kept.numbers()] == [0, 595]
    churn(broker, 600)
    assert SEGMENT not in broker.disk.names()
    assert broker.store.log.compactor.compacted > 3
    assert broker.disk.used() < 12 * SMALL
    after = broker.reopened(segment_bytes=SMALL).vhost.stored_sets["s"]
    assert found_in(after) == {number: b"%d" % number * 100 for number in left}
    assert found_in(kept) == {0: b"0" * 100}
    assert not any(segment.pages for segment in broker.store.log.segments)
    assert broker.store.statistics()["lost_messages"] == 0


def test_a_page_whose_first_segment_died_before_it_was_read_is_read_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compactor, "_LEAST_READ", 500)
    monkeypatch.setattr(compactor, "_NEAR", 0)
    before = DurableBroker(segment_bytes=SMALL)
    for number in range(40):
        keep(before.vhost.stored_set("s"), b"%d" % number * 100)
        before.process()
    broker = before.reopened(segment_bytes=SMALL)
    kept = broker.vhost.stored_sets["s"]
    (page,) = broker.store.log.segments[0].pages
    while len({extent.segment for extent in page.extents}) < 2:
        churn(broker, 1)
    dropped = 0
    while not page.extents[0].segment.gone:
        kept.drop(dropped, dropped + 1)
        dropped += 1
        broker.process()
    assert dropped < 39
    assert found_in(kept) == {number: b"%d" % number * 100 for number in range(dropped, 40)}
    statistics = broker.store.statistics()
    assert (statistics["lost_messages"], statistics["last_error"]) == (0, "")


def test_the_bytes_of_sets_are_those_of_the_store() -> None:
    broker = DurableBroker()
    keep(broker.vhost.stored_set("s"), b"x" * 10_000)
    broker.process()
    assert broker.store.statistics()["bytes"] > 10_000


def three_messages() -> DurableBroker:
    broker = DurableBroker()
    for number in range(3):
        kept = broker.vhost.stored_set("s")
        # An envelope of its own each, as topics have: they are not joined to one record.
        kept.keep(Span(number, batch_of([b"message %d" % number], Envelope(key=str(number))), 0, 1))
    broker.process()
    return broker


def damage(broker: DurableBroker) -> None:
    octets = broker.disk.contents[SEGMENT]
    octets[octets.index(b"message 1")] ^= 1


def test_a_damaged_record_costs_its_own_messages_and_is_reported() -> None:
    before = three_messages()
    damage(before)
    after = before.reopened()
    kept = after.vhost.stored_sets["s"]
    assert kept.numbers() == [(0, 1), (2, 3)]
    assert found_in(kept) == {0: b"message 0", 2: b"message 2"}
    assert [what for what, _ in after.reports] == ["damaged"]


def test_damage_that_comes_later_is_met_when_reading() -> None:
    broker = three_messages().reopened()
    damage(broker)
    kept = broker.vhost.stored_sets["s"]
    assert kept.numbers() == [(0, 3)]
    assert found_in(kept) == {0: b"message 0", 2: b"message 2"}
    assert kept.numbers() == [(0, 1), (2, 3)]
    assert [what for what, _ in broker.reports] == ["damaged", "lost"]
    assert broker.store.statistics()["lost_messages"] == 1


@pytest.mark.slow
def test_numbers_are_known_without_reading_and_messages_take_few_reads() -> None:
    before = DurableBroker()
    kept = before.vhost.stored_set("s")
    for number in range(5000):
        kept.keep(Span(number, batch_of([b"x" * 50], Envelope(key=f"topic/{number}")), 0, 1))
    before.process()
    broker = before.reopened()
    reads: list[str] = []
    broker.disk.fail = lambda operation: reads.append(operation)
    kept = broker.vhost.stored_sets["s"]
    assert kept.numbers() == [(0, 5000)]
    assert reads == []
    assert sum(1 for _ in kept.messages()) == 5000
    # A page is a quarter of a MiB, and is read at once.
    assert len(reads) <= 1 + broker.disk.used() // (200 * 1024)


# The format


def test_the_octets_of_a_definition() -> None:
    octets = b"\x95\xa3set\x07\xa1/\xadmqtt.retained\xce\x00\x01\x00\x00"
    definition = SetDefinition(7, "/", "mqtt.retained", 1 << 16)
    assert encode_definition(definition) == octets
    assert decode_definition(octets) == definition


def test_the_octets_of_a_message_that_a_queue_and_a_set_have() -> None:
    broker = DurableBroker()
    queue, kept = broker.declare("q"), broker.vhost.stored_set("s")
    batch: Batch = run(b"body", persistent=True)
    broker.vhost.publish(batch, 0.0)
    kept.keep(Span(0x10007, batch, 0, 1))
    broker.process()
    envelope = b"\0\x97\xa1q\xa0\xa0\xc3\x00\xc0\x80"
    payload = (
        struct.pack(">HIIIB", 2, 1, len(envelope), 4, 0)
        + struct.pack(">QqIId", queue.stored.number, 0, 0, 1, 0.0)
        + struct.pack(">QqIId", kept.stored.number, 0x10007, 0, 1, 0.0)
        + envelope
        + b"body"
    )
    assert bytes(broker.disk.contents[SEGMENT]).endswith(frame(MARKER, Kind.MESSAGES, payload))


@pytest.mark.parametrize("version", [0, FORMAT + 1])
def test_a_folder_of_an_unknown_format_is_refused(version: int) -> None:
    disk = MemoryDisk()
    head = frame(MARKER, Kind.SEGMENT, struct.pack(">HQQQ", version, 1, 0, 0))
    disk.contents[SEGMENT] = bytearray(head)
    with pytest.raises(
        CannotOpen, match=rf"{SEGMENT} has format {version}; this version reads formats up to"
    ):
        DurableBroker(disk)
    assert disk.contents[SEGMENT] == head


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_folder_of_format_2_is_read_and_can_have_sets(end: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDERS.parent / "format_2" / end, tmp_path / end))
    (segment,) = folder.glob("*.log")
    assert segment.read_bytes()[17:19] == b"\0\2"
    first = Opened(folder)
    assert first.bodies("orders") == [b"order %d" % number for number in range(5, 12)]
    assert [binding.key for binding in first.vhost.queues["orders"].incoming.values()] == ["order.#"]
    assert first.vhost.stored_sets == {}
    keep(first.vhost.stored_set("s"), b"new")
    first.turn()
    first.close()
    again = Opened(folder)
    assert again.bodies("orders") == [b"order %d" % number for number in range(5, 12)]
    assert found_in(again.vhost.stored_sets["s"]) == {0: b"new"}
    assert not [report for report in again.reports if report[0] != "cut"]
    again.close()
