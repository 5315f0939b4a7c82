"""A group's source on a socket in memory: what it reports as sent, while the socket takes nothing."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from kernel.contracts.engine import EngineEvent, Host
from kernel.hosting.interfaces import Interface
from plugins.engines.pgm import group_source
from plugins.engines.pgm.group_source import GroupSource
from plugins.engines.pgm.location import Location
from plugins.engines.pgm.options import GroupOptions

GROUP = ipaddress.ip_address("239.192.77.3")
INTERFACE = Interface(name="lo", index=1, address=ipaddress.ip_address("127.0.0.1"), mtu=1500)


class _Wire:
    """A socket that takes datagrams only while ``open``."""

    def __init__(self) -> None:
        self.open = True
        self.waiting: list[bytes] = []
        self.dropped = 0

    def fileno(self) -> int:
        return 0

    def send(self, datagrams: Sequence[bytes], address: Any) -> bool:
        self.waiting += datagrams
        return self.flush()

    def flush(self) -> bool:
        if self.open:
            self.waiting.clear()
        return not self.waiting


class _Sockets:
    warnings: tuple[str, ...] = ()
    packet_size = 1472

    def __init__(self, *_: Any, **__: Any) -> None:
        self.wire = _Wire()

    def unicast(self, port: int) -> _Wire:
        return self.wire

    def group(self, *, upstream_only: bool) -> _Wire:
        return _Wire()

    def address_of(self, host: Any) -> tuple[str, int]:
        return str(GROUP), 5555


class _Host:
    """A thread whose clock stands still."""

    def __init__(self) -> None:
        self.poller = self
        self.on_writable: Callable[[], None] | None = None
        self.deadlines: list[float | None] = []

    def now(self) -> float:
        return 100.0

    def watch(self, fileno: int, *, readable: Any, writable: Callable[[], None] | None) -> None:
        self.on_writable = writable

    def set_timer(self, deadline: float | None, *_: Any) -> None:
        self.deadlines.append(deadline)

    def report(self, event: EngineEvent) -> None:
        raise AssertionError(event)


class _Owner:
    """Gives one unit for each call, and notes how many were given when all were reported as sent."""

    def __init__(self, units: int) -> None:
        self.left = units
        self.given = 0
        self.sent: list[int] = []
        self.source: GroupSource | None = None

    def refill(self) -> None:
        if self.source is not None and self.left:
            self.left -= 1
            self.given += 1
            self.source.send([b"x" * 100])

    def all_sent(self) -> None:
        self.sent.append(self.given)


@pytest.fixture
def host() -> _Host:
    return _Host()


def _source(host: _Host, owner: _Owner, monkeypatch: pytest.MonkeyPatch) -> tuple[GroupSource, _Wire]:
    monkeypatch.setattr(group_source, "Sockets", _Sockets)
    monkeypatch.setattr(group_source, "find_interface", lambda *_: INTERFACE)
    made = GroupSource(
        cast("Host", host),
        "out",
        GroupOptions(),
        Location("lo", GROUP, 5555),
        raw=False,
        refill=owner.refill,
        sent=owner.all_sent,
    )
    owner.source = made
    return made, cast("_Wire", made._wires[0])


def test_units_are_reported_as_sent_only_when_the_system_has_them(
    host: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = _Owner(1)
    source, wire = _source(host, owner, monkeypatch)
    wire.open = False
    source.work()
    assert wire.waiting
    assert source.busy
    assert owner.sent == []
    wire.open = True
    assert host.on_writable is not None
    host.on_writable()
    assert not source.busy
    assert set(owner.sent) == {1}


def test_a_socket_that_is_full_each_time_still_reports_what_it_took(
    host: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = _Owner(5)
    source, wire = _source(host, owner, monkeypatch)
    wire.open = False
    source.work()
    for given in range(1, 4):
        # The socket takes what waits; the units that follow fill it again.
        wire.waiting.clear()
        assert host.on_writable is not None
        host.on_writable()
        assert owner.sent == list(range(1, given + 1))
        assert owner.given == given + 1


def test_a_source_with_a_full_socket_waits_for_the_socket_and_not_for_a_timer(
    host: _Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, wire = _source(host, _Owner(0), monkeypatch)
    wire.open = False
    # More than one burst, so that new data is due again before the timer could be set.
    source.send([b"x" * 1000] * 1000)
    source.work()
    source.work()
    assert source.source.queued
    assert host.deadlines == []
    wire.open = True
    assert host.on_writable is not None
    host.on_writable()
    assert host.deadlines
