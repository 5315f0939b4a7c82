"""What tests of several front ends have in common."""

from __future__ import annotations

import pytest

from plugins.engines.broker.host.engine import BrokerEngine


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a turn of a broker has ended."""
    ends: list[float] = []
    end = BrokerEngine.finish_turn

    def finish_turn(self: BrokerEngine, now: float) -> None:
        ends.append(now)
        end(self, now)

    monkeypatch.setattr(BrokerEngine, "finish_turn", finish_turn)
    return ends
