"""Taps of a broker: what is published is seen, and what becomes of it does not change."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.host import taps as taps_module
from plugins.engines.broker.host.taps import LEASE, BrokerTapWanted, TapRead, Taps
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import make_vhost, ready, run


class Clock:
    """The part of a host that taps use."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: dict[object, tuple[float, Any]] = {}

    def now(self) -> float:
        return self.time

    def set_timer(self, when: float | None, callback: Any, key: object) -> None:
        if when is None:
            self.timers.pop(key, None)
        else:
            self.timers[key] = when, callback

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        for key, (when, callback) in list(self.timers.items()):
            if when <= self.time:
                del self.timers[key]
                callback()


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = make_vhost()
    for name in ("q", "r"):
        vhost.bind("amq.topic", vhost.declare_queue(name, None, 0.0), f"{name}.#")
    return vhost


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def taps(vhost: VirtualHost, clock: Clock) -> Taps:
    return Taps(clock, {"/": vhost}.__getitem__)  # type: ignore[arg-type]


def add(taps: Taps, **wanted: Any) -> int:
    return int(taps.add(BrokerTapWanted(**wanted))["tap"])


def seen(taps: Taps, number: int, most: int = 100) -> list[str]:
    return [row["body"] for row in taps.read(TapRead(tap=number, most=most))["messages"]]


def test_a_queue_is_watched_whatever_leads_to_it(vhost: VirtualHost, taps: Taps) -> None:
    number = add(taps, queue="q")
    vhost.publish(run(b"by name"), 0.0)
    vhost.publish(run(b"by binding", key="q.1", exchange="amq.topic"), 0.0)
    vhost.publish(run(b"elsewhere", key="r.1", exchange="amq.topic"), 0.0)
    assert seen(taps, number) == ["by name", "by binding"]
    assert seen(taps, number) == []
    assert ready(vhost.queues["q"]) == [b"by name", b"by binding"]


def test_an_exchange_is_watched_also_for_what_nobody_gets(vhost: VirtualHost, taps: Taps) -> None:
    number = add(taps, exchange="amq.topic", keys=("none.*",))
    assert vhost.publish(run(b"1", key="none.1", exchange="amq.topic"), 0.0) is None
    assert vhost.publish(run(b"2", key="q.1", exchange="amq.topic"), 0.0) == 1
    assert seen(taps, number) == ["1"]
    assert vhost.messages_unrouted == 1


def test_what_was_published_before_under_the_same_envelope_does_not_hide_it(
    vhost: VirtualHost, taps: Taps
) -> None:
    batch = run(b"1")
    vhost.publish(batch, 0.0)
    number = add(taps, queue="q")
    vhost.publish(batch, 0.0)
    assert seen(taps, number) == ["1"]
    taps.end(number)
    vhost.publish(batch, 0.0)
    assert vhost.routes.find(batch.envelope).sinks == ()
    with pytest.raises(KernelError, match="there is no tap 1"):
        seen(taps, number)


def test_a_dead_letter_is_seen(vhost: VirtualHost, taps: Taps) -> None:
    limits = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    vhost.declare_queue("small", None, 0.0, arguments=limits)
    number = add(taps, queue="q")
    vhost.publish(run(b"1", b"2", key="small"), 0.0)
    vhost.process(0.0)
    assert seen(taps, number) == ["1"]


def test_a_full_queue_refuses_as_before(vhost: VirtualHost, taps: Taps) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    vhost.declare_queue("small", None, 0.0, arguments=limits)
    add(taps, queue="small")
    assert vhost.publish(run(b"1", b"2", key="small"), 0.0) == 1


def test_what_is_too_much_is_dropped_and_counted(
    vhost: VirtualHost, taps: Taps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taps_module, "_MOST_WAITING", 4)
    number = add(taps, queue="q")
    for first in range(0, 12, 3):
        vhost.publish(run(*(b"%d" % each for each in range(first, first + 3))), 0.0)
    answer = taps.read(TapRead(tap=number, most=5))
    assert [row["body"] for row in answer["messages"]] == ["0", "1", "2", "3", "4"]
    assert answer["dropped"] == 7
    vhost.publish(run(b"again"), 0.0)
    assert seen(taps, number) == ["again"]


def test_a_tap_that_nobody_asks_for_is_removed(vhost: VirtualHost, taps: Taps, clock: Clock) -> None:
    number, other = add(taps, queue="q"), add(taps, queue="r")
    clock.pass_time(LEASE - 1)
    seen(taps, number)
    clock.pass_time(2)
    vhost.publish(run(b"1"), 0.0)
    assert seen(taps, number) == ["1"]
    with pytest.raises(KernelError, match=f"there is no tap {other}"):
        seen(taps, other)
    clock.pass_time(LEASE)
    assert clock.timers == {}
    assert vhost.routes._taps == []
