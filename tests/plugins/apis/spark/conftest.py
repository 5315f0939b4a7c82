"""Journals to read, and one Spark session for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.apis.spark.journals import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal without rows."""
    return Journal(tmp_path / "journal")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one session: it takes seconds to start.  Its user's test is marked slow."""
    from plugins.apis.spark import session

    running = session(
        "tests",
        master="local[2]",
        configuration={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield running
    running.stop()
