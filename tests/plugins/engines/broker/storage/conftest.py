"""The log's clock in the hand: whether it was synced long ago is a test's choice, and not that of a busy machine."""

from __future__ import annotations

import pytest

from plugins.engines.broker.storage import log


class Clock:
    """Seconds, which pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(log, "monotonic", made)
    return made
