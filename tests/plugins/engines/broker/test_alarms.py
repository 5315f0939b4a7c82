"""Alarms: when they are raised and lifted, reading by reading."""

from __future__ import annotations

import pytest

from kernel.contracts.message import Batch, Envelope
from plugins.engines.broker.alarms import (
    PERIOD,
    Alarms,
    DiskAlarm,
    ProcessAlarm,
    QueuedAlarm,
    bytes_in_queues,
)
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.receiver import Window
from tests.notes import for_each
from tests.plugins.engines.broker.client import PLENTY, Client, run


@pytest.mark.parametrize(
    "readings, raised",
    [
        ([0, 1000, 1001], [False, False, True]),
        ([1001, 1000, 901, 900, 1000], [True, True, True, False, False]),
    ],
)
def test_queues_hold_too_much_until_they_hold_a_tenth_less(readings: list[int], raised: list[bool]) -> None:
    values = iter(readings)
    alarm = QueuedAlarm(1000, lambda: next(values))
    seen = []
    for _ in readings:
        alarm.check()
        seen.append(alarm.raised)
    assert seen == raised


@pytest.mark.parametrize(
    "readings, raised",
    [
        ([2000, 1000, 999], [False, False, True]),
        ([999, 1000, 1099, 1100, 1000], [True, True, True, False, False]),
    ],
)
def test_a_disk_has_too_little_until_it_has_a_tenth_more(readings: list[int], raised: list[bool]) -> None:
    values = iter(readings)
    alarm = DiskAlarm(1000, lambda: next(values))
    seen = []
    for _ in readings:
        alarm.check()
        seen.append(alarm.raised)
    assert seen == raised


@for_each(
    "before, resident, held, raised",
    [
        (False, 1001, 101, True),
        (False, 1000, 1000, False),
        (False, 5000, 100, False),
        (True, 901, 91, True),
        (True, 900, 500, False),
        (True, 5000, 90, False),
    ],
)
def test_a_process_is_too_large_while_its_queues_have_part_in_it(
    before: bool, resident: int, held: int, raised: bool
) -> None:
    alarm = ProcessAlarm(1000, lambda: resident, lambda: held)
    alarm.raised = before
    alarm.check()
    assert alarm.raised is raised


def test_memory_is_asked_back_once_the_queues_are_not_what_fills_it() -> None:
    asked: list[str] = []
    held = [2000]

    def resident() -> int:
        asked.append("read")
        return 2000

    alarm = ProcessAlarm(1000, resident, lambda: held[0], lambda: asked.append("give back"))
    alarm.check()
    alarm.check()
    assert asked == ["read", "read"]
    held[0] = 899
    alarm.check()
    assert asked == ["read", "read", "read", "give back", "read"]
    assert alarm.raised


def test_several_are_one() -> None:
    low = {"memory": 0, "disk": 500}
    alarms = Alarms(
        [
            QueuedAlarm(100, lambda: low["memory"]),
            ProcessAlarm(100, lambda: low["memory"], lambda: low["memory"]),
            DiskAlarm(100, lambda: low["disk"]),
        ]
    )
    assert (alarms.check(1.0), alarms.reason, alarms.next_check) == (False, "", 1.0 + PERIOD)
    low["memory"] = 101
    assert (alarms.check(2.0), alarms.reason) == (True, "low on memory")
    assert (alarms.check(3.0), alarms.reason) == (False, "low on memory")
    low["disk"] = 0
    assert (alarms.check(4.0), alarms.reason) == (True, "low on disk & memory")
    low["disk"], low["memory"] = 500, 0
    assert (alarms.check(5.0), alarms.reason) == (True, "")
    assert alarms.statistics() == {
        "alarms": "",
        "queued": 0,
        "queued_limit": 100,
        "memory": 0,
        "memory_limit": 100,
        "disk_free": 500,
        "disk_free_limit": 100,
    }


def test_what_queues_hold_grows_with_messages_and_goes_with_them() -> None:
    broker = Broker()
    vhost = broker.vhost("/")
    queue = vhost.declare_queue("q", None, 0.0)
    assert bytes_in_queues(broker) == 0
    vhost.publish(Batch([b"x" * 1000] * 10, 10_000, Envelope(key="q")), 0.0)
    broker.process(0.0)
    assert 10_000 < bytes_in_queues(broker) < 12_000
    span = queue.take(0.0)
    assert span is not None
    outstanding = bytes_in_queues(broker)
    queue.acknowledge(span)
    assert bytes_in_queues(broker) < outstanding
    queue.purge(0.0)
    assert bytes_in_queues(broker) == 0


def test_what_a_session_without_a_connection_has_unacknowledged_counts() -> None:
    broker = Broker()
    client = Client(broker.vhost("/"))
    client.consume(client.vhost.declare_queue("q", None, 0.0))
    client.vhost.publish(run(*[b"x" * 1000] * 10), 0.0)
    alarm = QueuedAlarm(5000, lambda: bytes_in_queues(broker))
    assert len(client.received()) == 10
    alarm.check()
    assert not alarm.raised, "the client reports these bytes itself while it is connected"
    client.receiver.detach()
    alarm.check()
    assert alarm.raised
    client.receiver.attach(Window(PLENTY), lambda: None, lambda consumer: None)
    alarm.check()
    assert not alarm.raised


def test_a_session_that_ends_without_a_connection_counts_no_more() -> None:
    broker = Broker()
    client = Client(broker.vhost("/"))
    consumer = client.consume(client.vhost.declare_queue("q", None, 0.0))
    client.vhost.publish(run(b"x" * 1000), 0.0)
    client.received()
    client.receiver.detach()
    client.vhost.unsubscribe(consumer, 0.0)
    client.receiver.recover()
    client.vhost.queues["q"].purge(0.0)
    assert bytes_in_queues(broker) == 0
    assert not broker.detached
