"""A receiver of kind ``one-to-many`` whose interface comes up late: it joins the group when it is asked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernel.contracts.engine import EngineEvent
from kernel.contracts.kinds import EngineSetup
from plugins.engines.pgm.one_to_many import receiver as engine
from plugins.engines.pgm.one_to_many.options import OneToManyOptions
from plugins.engines.pgm.one_to_many.receiver import OneToManyReceiver
from plugins.protocols.switchover import frames

GROUP, TSI = "epgm://239.192.77.4:5555", bytes(8)
REFUSAL = "there is no interface 'lo'"


class _Group:
    """Stands for the group's sockets; while ``refusal`` is set they cannot be opened."""

    refusal: str = ""
    joined = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        if _Group.refusal:
            raise OSError(_Group.refusal)
        _Group.joined += 1
        self.receiver = SimpleNamespace(sessions={})
        self.closed = False

    def start(self) -> None:
        """Nothing is read here."""

    def statistics(self) -> dict[str, int]:
        return {"sources": 1, "naks_out": 3, "recovered": 2}

    def close(self) -> None:
        self.closed = True


class _Host:
    def __init__(self) -> None:
        self.events: list[EngineEvent] = []

    def now(self) -> float:
        return 100.0

    def report(self, event: EngineEvent) -> None:
        self.events.append(event)


def _no_protocol(*_: Any) -> Any:
    raise AssertionError("this kind has no protocol of its own")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A receiver that is connected to a sender; its connection is in the test's hand."""
    monkeypatch.setattr(engine, "GroupReceiver", _Group)
    monkeypatch.setattr(_Group, "refusal", "")
    monkeypatch.setattr(_Group, "joined", 0)
    options = OneToManyOptions(address="switchover+tcp://127.0.0.1:5000", mode="receive", interface="lo")
    made: Any = OneToManyReceiver(EngineSetup(name="feed", options=options, make_protocol=_no_protocol))
    made._host = _Host()
    made._side.connected()
    made._on_data(frames.welcome(b"feed-one", 0))
    return made


def _failures(receiver: Any) -> list[str]:
    return [event.detail for event in receiver._host.events if event.what == "stays on TCP"]


def test_a_join_that_has_failed_is_tried_again_when_the_sender_asks_again(receiver: Any) -> None:
    _Group.refusal = REFUSAL
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert _failures(receiver) == [f"{GROUP}: {REFUSAL}"]
    # Not with each packet, but with each PREPARE; the same reason is reported once.
    _Group.refusal = ""
    receiver._after()
    assert _Group.joined == 0
    _Group.refusal = REFUSAL
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert len(_failures(receiver)) == 1
    _Group.refusal = ""
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert _Group.joined == 1
    assert receiver._group is not None
    # After a success the same reason is news again.
    receiver._on_data(frames.numbered(frames.Kind.UNICAST, 0))
    assert receiver._group is None
    _Group.refusal = REFUSAL
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert len(_failures(receiver)) == 2


def test_a_group_that_is_named_again_stays_joined(receiver: Any) -> None:
    receiver._on_data(frames.prepare(TSI, GROUP))
    group = receiver._group
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert (receiver._group, group.closed, _Group.joined) == (group, False, 1)


def test_counters_of_repairs_outlive_the_change_back_to_tcp(receiver: Any) -> None:
    def repairs() -> dict[str, int]:
        return {name: receiver.statistics()[name] for name in ("sources", "naks_out", "recovered")}

    receiver._on_data(frames.prepare(TSI, GROUP))
    assert repairs() == {"sources": 1, "naks_out": 3, "recovered": 2}
    receiver._on_data(frames.numbered(frames.Kind.UNICAST, 0))
    assert repairs() == {"sources": 0, "naks_out": 3, "recovered": 2}
    receiver._on_data(frames.prepare(TSI, GROUP))
    assert repairs() == {"sources": 1, "naks_out": 6, "recovered": 4}
