"""Fixtures of a broker with faults on demand, for tests of any project (entry point ``pytest11``).

``faulty_broker`` runs in the test's own process, ``faulty_broker_process`` in one of its own.  Both serve
every protocol that is installed, on free ports, and are new for each test.  What they are made of is loaded
when a test asks for it, because pytest loads this module in every project.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from plugins.engines.broker.faults.brokers import FaultyBroker


@pytest.fixture
def faulty_broker_options() -> dict[str, Any]:
    """Options of both brokers as in a topology file.

    Override the fixture to have exchanges, queues, users or listeners.
    """
    return {}


@pytest.fixture
def faulty_broker(faulty_broker_options: dict[str, Any], tmp_path: Path) -> Iterator[FaultyBroker]:
    """Start a broker in this process; it is gone after the test."""
    from plugins.engines.broker.faults.brokers import FaultyBroker

    with FaultyBroker(tmp_path / "faulty_broker", faulty_broker_options) as broker:
        yield broker


@pytest.fixture
def faulty_broker_process(faulty_broker_options: dict[str, Any], tmp_path: Path) -> Iterator[FaultyBroker]:
    """Start a broker in a process of its own; it is gone after the test."""
    from plugins.engines.broker.faults.brokers import FaultyBroker

    with FaultyBroker(tmp_path / "faulty_broker", faulty_broker_options, process=True) as broker:
        yield broker
