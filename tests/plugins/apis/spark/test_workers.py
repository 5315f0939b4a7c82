"""What a Python worker of Spark's is told, without a worker."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from plugins.apis.spark import workers


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each freeze of the collector; none is made."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(workers, "_settled", set())
    return calls


def test_a_worker_settles_once_for_each_sort_of_work(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    rows = workers.settled_after("read", iter([1, 2]))
    assert next(rows) == 1
    assert frozen == [], "what the first rows import is to be frozen, too"
    assert list(rows) == [2]
    assert frozen == ["freeze"]
    assert list(workers.settled_after("read", iter([3]))) == [3]
    workers.settle("write")
    assert frozen == ["freeze", "freeze"]


def test_a_process_that_is_no_worker_is_left_alone(frozen: list[str]) -> None:
    workers.settle("read")
    assert frozen == []
