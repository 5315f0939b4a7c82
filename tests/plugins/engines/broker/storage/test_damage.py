"""Cuts and flipped bits at every octet of a small store: what was written before is there, what was not touched is served."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kernel.contracts.message import batch_of
from plugins.engines.broker.storage.framing import Record, RecordReader
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
        # A definition is there twice, so queues never go; a lost settlement may bring messages back.
        assert final.keys() <= found.keys(), at
        assert {body for bodies in found.values() for body in bodies} <= everything
        lost = set(final["a"]) - set(found["a"])
        assert lost <= {body for body in final["a"] if body in bytes(hit.payload)}, at


def test_nothing_of_ours_is_in_an_empty_directory() -> None:
    assert DurableBroker(MemoryDisk()).vhost.queues == {}
    assert DurableBroker(disk_with(b"")).vhost.queues == {}
