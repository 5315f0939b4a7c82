"""Cuts and flipped bits at every octet of a small store: what was written before is there, what was not touched is served."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kernel.contracts.message import batch_of
from plugins.engines.broker.storage.framing import Kind, Record, RecordReader, header_of
from plugins.engines.broker.storage.message_records import MESSAGE_KINDS
from tests.plugins.engines.broker.client import run
from tests.plugins.engines.broker.storage.disks import MemoryDisk
from tests.plugins.engines.broker.storage.durable import MARKER, DurableBroker

SEGMENT = "000000000001.log"


class Moment(NamedTuple):
    """After so many octets were safe, the queues held this."""

    octets: int
    queues: dict[str, list[bytes]]


def contents(broker: DurableBroker) -> dict[str, list[bytes]]:
    return {name: broker.take_all(name) for name in sorted(broker.vhost.queues)}


@pytest.fixture(scope="module")
def history() -> tuple[bytes, list[Moment]]:
    """A small life: its segment, and what a reader must find after each group."""
    broker = DurableBroker()
    moments = [Moment(0, {})]

    def safe() -> None:
        broker.process()
        moments.append(Moment(broker.disk.used(), contents(DurableBroker(broker.disk.after_kill()))))

    a = broker.declare("a")
    safe()
    broker.vhost.bind("amq.fanout", a)
    broker.vhost.bind("amq.fanout", broker.declare("b"))
    safe()
    broker.vhost.publish(run(b"one", b"two", b"three", exchange="amq.fanout", persistent=True), 0.0)
    safe()
    broker.client.receiver.take_one(a, 0.0, auto_ack=True)
    broker.vhost.publish(batch_of([b"four"], run(key="b", persistent=True, headers={"h": 1}).envelope), 0.0)
    safe()
    broker.queue("b").purge(0.0)
    broker.vhost.publish(run(b"", b"five", key="a", persistent=True), 0.0)
    safe()
    broker.vhost.delete_queue("b", None, 0.0)
    safe()
    return bytes(broker.disk.contents[SEGMENT]), moments


def disk_with(octets: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.contents[SEGMENT] = bytearray(octets)
    return disk.after_kill()


def records_of(octets: bytes) -> list[Record]:
    found = list(RecordReader(lambda at, count: octets[at : at + count], MARKER, 0, len(octets)))
    assert all(isinstance(item, Record) for item in found)
    return [item for item in found if isinstance(item, Record)]


@pytest.mark.slow
@pytest.mark.parametrize("behind", [b"", bytes(1000)], ids=["nothing behind", "zeros behind"])
def test_a_cut_anywhere_loses_what_was_not_safe_only(
    history: tuple[bytes, list[Moment]], behind: bytes
) -> None:
    octets, moments = history
    boundaries = {record.stop for record in records_of(octets)} | {0}
    for cut in range(len(octets) + 1):
        broker = DurableBroker(disk_with(octets[:cut] + behind))
        stop = min(boundary for boundary in boundaries if boundary >= cut)
        if behind and not any(octets[cut:stop]):
            cut = stop  # the zeros that it lacks are there
        whole = max(moment for moment in moments if moment.octets <= cut)
        if cut == whole.octets:
            assert contents(broker) == whole.queues, cut
        else:  # part of the next group may be there: each of its records is, or is not
            following = moments[moments.index(whole) + 1]
            assert_between(contents(broker), whole.queues, following.queues)
        torn = [detail for what, detail in broker.reports if what == "cut"]
        assert len(torn) == (cut not in boundaries and cut > min(boundaries - {0})), cut
        assert not broker.store.log.counters.damaged
        # What was cut is gone for good: the next start finds nothing wrong.
        broker.process()
        assert not [what for what, _ in broker.reopened().reports if cut > min(boundaries - {0})]


def assert_between(
    found: dict[str, list[bytes]], before: dict[str, list[bytes]], after: dict[str, list[bytes]]
) -> None:
    for name in found.keys() | (before.keys() & after.keys()):
        must = set(before.get(name, ())) & set(after.get(name, ()))
        may = set(before.get(name, ())) | set(after.get(name, ()))
        assert must <= set(found[name]) <= may


@pytest.mark.slow
def test_a_flipped_bit_anywhere_costs_one_record(history: tuple[bytes, list[Moment]]) -> None:
    octets, moments = history
    final = moments[-1].queues
    everything = {body for moment in moments for bodies in moment.queues.values() for body in bodies}
    records = records_of(octets)
    for at in range(len(octets)):
        flipped = bytearray(octets)
        flipped[at] ^= 1 << at % 8
        broker = DurableBroker(disk_with(bytes(flipped)))
        found = contents(broker)
        hit = next(record for record in records if record.start <= at < record.stop)
        assert (
            len(broker.store.log.counters.damaged) + sum(what == "cut" for what, _ in broker.reports) == 1
        ), at
        # A definition is there twice, so queues never go; a lost acknowledgement may bring messages back.
        assert final.keys() <= found.keys(), at
        assert {body for bodies in found.values() for body in bodies} <= everything
        lost = set(final["a"]) - set(found["a"])
        assert lost <= {body for body in final["a"] if body in bytes(hit.payload)}, at


@pytest.mark.parametrize("octets", [b"", bytes(1000), b"marker"], ids=["empty", "zeros", "cut"])
def test_a_kill_between_the_creation_of_a_segment_and_its_first_write_is_no_damage(octets: bytes) -> None:
    broker = DurableBroker(inventory=True)
    broker.declare()
    for number, name in enumerate(("000000000002.log", "000000000003.log")):
        broker.vhost.publish(run(b"%d" % number, persistent=True), 0.0)
        broker.process()
        # The segment before is finished before another one is created: it has no zeros any more.
        broker.disk.reserved.clear()
        disk = broker.disk.after_kill()
        disk.contents[name] = bytearray(broker.store.log.marker[:3] if octets == b"marker" else octets)
        broker = broker.reopened(disk, inventory=True)
        assert [what for what, _ in broker.reports] == (["cut"] if octets.strip(b"\0") else [])
    broker = broker.reopened(inventory=True)
    assert broker.reports == []
    assert broker.take_all() == [b"0", b"1"]


def test_nothing_of_ours_is_in_an_empty_directory() -> None:
    assert DurableBroker(MemoryDisk()).vhost.queues == {}
    assert DurableBroker(disk_with(b"")).vhost.queues == {}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind != Kind.SEGMENT])
@pytest.mark.parametrize("payload", [b"", b"\xff", b"\xff" * 100, bytes(7)])
def test_a_record_whose_checksum_is_right_and_whose_content_is_not_costs_one_record(
    history: tuple[bytes, list[Moment]], kind: Kind, payload: bytes
) -> None:
    octets, moments = history
    broker = DurableBroker(disk_with(octets + header_of(MARKER, kind, payload) + payload))
    assert contents(broker) == moments[-1].queues
    assert {what for what, _ in broker.reports} <= {"damaged"}


def three_segments() -> MemoryDisk:
    broker = DurableBroker(segment_bytes=2000)
    broker.declare("q")
    for number in range(40):
        broker.vhost.publish(run(b"%d" % number * 100, key="q", persistent=True), 0.0)
        broker.drain()
    assert len(broker.disk.contents) >= 3
    return broker.disk.after_kill()


def after(change: str, octets: bytearray) -> bytes | None:
    """The middle segment as somebody has left it: ``None`` if it is gone."""
    if change == "removed":
        return None
    if change == "emptied":
        return b""
    return bytes(octets[: records_of(bytes(octets))[-1].start])


@pytest.mark.parametrize("change", ["removed", "emptied", "cut where a record ends"])
def test_a_segment_that_somebody_has_changed_is_told(change: str) -> None:
    disk = three_segments()
    name = sorted(disk.contents)[1]
    left = after(change, disk.contents[name])
    if left is None:
        disk.remove(name)
    else:
        disk.contents[name] = bytearray(left)
    broker = DurableBroker(disk)
    assert [(what, detail.partition(":")[0]) for what, detail in broker.reports] == [("damaged", name)]
    assert broker.store.statistics()["damaged_records"] == 1
    assert 0 < len(broker.take_all()) < 40, "the other segments are read"


@pytest.mark.parametrize("starts", [0, 1, 2])
def test_a_last_segment_that_was_cut_is_told_although_a_broker_was_started_and_killed(starts: int) -> None:
    first = DurableBroker(inventory=True)
    first.declare("q")
    for body in (b"1", b"2", b"3"):
        first.vhost.publish(run(body, key="q", persistent=True), 0.0)
        first.drain()
    disk = first.close()
    for _ in range(starts):
        disk = DurableBroker(disk, inventory=True).disk.after_kill()
    name = max(name for name in disk.contents if name.endswith(".log"))
    marker = bytes(disk.contents["marker"][: len(MARKER)])
    octets = bytes(disk.contents[name])
    records = [*RecordReader(lambda at, count: octets[at : at + count], marker, 0, len(octets))]
    whole = DurableBroker(disk.after_kill(), inventory=True)
    assert (whole.reports, whole.take_all()) == ([], [b"1", b"2", b"3"])
    messages = [each for each in records if isinstance(each, Record) and each.kind in MESSAGE_KINDS]
    disk.contents[name] = bytearray(octets[: messages[-1].start])
    cut = DurableBroker(disk, inventory=True)
    assert [(what, detail.partition(":")[0]) for what, detail in cut.reports] == [("damaged", name)]
    assert cut.take_all() == [b"1", b"2"]


def test_segments_that_the_store_has_deleted_itself_are_not_missed() -> None:
    broker = DurableBroker(three_segments(), segment_bytes=2000)
    for _ in range(30):
        broker.client.receiver.take_one(broker.queue(), 0.0, auto_ack=True)
    broker.drain()
    assert min(broker.disk.contents) != SEGMENT
    again = DurableBroker(broker.disk.after_kill())
    assert again.reports == []
    assert len(again.take_all()) == 10
